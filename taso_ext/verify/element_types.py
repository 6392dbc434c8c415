"""The element types in which a rule is tested, and the conditions that keep its matches to them.

A variable declared `any` may be of every type, but operators such as Max or And compute something else in each. So the
types that a rule admits are inferred from the schemas of its operators (ONNX's `onnx.defs`), on both sides. Variables
whose types have to be equal form a class. A class is tested with floating numbers or with truth values, whichever the
operators admit (repeats, sizes and indices with int64), and the proof's domain says which: `dtype(p) == "bool"`. If the
operators of one class admit integers too, the rule is run on every integer type, and the domain allows those on which
both sides agree.

A rule that only adds, multiplies and moves elements (`RING`) is tested in float32 and holds for every type, because
such an identity holds in every ring, that of integers modulo 2⁶⁴ included.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import onnx
from onnx import TensorProto

from taso_ext.verify.numeric.discrete import INTEGERS
from taso_ext.verify.rule_reader import RuleText, Statement
from taso_ext.verify.valued_operands import valued_variables

RING = frozenset(
    [
        *("Add", "Sub", "Mul", "Neg", "Sum", "MatMul", "Conv", "ReduceSum", "Pad"),
        *("Identity", "Concat", "Split", "Slice", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Tile", "DepthToSpace", "SpaceToDepth", "Gather"),
    ]
)
"""Operators that only add, multiply or move elements, as is possible in every ring."""

FLOATING = ("float", "float16", "double", "bfloat16")
"""The types that a variable declared `float` may have."""
BOOL = ("bool",)
WHOLE = ("int64",)
"""The type of repeats and sizes, and the usual one of indices."""
_CONSTANTS = frozenset(["Constant", "ConstantOfShape", "EyeLike"])


@dataclass(frozen=True)
class TypeClass:
    """Variables declared `any` whose types have to be equal.

    Attributes:
      variables: their names, in the order of the rule.
      kind: the types that one test stands for: `FLOATING`, `BOOL` or `WHOLE`.
      integers: the integer types that the operators admit as well.
    """

    variables: tuple[str, ...]
    kind: tuple[str, ...]
    integers: tuple[str, ...]

    def dtypes(self, type_name: str) -> dict[str, int]:
        """Returns a type for all variables, as numbers of TensorProto.DataType."""
        return dict.fromkeys(self.variables, TensorProto.DataType.Value(type_name.upper()))

    def condition(self, integers: Sequence[str]) -> str:
        """Returns the condition that keeps matches to `kind` and to the integer types that were tested too."""
        return " or ".join(f'dtype({self.variables[0]}) == "{each}"' for each in (*self.kind, *integers))


class UntypedRuleError(ValueError):
    """No types are known in which a rule can be tested."""


def needs_types(rule: RuleText) -> bool:
    """Returns whether a rule computes with tensors of any type in a way that depends on the type."""
    return bool(_open_variables(rule)) and not rule.operator_names <= RING


def _open_variables(rule: RuleText) -> list[str]:
    return [name for name, variable in rule.variables.items() if not variable.floating]


def type_classes(rule: RuleText) -> list[TypeClass]:
    """Returns the classes of the variables that are declared `any`.

    A class is tested with floating numbers if the operators admit them, else with truth values; repeats, sizes and
    indices are tested with int64.

    Raises:
      UntypedRuleError: if the operators admit none of them for some variable, if the types of an operator are not
        known, or if the variable is a list, whose type a condition cannot name.
    """
    classes = _Classes()
    for name, variable in rule.variables.items():
        classes.restrict(name, frozenset(FLOATING) if variable.floating else None)
    for statement in (*rule.source, *rule.target):
        for op in rule.operators.get(statement.op, (statement.op,)):
            _unify(classes, rule, statement, op)
    members: dict[str, list[str]] = {}
    for name in _open_variables(rule):
        members.setdefault(classes.root(name), []).append(name)
    return [_type_class(rule, names, classes.types.get(root)) for root, names in members.items()]


def _type_class(rule: RuleText, names: Sequence[str], allowed: frozenset[str] | None) -> TypeClass:
    named = [name for name in names if not rule.variables[name].term.starred]
    if not named:
        raise UntypedRuleError(
            f"it takes the list {names[0]!r} of any dtype, but only types of tensors can be recorded"
        )
    for kind in (FLOATING, BOOL, *([WHOLE] if valued_variables(rule).intersection(names) else [])):
        if allowed is None or allowed.intersection(kind):
            integers = tuple(each for each in INTEGERS if allowed is None or each in allowed) if kind != WHOLE else ()
            return TypeClass((*named, *(name for name in names if name not in named)), kind, integers)
    raise UntypedRuleError(
        f"it takes {names[0]!r} of any dtype, but its operators admit neither truth values nor floating numbers there, "
        "and it is tested with these"
    )


@dataclass
class _Classes:
    """Names of tensors whose types have to be equal, as a forest, and the types that each class may have."""

    parents: dict[str, str] = field(default_factory=dict)
    types: dict[str, frozenset[str] | None] = field(default_factory=dict)  # None: all types

    def root(self, name: str) -> str:
        while self.parents.get(name, name) != name:
            name = self.parents[name]
        return name

    def allowed(self, name: str) -> frozenset[str] | None:
        return self.types.get(self.root(name))

    def restrict(self, name: str, types: frozenset[str] | None) -> None:
        root = self.root(name)
        known = self.types.get(root)
        self.types[root] = types if known is None else known if types is None else known & types

    def join(self, a: str, b: str) -> None:
        first, second = self.root(a), self.root(b)
        if first != second:
            self.parents[second] = first
            self.restrict(first, self.types.get(second))


def _unify(classes: _Classes, rule: RuleText, statement: Statement, op: str) -> None:
    """Applies what the schema of an operator says about the types of its operands and results."""
    operands, results = ([term.name for term in terms] for terms in (statement.arguments, statement.results))
    if not op:
        classes.join(operands[0], results[0])
        return
    if op in _CONSTANTS:  # the engine gives them the type of the rule's first floating variable
        floating = next((name for name, variable in rule.variables.items() if variable.floating), None)
        classes.restrict(results[0], frozenset(FLOATING))
        if floating is not None:
            classes.join(floating, results[0])
        return
    if op == "Cast":
        to = statement.attributes.get("to")
        known = isinstance(to, ast.Constant) and isinstance(to.value, int)
        types = [TensorProto.DataType.Name(to.value).lower()] if known else FLOATING  # type: ignore[union-attr]
        classes.restrict(operands[0], frozenset((*FLOATING, *BOOL)))
        classes.restrict(results[0], frozenset(types))
        return
    schema = _schema(op)
    constraints = {
        each.type_param_str: frozenset(map(_plain, each.allowed_type_strs)) for each in schema.type_constraints
    }
    variables: dict[str, str] = {}
    for formal, names in ((schema.inputs, operands), (schema.outputs, results)):
        for index, name in enumerate(names):
            parameter = formal[min(index, len(formal) - 1)].type_str
            classes.restrict(name, constraints.get(parameter, frozenset([_plain(parameter)])))
            if parameter in constraints:
                classes.join(variables.setdefault(parameter, name), name)


@cache
def _schema(op: str) -> onnx.defs.OpSchema:
    domain, _, name = op.rpartition(".")
    try:
        return onnx.defs.get_schema(name, domain)
    except onnx.defs.SchemaError as error:
        raise UntypedRuleError(
            f"it takes tensors of any dtype through {op}, whose types are not known: declare its variables `float`"
        ) from error


def _plain(type_str: str) -> str:
    """Returns "float" for "tensor(float)"."""
    return type_str.removeprefix("tensor(").removesuffix(")")
