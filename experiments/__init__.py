"""Runs, configurations, the command line and reports. Importing it brings no TensorFlow."""
