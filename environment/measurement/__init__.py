"""Measurements of the run time of models and of the memory that they need."""
