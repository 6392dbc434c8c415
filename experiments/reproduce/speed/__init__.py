"""Run times of steps in the real environment and in the dream."""
