"""The nodes of a training graph as they are written: with unused names, and one node for equal computations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from taso_ext.onnx_io.operators import fresh_name, is_random


class NodeWriter:
    """A list of nodes in execution order, which grows.

    A node of an operator, inputs and attributes that has been written already is not written again: its values are
    returned instead. So entries of the table of gradients need not share what they compute.

    Attributes:
      nodes: the nodes written so far.
      opset: the version of ONNX's operators that they belong to.
    """

    def __init__(self, used: set[str], opset: int) -> None:
        """Starts with no nodes; `used` are the names of values that exist already."""
        self.nodes: list[onnx.NodeProto] = []
        self.opset = opset
        self._used = used
        self._counts: Counter[str] = Counter()
        self._written: dict[bytes, list[str]] = {}

    def copy(self, node: onnx.NodeProto) -> None:
        """Adds a node of the model as it is."""
        self.nodes.append(node)

    def write(
        self, op_type: str, inputs: Sequence[str], *, scope: str, outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Writes a node and returns the names of its outputs.

        Args:
          inputs: the names of the values that it reads; an empty one stands for an optional input that is not given.
          scope: the beginning of its name.
          outputs: how many outputs it has.
          attributes: its attributes; those that are None are left out.
        """
        node = helper.make_node(op_type, list(inputs), [], **{k: v for k, v in attributes.items() if v is not None})
        key = node.SerializeToString(deterministic=True) + bytes([outputs])
        if key not in self._written or is_random(op_type, "", inputs):
            stem = f"{scope}/{op_type}"
            node.name = f"{stem}_{self._counts[stem]}"
            self._counts[stem] += 1
            node.output.extend(fresh_name(f"{node.name}_output_{port}", self._used) for port in range(outputs))
            self.nodes.append(node)
            self._written[key] = list(node.output)
        return self._written[key]

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """Writes a `Constant` and returns the name of its value."""
        tensor = numpy_helper.from_array(np.asarray(values, dtype))
        return self.write("Constant", [], scope="/constants", value=tensor)[0]

    def fresh(self, hint: str) -> str:
        """Returns a name that no value has yet, and reserves it."""
        return fresh_name(hint, self._used)
