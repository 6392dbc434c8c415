"""Runtimes of models behind one interface (`interface.Runtime`): ONNX Runtime, and OpenVINO if it is installed.

Nothing here imports TensorFlow; as a runtime, it is `experiments.baselines.tensorflow.runtime.TensorFlow`.
"""

from environment.runtimes.interface import Runtime, Session, UnavailableError
from environment.runtimes.onnx_runtime import OnnxRuntime, available_devices
from environment.runtimes.openvino_runtime import OpenVino

__all__ = ["OnnxRuntime", "OpenVino", "Runtime", "Session", "UnavailableError", "available_devices"]
