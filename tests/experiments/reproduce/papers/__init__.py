"""Tests of `experiments.reproduce.papers`."""
