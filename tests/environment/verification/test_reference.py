"""Models in onnx.reference, and what they compute in double precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from environment.verification import reference
from environment.verification.reference import Reference
from taso_ext import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel

NARROW = """
<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
g (float[3] x, bool b) => (float16[3] y) {
  third = Constant<value_float: float = 0.25>()
  h = Cast<to: int = 10>(x)
  p = f.scaled(h)
  y = If (b) <
    then_branch = t () => (float16[3] u) {
      two = Constant<value_floats: floats = [2.0]>() n = Cast<to: int = 10>(two) u = Mul(p, n)
    },
    else_branch = e () => (float16[3] v) { f = Cast<to: int = 10>(third) v = Add(p, f) }
  >
}
<domain: "f", opset_import: ["" : 21]>
scaled (a) => (c) { k = Constant<value_float: float = 3.0>() l = CastLike(k, a) c = Mul(a, l) }
"""


def checked(text: str) -> CheckedModel:
    return CheckedModel.from_proto(onnx.parser.parse_model(text))


@pytest.mark.parametrize("branch", [True, False])
def test_every_float_is_a_double(branch: bool) -> None:
    """Branches, functions, constants and casts to narrower types keep what float16 would round away."""
    x = np.array([1 + 2**-20, 1e30, -7.0])
    feeds = {"x": x.astype(np.float32), "b": np.array(branch)}
    expected = 6 * feeds["x"].astype(np.float64) if branch else 3 * feeds["x"].astype(np.float64) + 0.25
    (found,) = Reference(checked(NARROW), double=True).run(["y"], feeds)
    assert isinstance(found, np.ndarray) and found.dtype == np.float64
    np.testing.assert_array_equal(found, expected)
    (plain,) = Reference(checked(NARROW)).run(["y"], feeds)
    assert isinstance(plain, np.ndarray) and plain.dtype == np.float16 and np.isinf(plain[1])


def test_weights_of_all_floating_types_are_widened() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (bfloat16[2] x) => (bfloat16[2] y) { y = Mul(x, w) }'
    model = onnx.parser.parse_model(text)
    weight = np.array([3.0, 0.5]).astype(ml_dtypes.bfloat16)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    feeds = {"x": np.array([1.0, 257.0], ml_dtypes.bfloat16)}
    (found,) = Reference(CheckedModel.from_proto(model), double=True).run(["y"], feeds)
    np.testing.assert_array_equal(found, weight.astype(np.float64) * feeds["x"].astype(np.float64))


def test_what_cannot_be_evaluated_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    opsets = '<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>'
    unknown = f"{opsets} g (float[2] x) => (float[2] y) {{ y = mine.Own(x) }}"
    with pytest.raises(ModelError, match=r"onnx\.reference cannot load the model: .*Own"):
        Reference(checked(unknown))
    product = f"{opsets} g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ y = Mul(x, w) }}"
    with pytest.raises(ModelError, match="cannot run the model"):
        Reference(checked(product)).run(["y"], {"x": np.zeros(3, np.float32)})
    monkeypatch.setattr(reference, "MOST_BYTES", 4)
    with pytest.raises(ModelError, match="is not tried on weights of more than"):
        Reference(checked(product))
