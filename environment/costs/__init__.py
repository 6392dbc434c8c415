"""What graphs cost: by formula, as the sum of measured kernels, or timed as a whole."""
