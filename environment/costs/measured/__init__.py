"""`measured:<device>`: graphs cost what the kernels cost that ONNX Runtime makes of them."""
