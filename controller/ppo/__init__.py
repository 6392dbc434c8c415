"""Proximal policy optimisation, in the dream and in the real environment."""
