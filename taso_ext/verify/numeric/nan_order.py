"""Results that NaN leaves undefined, because it has no place in an order.

ONNX does not say what MaxPool or ReduceMax give for a window that contains NaN, and the kernels of ONNX Runtime differ
even from call to call: a maximum skips NaN, returns it, or depends on where in the window it stands. So such a result
of the source says nothing about a rule. Where the source does not depend on the NaN, the target has to agree as always.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from taso_ext._core import Graph
from taso_ext.verify.exact.evaluation import leaf_key
from taso_ext.verify.numeric.float_session import Floats, FloatSession

ORDERING = frozenset(["MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"])
"""Operators that look for the greatest or least of many elements."""
_INSTEAD = (1000.0, -1000.0, 77.0)  # NaN is replaced by each of these: large ones of both signs win and lose


def ordered_leaves(graph: Graph) -> frozenset[str]:
    """Returns the keys of the leaves on which an operand of an ordering operator depends."""
    values, above = graph.values(), dict[int, frozenset[str]]()
    found: frozenset[str] = frozenset()
    for node in graph.nodes():
        reached = [above.get(id_, frozenset([leaf_key(values[id_])])) for id_ in node.inputs if id_ >= 0]
        leaves = frozenset().union(*reached)
        above.update(dict.fromkeys(node.outputs, leaves))
        found |= leaves if node.op_type in ORDERING else frozenset()
    return found


def undefined_results(
    session: FloatSession, ordered: frozenset[str], feeds: Mapping[str, Floats]
) -> list[npt.NDArray[np.bool_]] | None:
    """Returns for each output which elements depend on NaN in a leaf that is ordered; None if no such leaf has NaN.

    Args:
      session: the source.
      ordered: the leaves of `ordered_leaves`.
      feeds: the tensors of all leaves, by key.
    """
    if not any(np.isnan(feeds[key]).any() for key in ordered):
        return None
    runs = []
    for number in _INSTEAD:
        finite = {
            key: np.where(np.isnan(tensor), np.float32(number), tensor) if key in ordered else tensor
            for key, tensor in feeds.items()
        }
        runs.append(session.run(finite))
    return [np.asarray((a != b) | (a != c)) for a, b, c in zip(*runs, strict=True)]
