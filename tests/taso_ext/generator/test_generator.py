"""The rule generator finds the known laws of a small domain, no false ones, and the same ones every time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taso_ext import _generator
from taso_ext.generator.domains import CONVOLUTIONS, DOMAINS, ELEMENTWISE, LINEAR, MATRICES
from taso_ext.generator.grid import Domain, Leaf, operator
from taso_ext.generator.laws import Law, Term, partners_of, read_law, rewritings
from taso_ext.generator.selection import examples
from taso_ext.generator.wording import InexpressibleError, Wording, rule_text, wordings


def found(domain: Domain, *, seed: int = 0, threads: int = 1, most: int | None = None) -> list[Law]:
    """Returns the laws that the generator finds in a domain."""
    result = _generator.enumerate(
        domain.native(seed=seed, threads=threads, most_operators=most), [], lambda level, share: None
    )
    return [read_law(domain, law) for law in result["laws"]]


def written(law: Law) -> frozenset[str]:
    """Returns both sides of a law as text, without attributes."""
    return frozenset(_written(side) for side in (law.left, law.right))


def _written(term: Term) -> str:
    if term.is_leaf:
        return f"x{term.number}" if term.is_variable else term.head
    return f"{term.head.split('[')[0]}({', '.join(_written(operand) for operand in term.operands)})"


def known(*sides: str) -> frozenset[str]:
    return frozenset(sides)


SMALL = Domain(
    "small",
    {"m": (2, 3, 5), "k": (3, 5, 2), "n": (4, 2, 3), "p": (5, 4, 6)},
    (
        Leaf("a", ("m", "k")),
        Leaf("b", ("m", "k")),
        Leaf("c", ("k", "n")),
        Leaf("d", ("k", "n")),
        Leaf("e", ("n", "p")),
        Leaf("s", ()),
    ),
    (
        operator("Relu"),
        operator("Split", axis=1, first="k", port=0),
        operator("Split", axis=1, first="k", port=1),
        operator("MatMul"),
        operator("Add"),
        operator("Mul"),
        operator("Concat", axis=1),
    ),
)
LAWS = {
    "matrix products are associative": known("MatMul(MatMul(x0, x1), x2)", "MatMul(x0, MatMul(x1, x2))"),
    "they distribute over sums": known("Add(MatMul(x0, x1), MatMul(x0, x2))", "MatMul(x0, Add(x1, x2))"),
    "they take scalars": known("MatMul(Mul(x0, x1), x2)", "MatMul(x0, Mul(x2, x1))"),
    "they join": known("Concat(MatMul(x0, x1), MatMul(x0, x2))", "MatMul(x0, Concat(x1, x2))"),
    "a split takes a concatenation apart": known("Split(Concat(x0, x1))", "x1"),
    "a function acts on each part": known("Concat(Relu(x0), Relu(x1))", "Relu(Concat(x0, x1))"),
    "a rectifier is idempotent": known("Relu(Relu(x0))", "Relu(x0)"),
}


@pytest.fixture(scope="module")
def small_laws() -> list[Law]:
    return found(SMALL)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_known_laws_are_found(law: frozenset[str], small_laws: list[Law]) -> None:
    assert law in {written(each) for each in small_laws}


def test_convolutions_are_linear_in_both_operands() -> None:
    domain = replace(
        CONVOLUTIONS,
        name="linear convolutions",
        operators=tuple(each for each in CONVOLUTIONS.operators if each.kind in ("Conv", "Add")),
    )
    laws = {written(law) for law in found(domain)}
    assert known("Add(Conv(x0, x1), Conv(x0, x2))", "Conv(x0, Add(x1, x2))") in laws
    assert known("Add(Conv(x0, x1), Conv(x2, x1))", "Conv(Add(x0, x2), x1)") in laws


@pytest.mark.parametrize("domain", [SMALL, MATRICES, ELEMENTWISE, LINEAR], ids=lambda domain: domain.name)
def test_no_law_is_false(domain: Domain) -> None:
    """NumPy evaluates both sides on floats, with functions that the generator does not know."""
    for law in found(domain, most=2):
        generator = np.random.default_rng(7)
        variables: dict[int, np.ndarray[Any, Any]] = {}
        left, right = (_evaluate(law, side, variables, generator) for side in (law.left, law.right))
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9, err_msg=f"{_written(law.left)}")


def _evaluate(law: Law, term: Term, variables: dict[int, Any], generator: np.random.Generator) -> Any:
    dims = term.shapes[-1]
    if term.is_variable:
        return variables.setdefault(term.number, generator.uniform(0.5, 2.0, dims) * generator.choice([-1, 1], dims))
    if term.is_leaf:
        return {"zero": np.zeros, "one": np.ones, "identity": lambda dims: np.eye(dims[0])}[term.head](dims)
    each, operands = law.operator(term), [_evaluate(law, operand, variables, generator) for operand in term.operands]
    match each.kind:
        case "Split":
            cut = law.domain.extent(each["first"], law.domain.sets - 1)
            return np.split(operands[0], [cut], axis=each["axis"])[each["port"]]
        case "Concat":
            return np.concatenate(operands, axis=each["axis"])
        case "Transpose":
            return operands[0].transpose(each["perm"])
        case "ReduceSum" | "ReduceMean" | "ReduceMax":
            fold = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max}[each.kind]
            return fold(operands[0], axis=each["axes"], keepdims=bool(each["keepdims"]))
    return FUNCTIONS[each.kind](*operands)


FUNCTIONS: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Scale": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "MatMul": np.matmul,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Function": lambda x: np.cos(x) + 0.3 * x,
    "ZeroFixing": np.tanh,
}


def test_laws_do_not_depend_on_threads() -> None:
    assert found(SMALL, threads=1) == found(SMALL, threads=3)


def test_laws_do_not_depend_on_the_seed() -> None:
    """Random elements could only make expressions equal by chance, and they make none equal."""
    assert found(SMALL, seed=0) == found(SMALL, seed=1)


def test_laws_of_another_grid_are_not_found_again(small_laws: list[Law]) -> None:
    first = _generator.enumerate(SMALL.native(seed=0, threads=1), [], lambda level, share: None)
    again = _generator.enumerate(SMALL.native(seed=0, threads=1), first["laws"], lambda level, share: None)
    assert len(again["laws"]) < len(small_laws) / 10


def test_progress_can_stop_it() -> None:
    def stop(level: int, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _generator.enumerate(MATRICES.native(seed=0, threads=2), [], stop)


def test_most_laws_are_rules_that_keep_the_function(small_laws: list[Law]) -> None:
    partners, rules = partners_of(small_laws), set()
    for law in small_laws:
        for rewriting in rewritings(law, partners):
            for wording in wordings(law):
                try:
                    text = rule_text(rewriting, wording, "generated")
                except InexpressibleError:
                    continue
                if examples(text, instances=3):
                    rules.add(text)
                    break
    merged = [text for text in rules if text.count("MatMul(") == 3 and "y, z = Split(" in text]
    assert len(rules) > len(small_laws) / 2
    assert merged, "two products of one matrix are to become one product that is split"


def test_wordings_that_are_too_general_are_refuted() -> None:
    """The reshape of a scalar can be dropped, but not that of [2, 1] to [1, 2] before a sum with [2, 2]."""
    domain = Domain(
        "scalars",
        {"m": (2, 3, 4), "k": (3, 4, 2)},
        (Leaf("x", ("m", "k")), Leaf("s", ())),
        (operator("Insert", axis=0), operator("Add")),
    )
    (law,) = [law for law in found(domain) if written(law) == known("Add(x0, Insert(x1))", "Add(x0, x1)")]
    (rewriting,) = [each for each in rewritings(law, {}) if each.source == (law.left,)]
    too_general = rule_text(rewriting, Wording("open", free_scalars=True), "generated")
    right = rule_text(rewriting, Wording("open"), "generated")
    assert examples(too_general, instances=96) is None
    assert examples(right, instances=96)


def test_extents_differ_between_symbols() -> None:
    """The generator could not distinguish two symbols with equal extents in all shape sets."""
    for domain in DOMAINS:
        values = [extents for extents in domain.symbols.values() if isinstance(extents[0], int)]
        assert len(set(values)) == len(values), domain.name
        assert domain.sets >= 3
        assert min(min(extents) for extents in values) > 1
