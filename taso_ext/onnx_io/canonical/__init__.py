"""The normal form of operators, and the conversion into it and back to ONNX."""
