"""ONNX models as TensorFlow functions, the baseline of the papers."""
