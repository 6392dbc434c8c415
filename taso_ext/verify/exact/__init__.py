"""Exact evaluation of graphs in prime fields."""
