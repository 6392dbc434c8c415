"""Runs, configurations, the command line and reports. Importing this package does not import TensorFlow."""
