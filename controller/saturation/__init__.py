"""Equality saturation, as Tensat does it: all graphs that rules lead to in one e-graph, and the cheapest of them."""
