"""Claims about operators of random schemas, as people make them: that two commute, that one absorbs another one …

Most claims are wrong. A claim is a rule, and a way to draw models that its source matches. Operators and attributes
come from `onnx.defs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from taso_ext import RuleSet

OPSET = 21
NUMBERS = (0.0, -0.5, 0.5, 1.0, -1.0, 2.0, -2.0, 0.01, 3.0)
"""Corner values of attributes that are real numbers; the default of the schema is drawn as well."""
WHOLE = (-1, 0, 1)
TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Pow")
_RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")


@dataclass(frozen=True)
class Term:
    """An operator on terms or variables.

    Attributes:
      op: the operator.
      operands: terms, or names of variables.
      attributes: how the rule words its attributes: "" for no list, "@r" for a group, or `alpha=a`.
    """

    op: str
    operands: tuple[Any, ...]
    attributes: str = ""


@dataclass(frozen=True)
class Claim:
    """One rule: `source` may be replaced by `target`, which may be a variable.

    Attributes:
      condition: what the rule demands of the number `c`, a weight: a relation and a number; None if there is no such
        weight.
    """

    name: str
    source: Term
    target: Any
    condition: tuple[str, float] | None = None

    @property
    def variables(self) -> list[str]:
        return sorted(_variables(self.source) - ({"c"} if self.condition else set()))

    @property
    def text(self) -> str:
        """The rule as a rule file words it, without a proof."""
        lines = [f"rule {self.name}"]
        declared = "; ".join(f"{name}: float[...s]" if self._alike else f"{name}: float" for name in self.variables)
        lines.append(f"  var    {declared}{'; c: weight float[]' if self.condition else ''}")
        for section, side in (("source", self.source), ("target", self.target)):
            lines += [f"  {section} {line}" for line in _statements(side, section[0])]
            if section == "source" and self.condition:
                lines.append(f"  where  value(c) {self.condition[0]} {self.condition[1]}")
        return "\n".join(lines) + "\n"

    @property
    def _alike(self) -> bool:
        return len(self.variables) > 1

    def models(self, rng: np.random.Generator) -> Iterator[tuple[onnx.ModelProto, dict[str, np.ndarray]]]:
        """Yields models that are the source, with inputs: finite, of moderate size, with ties and zeros."""
        while True:
            dtype = (np.float32, np.float64)[rng.integers(2)]
            dims = [[3, 4], [5], [2, 3, 2], [1, 6]][rng.integers(4)]
            chosen: dict[str, dict[str, Any]] = {}
            nodes: list[onnx.NodeProto] = []
            _emit(self.source, "y", nodes, rng, chosen)
            kind = TYPES[dtype]
            values = [helper.make_tensor_value_info(name, kind, dims) for name in (*self.variables, "y")]
            weights = [numpy_helper.from_array(np.asarray(self._number(rng), dtype), "c")] if self.condition else []
            graph = helper.make_graph(nodes, "witness", values[:-1], values[-1:], weights)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
            yield model, {name: moderate(rng, dims).astype(dtype) for name in self.variables}

    def seems_true(self, rng: np.random.Generator) -> bool:
        """Returns whether both sides agree on one tensor of normal numbers, with default attributes."""
        feeds = {name: rng.standard_normal([2, 3, 4]) for name in self.variables}
        if self.condition:
            feeds["c"] = np.asarray(self.condition[1])
        results = []
        for side in (self.source, self.target):
            nodes: list[onnx.NodeProto] = []
            _emit(side if isinstance(side, Term) else Term("Identity", (side,)), "y", nodes, None, {})
            values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in (*feeds, "y")]
            graph = helper.make_graph(nodes, "side", values[:-1], values[-1:])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
            try:
                with np.errstate(all="ignore"):
                    results.append(ReferenceEvaluator(model).run(None, feeds)[0])
            except Exception:  # onnx.reference raises what NumPy does
                return False
        return results[0].shape == results[1].shape and np.allclose(*results, rtol=1e-6, equal_nan=True)

    def _number(self, rng: np.random.Generator) -> float:
        """Returns a number that fulfils the condition."""
        assert self.condition is not None
        relation, number = self.condition
        further = 0.0 if relation == "==" or rng.random() < 0.3 else float(rng.choice([0.25, 1.0, 3.0]))
        return number - further if relation == "<=" else number + further


def _variables(term: Any) -> set[str]:
    return {term} if isinstance(term, str) else set().union(*map(_variables, term.operands))


def _statements(side: Any, stem: str) -> list[str]:
    if isinstance(side, str):
        return [f"y = {side}"]
    lines: list[str] = []

    def name_of(term: Any) -> str:
        if isinstance(term, str):
            return term
        name = f"{stem}{len(lines)}_{term.op.lower()}"
        operands = ", ".join(map(name_of, term.operands))
        lines.append(f"{name} = {_call(term, operands)}")
        return name

    operands = ", ".join(map(name_of, side.operands))
    return [*lines, f"y = {_call(side, operands)}"]


def _call(term: Term, operands: str) -> str:
    return f"{term.op}({operands}{f'; {term.attributes}' if term.attributes else ''})"


def _emit(
    term: Term,
    name: str,
    nodes: list[onnx.NodeProto],
    rng: np.random.Generator | None,
    chosen: dict[str, dict[str, Any]],
) -> None:
    """Adds the nodes of a term; without `rng`, all attributes have their defaults."""
    operands = []
    for place, operand in enumerate(term.operands):
        if not isinstance(operand, str):
            inner, operand = operand, f"{name}{place}"
            _emit(inner, operand, nodes, rng, chosen)
        operands.append(operand)
    # One wording of attributes stands for one choice: two operators with "@r" have the same attributes.
    key = f"{term.op} {term.attributes}" if term.attributes else f"{term.op} {len(nodes)}"
    attributes = chosen.setdefault(key, _attributes(term.op, rng) if rng else {})
    nodes.append(helper.make_node(term.op, operands, [name], **attributes))


def _attributes(op: str, rng: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, attribute in onnx.defs.get_schema(op, OPSET).attributes.items():
        if rng.random() < 0.3:
            continue  # the default
        if attribute.type == onnx.defs.OpSchema.AttrType.FLOAT:
            found[name] = float(NUMBERS[rng.integers(len(NUMBERS))])
        else:
            found[name] = int(WHOLE[rng.integers(len(WHOLE))])
    return found


def moderate(rng: np.random.Generator, dims: Sequence[int]) -> np.ndarray:
    """Returns finite numbers of moderate size, in one of several ways: normal ones, ties, equal ones, positive ones."""
    kind = rng.integers(5)
    if kind == 0:
        return rng.standard_normal(dims)
    if kind == 1:
        return rng.integers(-2, 3, dims).astype(float)
    if kind == 2:
        return np.full(dims, rng.choice([0.0, 1.0, -1.0, 0.5, 2.0]))
    if kind == 3:
        return rng.uniform(-8, 8, dims)
    return np.abs(rng.standard_normal(dims)) + 0.1


@functools.cache
def operators() -> list[str]:
    """Returns the operators of schemas with one float operand and one result of its type and shape.

    They have only real and whole attributes, all of which have defaults, and the rule language knows them.
    """
    found = []
    for schema in onnx.defs.get_all_schemas():
        if schema.domain or schema.deprecated or schema.name.startswith(_RANDOM) or len(schema.outputs) != 1:
            continue
        kinds = [onnx.defs.OpSchema.AttrType.FLOAT, onnx.defs.OpSchema.AttrType.INT]
        if any(each.required or each.type not in kinds for each in schema.attributes.values()):
            continue
        operands = list(schema.inputs)[:1]
        types = {each.type_str for each in (*operands, *schema.outputs)}
        if len(operands) < 1 or not schema.min_input <= 1 <= schema.max_input or len(types) > 1:
            continue
        if _keeps_shape(schema.name):
            found.append(schema.name)
    return found


def _keeps_shape(op: str) -> bool:
    value = helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3, 2])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 2])
    graph = helper.make_graph([helper.make_node(op, ["a"], ["y"])], "g", [value], [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        RuleSet.parse(
            f"rule known\n  var a: float\n  source t = {op}(a); y = Neg(t)\n  target t = Neg(a); y = Neg(t)\n"
        )
    except Exception:  # shape inference and the rule reader raise different errors
        return False
    return True


def claim(seed: int) -> Claim:
    """Returns claim number `seed`: mostly one that a quick look does not refute."""
    rng = np.random.default_rng(seed)
    looks = 60 if rng.random() < 0.8 else 1
    for _ in range(looks):
        drawn = _drawn(rng, seed)
        if drawn.seems_true(rng):
            break
    return drawn


def _drawn(rng: np.random.Generator, seed: int) -> Claim:
    f, g = (operators()[rng.integers(len(operators()))] for _ in range(2))
    p, q = (_BINARY[rng.integers(len(_BINARY))] for _ in range(2))
    words = {op: _wording(rng, op) for op in (f, g)}

    def on(op: str, operand: Any) -> Term:
        return Term(op, (operand,), words[op])

    makers: tuple[Callable[[], tuple[str, Term, Any]], ...] = (
        lambda: ("idempotent", on(f, on(f, "a")), on(f, "a")),
        lambda: ("first-absorbs", on(g, on(f, "a")), on(f, "a")),
        lambda: ("last-absorbs", on(g, on(f, "a")), on(g, "a")),
        lambda: ("cancel", on(g, on(f, "a")), "a"),
        lambda: ("commute", on(g, on(f, "a")), on(f, on(g, "a"))),
        lambda: ("instead", on(f, "a"), on(g, "a")),
        lambda: ("through", on(f, Term(p, ("a", "b"))), Term(p, (on(f, "a"), on(f, "b")))),
        lambda: ("out-of", Term(p, (on(f, "a"), "b")), on(f, Term(p, ("a", "b")))),
        lambda: ("swap", Term(p, ("a", "b")), Term(p, ("b", "a"))),
        lambda: ("regroup", Term(p, (Term(q, ("a", "b")), "c")), Term(p, ("a", Term(q, ("b", "c"))))),
        lambda: ("spread", Term(p, ("a", Term(q, ("b", "c")))), Term(q, (Term(p, ("a", "b")), Term(p, ("a", "c"))))),
        lambda: ("undo", Term(p, (Term(q, ("a", "b")), "b")), "a"),
        lambda: ("with-itself", Term(p, (on(f, "a"), "a")), on(g, "a")),
        lambda: ("bounded", Term(p, (on(f, "a"), "c")), on(f, "a")),
        lambda: ("constant", Term(p, ("a", "c")), "a"),
        lambda: ("constant-inside", on(f, Term(p, ("a", "c"))), on(f, "a")),
        lambda: ("out-of-constant", on(f, Term(p, ("a", "c"))), Term(p, (on(f, "a"), "c"))),
        lambda: ("same", Term(p, ("a", on(f, "a"))), Term(q, ("a", on(f, "a")))),
    )
    name, source, target = makers[rng.integers(len(makers))]()
    # People forget the attributes of the target.
    bound = {term.op for term in _terms(source)} if rng.random() < 0.8 else set()
    condition = None
    if "c" in _variables(source) and name not in ("regroup", "spread"):
        condition = (("==", "<=", ">=")[rng.integers(3)], float(NUMBERS[rng.integers(len(NUMBERS))]))
    return Claim(f"{name}-{seed}", source, _without_unbound(target, bound), condition)


def _wording(rng: np.random.Generator, op: str) -> str:
    """Returns one of three ways to word the attributes of an operator that has any."""
    attributes = list(onnx.defs.get_schema(op, OPSET).attributes)
    return ["", "@r", f"{attributes[0]}={op.lower()}"][rng.integers(3)] if attributes else ""


def _terms(side: Any) -> Iterator[Term]:
    if isinstance(side, Term):
        yield side
        for operand in side.operands:
            yield from _terms(operand)


def _without_unbound(side: Any, bound: set[str]) -> Any:
    """Returns a side in which operators that the source lacks have their default attributes."""
    if isinstance(side, str):
        return side
    operands = tuple(_without_unbound(each, bound) for each in side.operands)
    return Term(side.op, operands, side.attributes if side.op in bound else "")
