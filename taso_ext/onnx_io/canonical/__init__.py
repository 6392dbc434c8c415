"""The normal form of operators: into it and out of it."""
