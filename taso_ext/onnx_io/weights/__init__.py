"""Tensors as handles: where their data lie, what rules may know about them, and constant folding."""
