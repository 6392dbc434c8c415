"""Intervals and correlations of measurements."""
