"""The import of ONNX models into the engine, and their export: reading, checking, clean-up, normal forms, writing."""
