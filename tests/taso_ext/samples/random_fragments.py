"""The fragments of random graphs; each adds a few operators to a sketch."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from onnx import TensorProto

from taso_ext import RuleSet
from tests.taso_ext.oracles.slow_graph import PlainGraph
from tests.taso_ext.oracles.slow_shapes import result_types
from tests.taso_ext.samples.random_graphs import Dims, Sketch

INSTANCE_SEEDS = 8
SMOOTH: dict[str, dict[str, Any]] = {
    **{op_type: {} for op_type in ("Relu", "Sigmoid", "Tanh", "Erf", "Neg", "Abs", "HardSwish")},
    "LeakyRelu": {"alpha": 0.125},
    "Elu": {"alpha": 1.0},
    "Gelu": {"approximate": "none"},
}
"""Unary operators that are well conditioned everywhere, with their attributes."""


def unary(sketch: Sketch) -> None:
    x = sketch.value(rank=(0, 9))
    if sketch.integer(0, 5) == 0:
        sketch.apply("Exp", {}, sketch.apply("Tanh", {}, x))
    else:
        op_type = sketch.pick([*SMOOTH])
        sketch.apply(op_type, SMOOTH[op_type], x)


def with_weight(sketch: Sketch) -> None:
    """Adds x ∘ w, once or twice in a row; w is a scalar, a row, a channel or of full shape."""
    x = sketch.value(rank=(1, 9))
    for _ in range(sketch.integer(1, 2)):
        dims = sketch.dims(x)
        channel = (dims[1], *(1,) * (len(dims) - 2)) if len(dims) > 2 else dims[-1:]
        w = sketch.weight(sketch.pick([(), (1,), dims[-1:], channel, dims]))
        op_type = sketch.pick(["Add", "Mul", "Sub", "Div"])
        operands = [w, x] if op_type in ("Add", "Mul") and sketch.chance() else [x, w]
        x = sketch.apply(op_type, {}, *operands, dims=dims)


def binary(sketch: Sketch) -> None:
    """Adds an operator on two run-time values of one shape, or on a value and its row mean."""
    x = sketch.value(rank=(1, 9))
    dims = sketch.dims(x)
    alike = [i for i in sketch.pool if sketch.tensors[i].type == sketch.tensors[x].type]
    if sketch.integer(0, 4) == 0:
        attributes = {"axes": [len(dims) - 1], "keepdims": 1}
        other = sketch.apply("ReduceMean", attributes, x, dims=(*dims[:-1], 1))
    else:
        other = sketch.pick(alike)
    sketch.apply(sketch.pick(["Add", "Mul", "Sub", "Max"]), {}, *sketch.pick([(x, other), (other, x)]), dims=dims)


def linears(sketch: Sketch) -> None:
    """Adds products of one value with weights, perhaps their biases, and what joins them."""
    x = sketch.value(rank=(2, 4))
    *batch, k = sketch.dims(x)
    siblings, width, biased = sketch.integer(1, 4), sketch.integer(1, 5), sketch.chance()
    results = []
    for _ in range(siblings):
        n = width if sketch.chance() else sketch.integer(1, 5)
        y = sketch.apply("MatMul", {}, x, sketch.weight((k, n)), dims=(*batch, n))
        results.append(sketch.apply("Add", {}, y, sketch.weight((n,))) if biased else y)
    join(sketch, results, len(batch))


def product(sketch: Sketch) -> None:
    """Adds a batched product of two run-time values."""
    x = sketch.value(rank=(2, 4))
    *batch, m, k = sketch.dims(x)
    if sketch.chance():
        perm = [*range(len(batch)), len(batch) + 1, len(batch)]
        other = sketch.apply("Transpose", {"perm": perm}, x, dims=(*batch, k, m))
        columns = m
    else:
        columns = sketch.integer(1, 4)
        fitting = [i for i in sketch.pool if sketch.dims(i) == (*batch, k, columns) and floating(sketch, i)]
        other = sketch.pick(fitting) if fitting else sketch.input((*(batch if sketch.chance() else ()), k, columns))
    sketch.apply("MatMul", {}, x, other, dims=(*batch, m, columns))


def convolutions(sketch: Sketch) -> None:
    """Adds convolutions of one value, mostly alike, biased or not, and what joins them."""
    x = sketch.value(rank=(3, 4))
    _, channels, *space = sketch.dims(x)
    group = sketch.pick([1, 1, 1, channels])
    siblings, biased, stride = sketch.integer(1, 3), sketch.chance(), sketch.integer(1, 2)
    results = []
    for _ in range(siblings):
        square = [sketch.pick([1, 3])] * len(space)
        kernel = square if sketch.integer(0, 2) else [sketch.pick([1, 3]) for _ in space]
        half = [each // 2 for each in kernel]
        attributes = {
            "kernel_shape": kernel,
            "strides": [stride] * len(space),
            "pads": half + half,
            "dilations": [1] * len(space),
            "group": group,
        }
        n = group * sketch.integer(1, 3)
        operands = [x, sketch.weight((n, channels // group, *kernel)), *([sketch.weight((n,))] if biased else [])]
        results.append(inferred(sketch, "Conv", attributes, operands))
    join(sketch, results, 1)


def join(sketch: Sketch, values: list[int], axis: int) -> None:
    """Adds a Concat or a sum of some values, an operator on each of them, or nothing."""
    alike = [value for value in values if sketch.dims(value) == sketch.dims(values[0])]
    choice = sketch.integer(0, 4)
    if choice == 0 and len(values) > 1:
        inferred(sketch, "Concat", {"axis": axis}, values)
    elif choice == 1 and len(alike) > 1:
        sketch.apply("Add", {}, *alike[:2])
    elif choice == 2:
        op_type = sketch.pick([*SMOOTH])
        each = [sketch.apply(op_type, SMOOTH[op_type], value) for value in values]
        join(sketch, each, axis)


def split(sketch: Sketch) -> None:
    """Splits a value, perhaps applies an operator to each part, and perhaps concatenates the parts."""
    x = sketch.value(rank=(1, 4), floating=False)
    dims = sketch.dims(x)
    axis = sketch.integer(0, len(dims) - 1)
    first = sketch.integer(1, dims[axis])
    sizes = [size for size in (first, dims[axis] - first) if size]
    parts = sketch.add("Split", {"axis": axis, "split": sizes}, [x], *(replaced(dims, axis, size) for size in sizes))
    choice = sketch.integer(0, 4)
    if choice == 0 and floating(sketch, x):
        op_type = sketch.pick([*SMOOTH])
        parts = [sketch.apply(op_type, SMOOTH[op_type], part) for part in parts]
    elif choice == 1:
        perm = sketch.permutation(len(dims))
        parts = [inferred(sketch, "Transpose", {"perm": perm}, [part]) for part in parts]
        axis = perm.index(axis)
    elif choice == 2 and floating(sketch, x):
        parts = [sketch.apply("Add", {}, part, sketch.weight(sketch.dims(part)[-1:])) for part in parts]
    if len(parts) > 1 and sketch.chance():
        inferred(sketch, "Concat", {"axis": axis}, parts)


def concat(sketch: Sketch) -> None:
    """Concatenates values of one shape; perhaps splits the whole again, and perhaps concatenates it once more."""
    x = sketch.value(rank=(1, 4), floating=False)
    dims = sketch.dims(x)
    alike = [i for i in sketch.pool if sketch.tensors[i].type == sketch.tensors[x].type]
    if sketch.tensors[x].dtype == TensorProto.FLOAT:
        alike.append(sketch.weight(dims))
    values = [x, *(sketch.pick(alike) for _ in range(sketch.integer(1, 2)))]
    axis = sketch.integer(0, len(dims) - 1)
    whole = inferred(sketch, "Concat", {"axis": axis}, values)
    if sketch.chance():
        sizes = [sketch.dims(value)[axis] for value in values]
        sketch.add("Split", {"axis": axis, "split": sizes}, [whole], *map(sketch.dims, values))
    if sketch.chance():
        inferred(sketch, "Concat", {"axis": axis}, sketch.pick([[whole, x], [x, whole, x], [x, whole]]))


def layout(sketch: Sketch) -> None:
    """Adds Transposes and Reshapes in a row, perhaps with a Relu in between."""
    x = sketch.value(rank=(1, 4), floating=False)
    for _ in range(sketch.integer(1, 3)):
        choice = sketch.integer(0, 4)
        if choice < 2:
            x = inferred(sketch, "Transpose", {"perm": sketch.permutation(len(sketch.dims(x)))}, [x])
        elif choice < 4:
            x = inferred(sketch, "Reshape", {"shape": regrouped(sketch, sketch.dims(x))}, [x])
        elif floating(sketch, x):
            x = sketch.apply("Relu", {}, x)


def regrouped(sketch: Sketch, dims: Dims) -> list[int]:
    """Draws another shape of as many elements, or the same shape."""
    if len(dims) < 2:
        return sketch.pick([[*dims], [1, *dims], [*dims, 1]])
    at = sketch.integer(0, len(dims) - 2)
    merged = [*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]]
    return sketch.pick([merged, [*dims], [dims[0], *dims[1:], 1], [prod(dims)]])


def windows(sketch: Sketch) -> None:
    """Adds a Slice, a Pad or a pooling operator."""
    x = sketch.value(rank=(3, 4))
    batch, channels, *space = sketch.dims(x)
    choice = sketch.integer(0, 3)
    if choice == 0:
        axis = sketch.integer(0, len(space) + 1)
        start = sketch.integer(0, sketch.dims(x)[axis] - 1)
        cut = {"starts": [start], "ends": [sketch.dims(x)[axis]], "axes": [axis], "steps": [1]}
        sketch.apply("Slice", cut, x, dims=replaced(sketch.dims(x), axis, sketch.dims(x)[axis] - start))
    elif choice == 1:
        inferred(sketch, "Pad", {"pads": [0, 0, *[1] * len(space)] * 2, "mode": "constant", "value": 0.0}, [x])
    elif choice == 2:
        sketch.apply("GlobalAveragePool", {}, x, dims=(batch, channels, *(1 for _ in space)))
    else:
        ones = [1] * len(space)
        steps = {"strides": ones, "pads": ones * 2, "dilations": ones}
        op_type, extra = sketch.pick([("MaxPool", {}), ("AveragePool", {"count_include_pad": 0})])
        sketch.apply(op_type, {"kernel_shape": [3] * len(space), "ceil_mode": 0, **steps, **extra}, x)


def norms(sketch: Sketch) -> None:
    """Adds a softmax, a layer or batch normalization, or a reduction."""
    x = sketch.value(rank=(2, 4))
    dims = sketch.dims(x)
    choice = sketch.integer(0, 3)
    if choice == 0:
        sketch.apply("Softmax", {"axis": sketch.integer(0, len(dims) - 1)}, x)
    elif choice == 1:
        scale, shift = sketch.weight(dims[-1:]), sketch.weight(dims[-1:])
        # The large epsilon keeps rows of equal elements well conditioned.
        sketch.apply("LayerNormalization", {"axis": len(dims) - 1, "epsilon": 0.25}, x, scale, shift)
    elif choice == 2:
        weights = [sketch.weight(dims[1:2]) for _ in range(3)]
        variance = sketch.weight(dims[1:2], positive=True)
        sketch.apply("BatchNormalization", {"epsilon": 0.0625}, x, *weights, variance)
    else:
        axis, keep = sketch.integer(0, len(dims) - 1), sketch.integer(0, 1)
        shape = replaced(dims, axis, 1) if keep else dims[:axis] + dims[axis + 1 :]
        kind = sketch.pick(["ReduceSum", "ReduceMean", "ReduceMax"])
        sketch.apply(kind, {"axes": [axis], "keepdims": keep}, x, dims=shape)


def entangled(sketch: Sketch) -> None:
    """Adds operators that could be joined if one did not need the result of the other."""
    x = sketch.value(rank=(2, 3))
    *batch, m, _ = sketch.dims(x)
    k = sketch.dims(x)[-1]
    if sketch.chance():
        w = sketch.weight((k, k))
        first = sketch.apply("MatMul", {}, x, w)
        sketch.apply("MatMul", {}, sketch.apply("Tanh", {}, first), w)
    elif m == k and not batch:
        first = sketch.apply("MatMul", {}, x, x)
        sketch.apply("MatMul", {}, x, sketch.apply("Tanh", {}, first))
    else:
        first = sketch.apply(sketch.pick(["Relu", "Tanh", "Neg"]), {}, x)
        other = sketch.apply(sketch.pick(["Relu", "Tanh", "Neg"]), {}, first)
        sketch.apply(sketch.pick(["Add", "Mul", "Sub"]), {}, x, other)


def constant_operand(sketch: Sketch) -> None:
    """Adds an operator on weights alone, which no rule matches, and a product that reads it."""
    x = sketch.value(rank=(2, 3))
    *batch, k = sketch.dims(x)
    n = sketch.integer(1, 4)
    turned = sketch.apply("Transpose", {"perm": [1, 0]}, sketch.weight((n, k)), dims=(k, n))
    sketch.apply("MatMul", {}, x, turned, dims=(*batch, n))


def instance(sketch: Sketch) -> None:
    """Adds a random instance of a rule, which often reads existing values of the right shape."""
    drawn = rule_instance(sketch.rules, sketch.pick(range(len(sketch.rules))), sketch.pick(range(INSTANCE_SEEDS)))
    if drawn is None:
        return
    delicate = any(operator.op_type in ("Sqrt", "Exp", "Div") for operator in drawn.operators)
    ids: dict[int, int] = {}
    for id_ in drawn.inputs:
        kind = drawn.tensors[id_]
        alike = [i for i in sketch.pool if sketch.tensors[i].type == kind.type]
        grafted = bool(alike) and not delicate and sketch.integer(0, 3) > 0
        ids[id_] = sketch.pick(alike) if grafted else sketch.input(kind.dims or (), kind.dtype, positive=delicate)
    for id_, kind in drawn.tensors.items():
        if kind.handle is not None:
            ids[id_] = sketch.weight(kind.dims or (), positive=delicate)
    for operator in drawn.operators:
        operands = [ids[value] for value in operator.inputs]
        results = [drawn.tensors[value].dims or () for value in operator.outputs]
        ids |= zip(operator.outputs, sketch.add(operator.op_type, operator.attributes, operands, *results), strict=True)


@cache
def rule_instance(rules: RuleSet, rule: int, seed: int) -> PlainGraph | None:
    found = rules.instance(rule, seed)
    return None if found is None else PlainGraph.of(found)


def foreign(sketch: Sketch) -> None:
    """Adds operators that only look like those of rules: of another domain, of unknown shape, of integers.

    Or it adds operators on tensors without elements, to which rules do apply.
    """
    x = sketch.value(rank=(2, 4))
    dims, dtype = sketch.dims(x), sketch.tensors[x].dtype
    choice = sketch.integer(0, 3)
    if choice == 0:
        y = sketch.foreign("com.example", "Relu", [x], dtype, dims)
        sketch.foreign("raw", "Transpose", [y, x], dtype, dims)
    elif choice == 1:
        y = sketch.foreign("com.example", "Mystery", [x], dtype, None)
        sketch.foreign("", "Add", [sketch.foreign("", "Mul", [y, x], dtype, None), x], dtype, None)
    elif choice == 2:
        empty = sketch.input((0, *dims[1:]))
        for _ in range(2):
            sketch.apply("MatMul", {}, empty, sketch.weight((dims[-1], 2)), dims=(0, *dims[1:-1], 2))
        inferred(sketch, "Transpose", {"perm": sketch.permutation(len(dims))}, [empty])
    else:
        a, b = (sketch.input(dims, TensorProto.INT64) for _ in range(2))
        total = sketch.apply("Add", {}, a, b)
        sketch.apply("Mul", {}, total, a)


def inferred(sketch: Sketch, op_type: str, attributes: dict[str, Any], operands: list[int]) -> int:
    """Adds an operator whose result types slow_shapes.py knows, and returns its first result."""
    types = result_types(op_type, attributes, [sketch.tensors[value].type for value in operands])
    assert types is not None, (op_type, attributes, [sketch.dims(value) for value in operands])
    return sketch.add(op_type, attributes, operands, *(each.dims for each in types))[0]


def floating(sketch: Sketch, value: int) -> bool:
    return sketch.tensors[value].dtype == TensorProto.FLOAT


def replaced(dims: Dims, axis: int, size: int) -> Dims:
    return (*dims[:axis], size, *dims[axis + 1 :])


FRAGMENTS = [
    *[instance] * 9,  # so often, because few rules would match without them
    *[linears, convolutions] * 2,
    split,
    concat,
    layout,
    with_weight,
    unary,
    binary,
    product,
    windows,
    norms,
    constant_operand,
    entangled,
]
FOREIGN = [foreign] * 2
