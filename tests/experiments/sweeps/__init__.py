"""Tests of `experiments.sweeps`."""
