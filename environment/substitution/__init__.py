"""The substitution environment, its observations, and its wrappers."""
