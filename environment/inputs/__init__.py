"""Inputs to run a model on."""
