"""onnxsim, an optional extra: the simplifier of ONNX models that exporters and tutorials recommend."""

from __future__ import annotations

import importlib
from types import ModuleType

import onnx

from environment.runtimes import UnavailableError
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel


def simplifier_label() -> str:
    """Name and version, as tables call it.

    Raises:
      UnavailableError: it is not installed.
    """
    return f"onnxsim {_onnxsim().__version__.removeprefix('v')}"


def simplified(model: CheckedModel) -> CheckedModel:
    """The model as onnxsim rewrites it, with its default settings.

    Raises:
      ModelError: onnxsim cannot rewrite it.
      UnavailableError: it is not installed.
    """
    simplify = _onnxsim().simplify
    try:
        # The outputs are compared here anyway, and a proof for each small model takes time.
        found, _ = simplify(model.to_proto(), check_n=0, certify=False)
    except Exception as error:  # its passes raise whatever they like
        raise ModelError(f"onnxsim cannot simplify the model: {one_paragraph(error)}") from error
    assert isinstance(found, onnx.ModelProto)
    return CheckedModel.from_proto(found)


def _onnxsim() -> ModuleType:
    try:
        return importlib.import_module("onnxsim")
    except ImportError as error:
        raise UnavailableError(
            f"onnxsim is not here ({one_paragraph(error)}). Install it with `pip install onnxsim`."
        ) from error
