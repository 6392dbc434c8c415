"""Reports, summaries and plots of finished runs."""
