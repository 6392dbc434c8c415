"""TensorFlow, the baseline of the papers: ONNX models as TensorFlow functions."""
