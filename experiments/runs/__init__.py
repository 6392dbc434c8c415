"""Run directories: what a run leaves behind, its progress, and its result."""
