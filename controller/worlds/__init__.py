"""The real environment as model-free training sees it."""
