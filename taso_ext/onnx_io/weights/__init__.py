"""Tensors as handles: where their data lie, what rules may know of them, and folding them."""
