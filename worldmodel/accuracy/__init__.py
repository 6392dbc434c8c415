"""Measures of how well a world model predicts, and of how far policies exploit its mistakes."""
