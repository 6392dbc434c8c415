"""How far the engine's ONNX side agrees with ONNX's own test data: `python -m tests.conformance.onnx_backend`."""
