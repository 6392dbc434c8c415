"""Training graphs of ONNX models: reverse-mode differentiation by a table of vector-Jacobian products.

>>> from environment.gradients import training_graph
>>> graph = training_graph("model.onnx", loss="cross-entropy", optimiser="adam")   # an onnx.ModelProto
"""

from __future__ import annotations

from environment.gradients.training import training_graph, training_model

__all__ = ["training_graph", "training_model"]
