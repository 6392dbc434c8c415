"""ONNX models into the engine and back out: reading and checking, clean-up, normal forms, export."""
