"""One spelling for what ONNX writes differently from opset to opset, and back."""
