"""Run directories: the files that a run leaves behind, its progress, and its result."""
