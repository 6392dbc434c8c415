"""`measured:<device>`: the cost of a graph is the sum of the kernels that ONNX Runtime makes of it."""
