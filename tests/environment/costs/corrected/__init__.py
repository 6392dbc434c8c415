"""Tests of `environment.costs.corrected`."""
