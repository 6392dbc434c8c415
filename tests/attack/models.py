"""Random nasty models: what exporters and people write, and what breaks programs that read it.

`nasty_model(seed)` returns a model that onnx.checker accepts. A body of operators that rules like to rewrite is drawn
first (bodies.py). Rare constructs (constructs.py) and other spellings (spellings.py) are then applied to it. Some
models are of opsets 1 to 6 instead (legacy.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import version_converter

from tests.attack.bodies import BFLOAT16, DOUBLE, DTYPES, FLOAT, FLOAT16, NEWEST, OLDEST, WIDTH, drawn
from tests.attack.constructs import CONSTRUCTS, NOT_CONVERTED
from tests.attack.legacy import legacy_model
from tests.attack.spellings import SPELLINGS

OPSETS = (8, 9, 11, 13, 15, 17, 19, 21, 23)
"""The opsets to which onnx's own converter takes some models."""
LARGE = 2500
"""Number of fragments of a large model, which has about 8,000 operators."""


@dataclass
class Nasty:
    """A model and how it was twisted.

    Attributes:
      model: the model.
      twists: names of the twists, in order.
      oracle: a model of the same inputs that computes the same, if no runtime runs the model itself.
      external: whether its weights belong in a file of their own.
      dims: sizes of its symbolic dimensions.
    """

    model: onnx.ModelProto
    twists: list[str] = field(default_factory=list)
    oracle: onnx.ModelProto | None = None
    external: bool = False
    dims: dict[str, int] = field(default_factory=dict)


def nasty_model(seed: int) -> Nasty:
    """Returns model number `seed`: valid, and of any of the kinds that this folder knows."""
    rng = np.random.default_rng(seed)
    if rng.random() < 0.08:
        model, oracle = legacy_model(rng)
        return Nasty(model, [f"opset {model.opset_import[0].version}"], oracle)
    dtype = int(rng.choice([FLOAT, FLOAT16, DOUBLE, BFLOAT16], p=[0.7, 0.12, 0.12, 0.06]))
    opset = int(rng.integers(16 if dtype == BFLOAT16 else OLDEST, NEWEST + 1))
    fragments = LARGE if rng.random() < 0.004 else int(rng.integers(1, 9))
    found = Nasty(drawn(rng, dtype, fragments, opset), [DTYPES[dtype].__name__, f"{fragments} fragments"])
    found.twists.append(f"opset {opset}")
    if rng.random() < 0.3 and any(value.name == "x" for value in found.model.graph.input):
        _make_symbolic(found)
    twists = [*rng.permutation(np.array(CONSTRUCTS))[: rng.integers(0, 3)]]
    twists += [*rng.permutation(np.array(SPELLINGS))[: rng.integers(0, 4)]]
    for twist in twists:
        twisted = onnx.ModelProto()
        twisted.CopyFrom(found.model)
        if twist(twisted, rng) and is_valid(twisted):
            found.model = twisted
            found.twists.append(twist.__name__)
    if rng.random() < 0.2 and not NOT_CONVERTED & set(found.twists):
        _convert(found, int(rng.choice(OPSETS)))
    found.external = bool(rng.random() < 0.1)
    return found


def _make_symbolic(found: Nasty) -> None:
    """Makes the columns of the matrix that the model reads symbolic; their number has to be given."""
    value = next(value for value in found.model.graph.input if value.name == "x")
    value.type.tensor_type.shape.dim[1].dim_param = "columns"
    found.dims["columns"] = WIDTH
    found.twists.append("symbolic columns")


def _convert(found: Nasty, opset: int) -> None:
    """Takes a model to another opset, if onnx's converter can."""
    try:
        converted = version_converter.convert_version(found.model, opset)
    except Exception:  # the converter raises what its C++ does
        return
    if is_valid(converted):
        found.model = converted
        found.twists.append(f"converted to opset {opset}")


def is_valid(model: onnx.ModelProto) -> bool:
    """Returns whether onnx.checker and onnx's shape inference accept a model."""
    try:
        onnx.checker.check_model(model)
        if not model.graph.sparse_initializer:  # onnx's inference knows no operator that reads these
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception:  # onnx.checker and shape inference raise different errors
        return False
    return True
