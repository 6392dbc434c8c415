"""Differential tests of rules in ONNX Runtime."""
