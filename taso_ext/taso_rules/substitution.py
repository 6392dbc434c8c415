"""TASO's rules in ONNX operators, and their sides as terms, by which equal rules are recognised.

Activations are operators of their own, tensors have names, and both sides use the same names for their results. Every
input is a plain tensor, as in TASO, which does not say what a weight is: kernels and right operands of products match
whether or not they are constant. If they are, the export folds what the target computes from them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

from taso_ext.taso_rules.file import OpType, ParameterKey, TasoOperator, TasoRule, TensorRef


class InexpressibleError(ValueError):
    """The rule language cannot express a rule of TASO."""


@dataclass(frozen=True)
class Operator:
    """One ONNX operator.

    Attributes:
      op_type: ONNX's name.
      inputs, outputs: names of tensors.
      axis: the axis of Concat and Split, as TASO counts it.
      rank: TASO's PM_NUMDIM of Concat and Transpose: the rank of tensors for which `axis` or `perm` is meant.
      perm: the permutation of Transpose.
      window: the stride, padding mode and kernel of Conv. Convolutions with equal windows have the same attributes,
        except the group, which follows from the shapes.
      scalar: whether the second operand of Mul has one element (TASO's OP_MUL).
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    axis: int | None = None
    rank: int | None = None
    perm: tuple[int, ...] | None = None
    window: tuple[int, ...] | None = None
    scalar: bool = False

    @property
    def kind(self) -> tuple[object, ...]:
        """A key that is equal for operators that compute the same from the same operands."""
        return self.op_type, self.axis, self.rank, self.perm, self.window, self.scalar, len(self.outputs)


@dataclass(frozen=True)
class Substitution:
    """A rule over named tensors.

    Attributes:
      index: position in TASO's file.
      variables: external inputs, `x1` for TASO's -1, in ascending order.
      source, target: operators, producers first.
      outputs: results that both sides compute and name alike.
      rank: the rank of the rule's tensors in TASO, to which axes refer; None if the rule does not fix it. All operands
        of TASO's operators have the same rank.
    """

    index: int
    variables: tuple[str, ...]
    source: tuple[Operator, ...]
    target: tuple[Operator, ...]
    outputs: tuple[str, ...]
    rank: int | None

    @property
    def from_front(self) -> bool:
        """Whether axes count from the front.

        They do with convolutions, whose first axes have a meaning; in other rules the last axes have one.
        """
        return any(operator.op_type == "Conv" for operator in (*self.source, *self.target))

    @property
    def combines(self) -> bool:
        """Whether operands of the source may broadcast."""
        return any(operator.op_type in ("Add", "Mul", "MatMul") for operator in self.source)

    def axis(self, operator: Operator, rank: int) -> int:
        """Returns the axis of `operator` on tensors of rank `rank`, which may have more axes than those of TASO."""
        assert operator.axis is not None and self.rank is not None  # checked when the rule was read
        return operator.axis if self.from_front else operator.axis - self.rank + rank

    def operators(self, op_type: str) -> list[Operator]:
        """Returns the operators of the source that have this type."""
        return [operator for operator in self.source if operator.op_type == op_type]


LARGEST_RANK = 8
"""TASO's MAX_DIM."""
COMMUTATIVE = frozenset(["Add", "Mul"])
_UNARY = {OpType.RELU: "Relu", OpType.SIGMOID: "Sigmoid", OpType.TANH: "Tanh"}
_BINARY = {OpType.EW_ADD: "Add", OpType.EW_MUL: "Mul", OpType.MUL: "Mul", OpType.MATMUL: "MatMul"}
_ACTIVATIONS = {0: None, 1: "Sigmoid", 2: "Relu", 3: "Tanh"}
_WINDOW = tuple(ParameterKey[name] for name in ("STRIDE_H", "STRIDE_W", "PAD"))
_KERNEL = tuple(ParameterKey[name] for name in ("KERNEL_H", "KERNEL_W"))  # TASO reads it from the weight instead


def substitution(rule: TasoRule) -> Substitution:
    """Returns `rule` in ONNX operators.

    Raises:
      InexpressibleError: if an operator or a parameter has no counterpart, or the two sides do not fit together.
    """
    if not rule.outputs:
        raise InexpressibleError("it replaces nothing: no output of its source is mapped to one of its target")
    replaced, replacing = ({pair[side] for pair in rule.outputs} for side in (0, 1))
    if len(replaced) < len(rule.outputs) or len(replacing) < len(rule.outputs):
        raise InexpressibleError("an output is mapped twice; each result of the source needs one of the target's own")
    names = {target: _name("s", source) for source, target in rule.outputs}
    source = tuple(_side(rule.source, "s", {}))
    target = tuple(_side(rule.target, "d", names))
    variables = _external(source)
    unknown = [name for name in _external(target) if name not in variables]
    if unknown:
        raise InexpressibleError(f"its target reads {', '.join(unknown)}, which its source does not")
    outputs = tuple(_name("s", pair[0]) for pair in rule.outputs)
    return Substitution(rule.index, variables, source, target, outputs, _rank([*source, *target]))


def _rank(operators: Sequence[Operator]) -> int | None:
    ranks = {operator.rank for operator in operators if operator.rank is not None}
    if len(ranks) > 1:
        raise InexpressibleError(f"it has operators for tensors of ranks {sorted(ranks)}, which cannot be connected")
    types = {operator.op_type for operator in operators}
    rank = min(ranks, default=4 if "Conv" in types else 2 if "MatMul" in types else None)
    for operator in operators:
        if operator.axis is not None and not 0 <= operator.axis < (rank or 0):
            raise InexpressibleError(f"a {operator.op_type} along axis {operator.axis} of tensors of rank {rank}")
    return rank


def _external(side: Sequence[Operator]) -> tuple[str, ...]:
    names = {name for operator in side for name in operator.inputs if name.startswith("x")}
    return tuple(sorted(names, key=lambda name: int(name[1:])))


def _name(prefix: str, ref: TensorRef) -> str:
    if ref.operator < 0:
        return f"x{-ref.operator}"
    return f"{prefix}{ref.operator}" + (f"_{ref.port}" if ref.port else "")


def _side(operators: Sequence[TasoOperator], prefix: str, names: Mapping[TensorRef, str]) -> Iterator[Operator]:
    def name(ref: TensorRef) -> str:
        return names.get(ref) or _name(prefix, ref)

    for position, taso in enumerate(operators):
        inputs = tuple(name(ref) for ref in taso.inputs)
        outputs = tuple(name(TensorRef(position, port)) for port in range(taso.num_outputs))
        operator = _operator(taso, inputs, outputs)
        activation = _ACTIVATIONS.get(taso.parameters.get(ParameterKey.ACTI, 0), "")
        if activation == "":
            raise InexpressibleError(f"activation {taso.parameters[ParameterKey.ACTI]} of {_label(taso)} is unknown")
        if activation is None:
            yield operator
        else:
            linear = (f"{prefix}{position}_linear",)
            yield replace(operator, outputs=linear)
            yield Operator(activation, linear, outputs)


def _operator(taso: TasoOperator, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Operator:
    if taso.type is OpType.CONCAT:
        axis, rank = _parameter(taso, ParameterKey.AXIS), _parameter(taso, ParameterKey.NUMDIM)
        if not inputs or not 0 <= axis < rank <= LARGEST_RANK:
            raise InexpressibleError(f"{_label(taso)} of {len(inputs)} tensors of rank {rank} along axis {axis}")
        return Operator("Concat", inputs, outputs, axis=axis, rank=rank)
    if taso.type in _BINARY or taso.type is OpType.CONV2D:
        _expect_inputs(taso, 2)
    elif taso.type in _UNARY or taso.type in (OpType.SPLIT, OpType.TRANSPOSE):
        _expect_inputs(taso, 1)
    else:
        raise InexpressibleError(f"{_label(taso)} has no counterpart in the rule language")
    match taso.type:
        case OpType.CONV2D:
            kernel = tuple(taso.parameters.get(key, 0) for key in _KERNEL)
            return Operator("Conv", inputs, outputs, window=(*(_parameter(taso, key) for key in _WINDOW), *kernel))
        case OpType.SPLIT:
            return Operator("Split", inputs, outputs, axis=_parameter(taso, ParameterKey.AXIS))
        case OpType.TRANSPOSE:
            perm = _permutation(_parameter(taso, ParameterKey.PERM), _parameter(taso, ParameterKey.NUMDIM))
            return Operator("Transpose", inputs, outputs, rank=len(perm), perm=perm)
        case OpType.MUL:
            return Operator("Mul", inputs, outputs, scalar=True)
    return Operator(_UNARY.get(taso.type) or _BINARY[taso.type], inputs, outputs)


def _permutation(code: int, rank: int) -> tuple[int, ...]:
    """Returns the axes that TASO packs into one number, as digits in base `rank`."""
    if not 1 <= rank <= LARGEST_RANK:
        raise InexpressibleError(f"a transpose of tensors of rank {rank}")
    perm = tuple(code // rank ** (rank - 1 - axis) % rank for axis in range(rank))
    if sorted(perm) != list(range(rank)) or code >= rank**rank:
        raise InexpressibleError(f"{code} is no permutation of {rank} axes")
    return perm


def _parameter(taso: TasoOperator, key: ParameterKey) -> int:
    if key not in taso.parameters:
        raise InexpressibleError(f"{_label(taso)} lacks its parameter PM_{key.name}")
    return taso.parameters[key]


def _expect_inputs(taso: TasoOperator, count: int) -> None:
    if len(taso.inputs) != count:
        raise InexpressibleError(f"{_label(taso)} takes {count} inputs, got {len(taso.inputs)}")


def _label(taso: TasoOperator) -> str:
    return f"OP_{taso.type.name}"


Renaming = Mapping[str, str]


@dataclass(frozen=True)
class Term:
    """A variable (`operator` is None, `variable` is the name), or output `port` of an operator on terms."""

    operator: Operator | None
    operands: tuple[Term, ...] = ()
    port: int = 0
    variable: str = ""

    @cached_property
    def skeleton(self) -> str:
        """The term as text, without the names of its variables and the order of commutative operands."""
        if self.operator is None:
            return "x"
        skeletons = [operand.skeleton for operand in self.operands]
        return f"{self.operator.kind}.{self.port}({', '.join(_ordered(self.operator, skeletons))})"

    @cached_property
    def canonical(self) -> str:
        """The term as text, without the order of commutative operands: equal for terms of the same computation."""
        if self.operator is None:
            return self.variable
        texts = [operand.canonical for operand in self.operands]
        return f"{self.operator.kind}.{self.port}({', '.join(_ordered(self.operator, texts))})"

    def __str__(self) -> str:
        if self.operator is None:
            return self.variable
        axis = "" if self.operator.axis is None else f"; {self.operator.axis}"
        perm = "" if self.operator.perm is None else f"; {list(self.operator.perm)}"
        port = f"[{self.port}]" if len(self.operator.outputs) > 1 else ""
        return f"{self.operator.op_type}({', '.join(map(str, self.operands))}{axis}{perm}){port}"


def _ordered(operator: Operator, texts: list[str]) -> list[str]:
    return sorted(texts) if operator.op_type in COMMUTATIVE else texts


def output_terms(substitution: Substitution) -> list[tuple[Term, Term]]:
    """Returns, for each output of the rule, the terms that the source and the target compute."""
    sides = [_terms(side) for side in (substitution.source, substitution.target)]
    return [(sides[0][name], sides[1][name]) for name in substitution.outputs]


def _terms(side: Sequence[Operator]) -> dict[str, Term]:
    terms: dict[str, Term] = {}
    for operator in side:
        operands = tuple(terms.get(name) or Term(None, variable=name) for name in operator.inputs)
        terms.update((name, Term(operator, operands, port)) for port, name in enumerate(operator.outputs))
    return terms


def changes_nothing(substitution: Substitution) -> bool:
    """Returns whether both sides are the same graph up to the order of commutative operands."""
    return all(source.canonical == target.canonical for source, target in output_terms(substitution))


def same_rule(a: Substitution, b: Substitution) -> bool:
    """Returns whether the rules differ only in names and in the order of commutative operands and of outputs."""
    of_a, of_b = output_terms(a), output_terms(b)
    if len(of_a) != len(of_b) or _skeletons(of_a) != _skeletons(of_b):
        return False
    return any(
        True
        for ordered in permutations(of_b)
        for _ in _unify([term for pair in of_a for term in pair], [term for pair in ordered for term in pair], {})
    )


def _skeletons(pairs: Sequence[tuple[Term, Term]]) -> list[tuple[str, str]]:
    return sorted((source.skeleton, target.skeleton) for source, target in pairs)


def _unify(left: Sequence[Term], right: Sequence[Term], renaming: Renaming) -> Iterator[Renaming]:
    """Yields the one-to-one renamings of variables that turn the terms of `left` into those of `right`."""
    if not left:
        yield renaming
        return
    a, b = left[0], right[0]
    if a.skeleton != b.skeleton:
        return
    if a.operator is None:
        known = renaming.get(a.variable)
        if known == b.variable or (known is None and b.variable not in renaming.values()):
            yield from _unify(left[1:], right[1:], {**renaming, a.variable: b.variable})
        return
    orders = permutations(b.operands) if a.operator.op_type in COMMUTATIVE else [b.operands]
    for operands in orders:
        yield from _unify([*a.operands, *left[1:]], [*operands, *right[1:]], renaming)
