"""Commands that judge the import of ONNX models and the verifier of rules by independent evidence."""
