"""Equality saturation, as Tensat does it: all graphs that the rules lead to in one e-graph, and the cheapest of them."""
