"""What a finished run shows: reports, summaries and plots."""
