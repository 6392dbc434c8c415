"""The operators of ONNX Runtime that stand for several operators of ONNX, and where a model has such groups.

| root | what it takes in | operator of com.microsoft |
|---|---|---|
| Relu, Sigmoid, Tanh, LeakyRelu, Clip, HardSigmoid | Conv; or Add of a Conv and a tensor of its shape | FusedConv |
| Add of a tensor of the same shape | Conv | FusedConv |
| Relu, Sigmoid, Tanh, LeakyRelu, Elu, HardSigmoid, Softplus | Gemm | FusedGemm |
| Mul or Div by a constant | MatMul | FusedMatMul |
| Gelu, or x · (1 + Erf(x / √2)) / 2 in five operators | Add of a bias, if there is one | BiasGelu, else Gelu |
| Gelu by tanh | Add of a bias | FastGelu |
| Mul of x | Sigmoid of x, or of x times a constant | QuickGelu |
| LayerNormalization | Add, or Add of a bias and another Add | SkipLayerNormalization |
| RMSNormalization | Add | SkipSimplifiedLayerNormalization |

These are the fused operators that have a kernel for CPUs (ContribOperators.md of ONNX Runtime) and whose groups a
kernel can hold. FusedMatMul can also transpose. A fusion plan has no kernel of a transpose and a matrix product:
library calls absorb nothing, and XLA folds such transposes before it fuses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import onnx
from onnx import helper

from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import captured_names

KERNELS = "rlflow.fusion.kernels"
"""The metadata of an operator that names what the kernels with it write, separated by commas."""
MICROSOFT = "com.microsoft"
_OF_CONV: dict[str, dict[str, float]] = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "LeakyRelu": {"alpha": 0.01}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}
}  # fmt: skip
_OF_GEMM: dict[str, dict[str, float]] = {**_OF_CONV, "Elu": {"alpha": 1.0}, "Softplus": {}}
"""Activations of FusedConv and of FusedGemm, with their attributes and the default values of these."""
SLOW_ON_CPUS = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
"""Fused operators whose CPU kernels take several times as long as their groups in ONNX Runtime 1.32.

`rlflow reproduce fusion-groups` measures it: their kernels add and normalise number by number. They are for GPUs.
"""
_ROUNDING = 1e-6
"""Exporters round √2 to float32, which has 24 bits."""


class Group(NamedTuple):
    """Operators that one operator computes.

    Attributes:
      inner: operators whose results nobody else reads.
      root: the operator that writes the result.
      fused: the operator of ONNX Runtime, with the same inputs and output as the group.
    """

    inner: tuple[onnx.NodeProto, ...]
    root: onnx.NodeProto
    fused: onnx.NodeProto

    @property
    def kind(self) -> str:
        """The operators in their order, such as `Conv+Add+Relu`."""
        return "+".join(node.op_type for node in (*self.inner, self.root))


class Values:
    """What is known of the values of an annotated model: producers, readers, types and constants."""

    def __init__(self, model: CheckedModel, planned: bool) -> None:
        self._planned = planned
        nodes = model.skeleton.graph.node
        self._types, self._tensors = model.types, model.tensors
        self._producer = {name: node for node in nodes for name in node.output}
        self._readers = Counter(name for node in nodes for name in (*node.input, *captured_names(node)))
        self._readers.update(output.name for output in model.skeleton.graph.output)

    def taken_in(self, name: str, root: onnx.NodeProto, *op_types: str, readers: int = 1) -> onnx.NodeProto | None:
        """Returns the producer of a value if it is of one of these types and nobody beside the group needs the value.

        Args:
          readers: how often the group itself reads it.
        """
        node = self._producer.get(name)
        if node is None or node.domain != "" or node.op_type not in op_types or self._readers[name] != readers:
            return None
        return node if not self._planned or (kernels_of(node) and kernels_of(node) <= kernels_of(root)) else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        return self._types[name].dims if name in self._types else None

    def is_float(self, name: str) -> bool:
        return name in self._types and self._types[name].dtype == onnx.TensorProto.FLOAT

    def is_vector(self, name: str) -> bool:
        return name in self._tensors and len(self._tensors[name].shape) == 1

    def number(self, name: str) -> float | None:
        """Returns the value of a constant with one element; None for everything else."""
        tensor = self._tensors.get(name)
        return float(tensor.numpy().reshape(())) if tensor is not None and tensor.size == 1 else None


def kernels_of(node: onnx.NodeProto) -> set[str]:
    """Returns the names of what the kernels with this operator write; empty if a plan has none."""
    text = next((prop.value for prop in node.metadata_props if prop.key == KERNELS), "")
    return set(text.split(",")) if text else set()


def groups(model: CheckedModel, *, planned: bool = True) -> list[Group]:
    """Returns the groups of a model that have an operator of their own; no operator is in two of them.

    Of two groups that share an operator, the one whose root comes last is taken, which is the larger.

    Args:
      planned: whether only groups count that the plan, with which the model is annotated, has in one kernel: every
        kernel of an inner operator has the root too.
    """
    values, found = Values(model, planned), list[Group]()
    taken: set[int] = set()
    for root in reversed(model.skeleton.graph.node):
        if root.domain != "" or id(root) in taken or not values.is_float(root.output[0]):
            continue
        group = next(_matches(root, values), None)
        if group is not None and not taken & {id(node) for node in group.inner}:
            taken |= {id(node) for node in (*group.inner, root)}
            found.append(group)
    return found[::-1]


def _matches(root: onnx.NodeProto, values: Values) -> Iterator[Group]:
    return (group for pattern in _PATTERNS.get(root.op_type, ()) if (group := pattern(root, values)) is not None)


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    return next((each.f for each in node.attribute if each.name == name), default)


def _made(
    root: onnx.NodeProto, op_type: str, inputs: Sequence[str], copied: Iterable[onnx.AttributeProto] = (), **new: Any
) -> onnx.NodeProto:
    """Returns the operator that takes the place of the root, with attributes of inner operators and new ones."""
    last = max((place for place, name in enumerate(inputs, 1) if name), default=0)
    fused = helper.make_node(op_type, inputs[:last], root.output[:1], name=root.name, domain=MICROSOFT)
    fused.attribute.extend([*copied, *(helper.make_attribute(key, value) for key, value in new.items())])
    fused.metadata_props.extend(root.metadata_props)
    return fused


def _sum_of(
    root: onnx.NodeProto, addition: onnx.NodeProto, values: Values, *op_types: str
) -> tuple[onnx.NodeProto, str] | None:
    """Returns the operand of an Add that a root takes in and the name of the other; None if it takes in neither."""
    for own, other in (tuple(addition.input), tuple(addition.input)[::-1]):
        if (node := values.taken_in(own, root, *op_types)) is not None:
            return node, other
    return None


def _convolution(root: onnx.NodeProto, values: Values) -> Group | None:
    activation = _activation(root, values)
    if activation is None:
        return None
    first = values.taken_in(root.input[0], root, "Conv", "Add")
    if first is not None and first.op_type == "Conv":
        return Group((first,), root, _made(root, "FusedConv", first.input, first.attribute, **activation))
    return None if first is None else _residual(root, first, values, activation)


def _bare_sum(root: onnx.NodeProto, values: Values) -> Group | None:
    return _residual(root, root, values, {})


def _residual(
    root: onnx.NodeProto, addition: onnx.NodeProto, values: Values, activation: dict[str, Any]
) -> Group | None:
    found = _sum_of(root, addition, values, "Conv")
    if found is None or values.shape(found[1]) != values.shape(found[0].output[0]):
        return None
    conv, other = found
    inputs = [*conv.input, *[""] * (3 - len(conv.input)), other]
    inner = (conv,) if addition is root else (conv, addition)
    return Group(inner, root, _made(root, "FusedConv", inputs, conv.attribute, **activation))


def _activation(root: onnx.NodeProto, values: Values) -> dict[str, Any] | None:
    """Returns the attributes of FusedConv for an activation; None for a Clip whose bounds are not known."""
    if root.op_type == "Clip":
        bounds = [values.number(name) for name in root.input[1:]]
        if len(bounds) != 2 or None in bounds:
            return None
        return {"activation": "Clip", "activation_params": bounds}
    parameters = [_attribute(root, name, default) for name, default in _OF_CONV[root.op_type].items()]
    return {"activation": root.op_type, **({"activation_params": parameters} if parameters else {})}


def _gemm(root: onnx.NodeProto, values: Values) -> Group | None:
    gemm = values.taken_in(root.input[0], root, "Gemm")
    if gemm is None:
        return None
    numbers = {
        f"activation_{name}": _attribute(root, name, default) for name, default in _OF_GEMM[root.op_type].items()
    }
    return Group(
        (gemm,), root, _made(root, "FusedGemm", gemm.input, gemm.attribute, activation=root.op_type, **numbers)
    )


def _scaled_product(root: onnx.NodeProto, values: Values) -> Group | None:
    places = ((0, 1),) if root.op_type == "Div" else ((0, 1), (1, 0))
    for own, other in places:
        product, factor = values.taken_in(root.input[own], root, "MatMul"), values.number(root.input[other])
        if product is None or not factor or values.shape(root.output[0]) != values.shape(product.output[0]):
            continue
        alpha = 1 / factor if root.op_type == "Div" else factor
        return Group((product,), root, _made(root, "FusedMatMul", product.input, alpha=alpha))
    return None


def _gelu(root: onnx.NodeProto, values: Values) -> Group | None:
    biased = _biased(root.input[0], root, values)
    if biased is None:
        return None
    by_tanh = any(each.name == "approximate" and each.s == b"tanh" for each in root.attribute)
    return Group((biased[0],), root, _made(root, "FastGelu" if by_tanh else "BiasGelu", biased[1]))


def _gelu_by_erf(root: onnx.NodeProto, values: Values) -> Group | None:
    """x · (1 + Erf(x / √2)) / 2, as exporters write it: the three factors in any order."""
    for own, other in (tuple(root.input), tuple(root.input)[::-1]):
        product = values.taken_in(own, root, "Mul")
        factors = [*product.input, other] if product is not None else []
        others = [name for name in factors if values.number(name) != 0.5]
        for x, rest in (others, others[::-1]) if len(others) == 2 else ():
            gate = _one_plus_erf(rest, x, root, values)
            if product is None or gate is None:
                continue
            biased = _biased(x, root, values, readers=2)
            operator = "Gelu" if biased is None else "BiasGelu"
            first, inputs = ((), [x]) if biased is None else ((biased[0],), biased[1])
            return Group((*first, *gate, product), root, _made(root, operator, inputs))
    return None


def _one_plus_erf(name: str, x: str, root: onnx.NodeProto, values: Values) -> tuple[onnx.NodeProto, ...] | None:
    """Returns the operators that compute 1 + Erf(x / √2); None if a value is not that."""
    addition = values.taken_in(name, root, "Add")
    found = _sum_of(root, addition, values, "Erf") if addition is not None else None
    if addition is None or found is None or values.number(found[1]) != 1:
        return None
    scaling = values.taken_in(found[0].input[0], root, "Div", "Mul")
    if scaling is None or x not in scaling.input or (scaling.op_type == "Div" and scaling.input[0] != x):
        return None
    factor = next((values.number(each) for each in scaling.input if each != x), None)
    expected = math.sqrt(2) if scaling.op_type == "Div" else math.sqrt(0.5)
    exact = factor is not None and math.isclose(factor, expected, rel_tol=_ROUNDING)
    return (scaling, found[0], addition) if exact else None


def _biased(
    name: str, root: onnx.NodeProto, values: Values, readers: int = 1
) -> tuple[onnx.NodeProto, list[str]] | None:
    """Returns an Add of a bias for each element of the last axis, with its operands, the bias last."""
    addition = values.taken_in(name, root, "Add", readers=readers)
    if addition is None:
        return None
    biases = [each for each in addition.input if values.is_vector(each)]
    others = [each for each in addition.input if each not in biases]
    shape = values.shape(others[0]) if len(biases) == len(others) == 1 else None
    fits = shape is not None and values.shape(biases[0]) == shape[-1:]
    return (addition, [*others, *biases]) if fits else None


def _swish(root: onnx.NodeProto, values: Values) -> Group | None:
    for x, gate in (tuple(root.input), tuple(root.input)[::-1]):
        sigmoid = values.taken_in(gate, root, "Sigmoid")
        if sigmoid is None:
            continue
        if sigmoid.input[0] == x:
            return Group((sigmoid,), root, _made(root, "QuickGelu", [x], alpha=1.0))
        scaling = values.taken_in(sigmoid.input[0], root, "Mul")
        factors = [values.number(name) for name in scaling.input if name != x] if scaling is not None else []
        if scaling is not None and len(factors) == 1 and factors[0] is not None:
            return Group((scaling, sigmoid), root, _made(root, "QuickGelu", [x], alpha=factors[0]))
    return None


def _layer_normalisation(root: onnx.NodeProto, values: Values) -> Group | None:
    addition = _normalised_sum(root, values)
    if addition is None:
        return None
    gamma, beta = root.input[1], root.input[2] if len(root.input) > 2 else ""
    epsilon = _attribute(root, "epsilon", 1e-5)
    for own, other in (tuple(addition.input), tuple(addition.input)[::-1]):
        biased = _biased(own, root, values)
        if biased is not None and values.shape(biased[1][0]) == values.shape(other):
            x, bias = biased[1]
            fused = _made(root, "SkipLayerNormalization", [x, other, gamma, beta, bias], epsilon=epsilon)
            return Group((biased[0], addition), root, fused)
    fused = _made(root, "SkipLayerNormalization", [*addition.input, gamma, beta], epsilon=epsilon)
    return Group((addition,), root, fused)


def _rms_normalisation(root: onnx.NodeProto, values: Values) -> Group | None:
    addition = _normalised_sum(root, values)
    if addition is None:
        return None
    epsilon = _attribute(root, "epsilon", 1e-5)
    fused = _made(root, "SkipSimplifiedLayerNormalization", [*addition.input, root.input[1]], epsilon=epsilon)
    return Group((addition,), root, fused)


def _normalised_sum(root: onnx.NodeProto, values: Values) -> onnx.NodeProto | None:
    """Returns the sum that a normalisation of the last axis takes in, if the fused operator takes such a sum."""
    addition = values.taken_in(root.input[0], root, "Add")
    shape = values.shape(root.input[0])
    if addition is None or shape is None or len(shape) not in (2, 3) or len(root.output) > 1:
        return None
    axis = next((each.i for each in root.attribute if each.name == "axis"), -1)
    whole_rows = axis % len(shape) == len(shape) - 1 and values.shape(root.input[1]) == shape[-1:]
    return addition if whole_rows and all(values.shape(name) == shape for name in addition.input) else None


_PATTERNS: dict[str, tuple[Callable[[onnx.NodeProto, Values], Group | None], ...]] = {
    **dict.fromkeys(_OF_GEMM, (_gemm,)),
    **dict.fromkeys(_OF_CONV, (_convolution, _gemm)),
    "Clip": (_convolution,),
    "Add": (_bare_sum,),
    "Mul": (_gelu_by_erf, _scaled_product, _swish),
    "Div": (_scaled_product,),
    "Gelu": (_gelu,),
    "LayerNormalization": (_layer_normalisation,),
    "RMSNormalization": (_rms_normalisation,),
}
"""The patterns of each root, the larger first."""
