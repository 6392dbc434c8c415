"""TASO's rule files: sound rules are loaded for the shapes where they are sound, and all others are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from taso_ext import CostModel, Graph, GraphBuilder, RuleSet, State
from taso_ext.taso_rules import TasoRules, Verdict, load_taso_rules
from taso_ext.taso_rules.file import OpType, collection_class, read_taso_file
from taso_ext.taso_rules.instances import source_graphs
from taso_ext.taso_rules.substitution import Substitution, changes_nothing, same_rule, substitution
from taso_ext.verify import verify_rule
from tests.taso_ext.samples.taso_collections import (
    ASSOCIATE,
    COMMUTE,
    MERGE_CONVS,
    Op,
    Rule,
    add,
    concat,
    conv,
    matmul,
    relu,
    split,
    translated,
    transpose,
    write,
)

pytestmark = pytest.mark.xdist_group("taso rules")  # one worker, so that the module's fixtures are made once

INSTANCES = 12  # enough to refute the wrong rules of these tests; the command uses more
SHIPPED = Path(__file__).parents[4] / "shared" / "taso" / "graph_subst.pb"
needs_shipped = pytest.mark.skipif(not SHIPPED.exists(), reason="TASO's own rule file is not there")


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., TasoRules]:
    return lambda *rules: load_taso_rules(write(tmp_path / "rules.pb", *rules), instances=INSTANCES)


SOUND: dict[str, Rule] = {
    "matrix products are associative": ASSOCIATE,
    "a sum of products is a product of sums": (
        [matmul(-1, -4), matmul(-2, -4), add(0, 1)],
        [add(-1, -2), matmul(0, -4)],
        [(2, 1)],
    ),
    "products that share an operand are merged and split": (
        [matmul(-1, -4), matmul(-1, -5)],
        [concat(-4, -5, axis=1, rank=2), matmul(-1, 0), split(1, axis=1)],
        [(0, (2, 0)), (1, (2, 1))],
    ),
    "a fused activation is an operator of its own": (
        [conv(-7, -10, acti=2), conv(-8, -10, acti=2), concat(0, 1, axis=0, rank=4)],
        [concat(-7, -8, axis=0, rank=4), conv(0, -10), relu(1)],
        [(2, 2)],
    ),
    "an activation moves through a split": (
        [split(-1, axis=0), relu((0, 0)), relu((0, 1)), concat(1, 2, axis=0, rank=2)],
        [relu(-1)],
        [(3, 0)],
    ),
    "a scalar moves through a product": (
        [matmul(-1, -4), (OpType.MUL, [0, -20], {})],
        [(OpType.MUL, [-1, -20], {}), matmul(0, -4)],
        [(1, 1)],
    ),
    "an activation moves through a transpose": (
        [transpose(-1), (OpType.TANH, [0], {})],
        [(OpType.TANH, [-1], {}), transpose(0)],
        [(1, 1)],
    ),
    "convolutions keep their own windows": (
        [conv(-7, -10, stride=2), conv(-8, -11), concat(0, 1, axis=0, rank=4), relu(2)],
        [conv(-8, -11, acti=2), conv(-7, -10, stride=2, acti=2), concat(1, 0, axis=0, rank=4)],
        [(3, 2)],
    ),
}


WRONG: dict[str, Rule] = {
    "matrix products do not commute": COMMUTE,
    "Relu is not linear": ([add(-1, -2), relu(0)], [relu(-1), relu(-2), add(0, 1)], [(1, 2)]),
    "merged in the wrong order": (
        [relu(-7), relu(-8), concat(0, 1, axis=1, rank=4)],
        [concat(-8, -7, axis=1, rank=4), relu(0)],
        [(2, 1)],
    ),
    "weights of added convolutions do not add": (
        [conv(-7, -10), conv(-8, -11), add(0, 1)],
        [add(-7, -8), add(-10, -11), conv(0, 1)],
        [(2, 2)],
    ),
}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> TasoRules:
    """Loads all sound, then all wrong, then all inexpressible rules, and only once, because the proofs take long."""
    rules = (*SOUND.values(), *WRONG.values(), *(rule for rule, _ in INEXPRESSIBLE.values()))
    path = write(tmp_path_factory.mktemp("rules") / "rules.pb", *rules)
    return load_taso_rules(path, instances=INSTANCES)


@pytest.mark.parametrize("name", SOUND)
def test_sound_rule_is_loaded_and_keeps_the_function(collection: TasoRules, name: str) -> None:
    position = collection.rules.names.index(f"taso-{[*SOUND].index(name)}")
    # The verifier has to accept the written text alone as well, on graphs that the loader has not seen.
    fresh = source_graphs(translated(SOUND[name]), seed=1, draws=400)
    written = RuleSet.parse(collection.text)
    verification = verify_rule(written, position, instances=INSTANCES, other_types=False, sources=fresh)
    assert verification.ok, str(verification)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rule_is_reported_with_a_counterexample(collection: TasoRules, name: str) -> None:
    index = len(SOUND) + [*WRONG].index(name)
    assert collection.outcomes[index].verdict is Verdict.WRONG
    reason = dict(collection.rejected)[index]
    assert "exact test on x" in reason and ("modulo" in reason or "in real numbers" in reason), reason


def test_every_index_is_either_loaded_or_rejected(collection: TasoRules) -> None:
    accepted = {int(name.removeprefix("taso-")) for name in collection.rules.names}
    assert accepted == set(range(len(SOUND)))
    assert {index for index, _ in collection.rejected} == set(range(len(SOUND), len(collection.outcomes)))


INEXPRESSIBLE: dict[str, tuple[Rule, str]] = {
    "disconnected": (
        ([relu(-1), relu(-2)], [concat(-1, -2, axis=1, rank=2), relu(0), split(1, axis=1)], [(0, (2, 0)), (1, (2, 1))]),
        "the source is not connected",
    ),
    "constant": (
        ([matmul(-1, -4)], [(OpType.CONSTANT_IMM, [], {}), matmul(-1, -4), matmul(1, 0)], [(0, 2)]),
        "OP_CONSTANT_IMM has no counterpart",
    ),
    "no output": (([relu(-1)], [relu(-1)], []), "replaces nothing"),
    "output mapped twice": (
        ([relu(-1), matmul(0, -4)], [relu(-1), matmul(0, -4)], [(0, 0), (1, 0)]),
        "an output is mapped twice",
    ),
    "unknown input": (([relu(-1)], [relu(-2)], [(0, 0)]), "its target reads x2, which its source does not"),
    "unknown activation": (([matmul(-1, -4, acti=9)], [matmul(-4, -1)], [(0, 0)]), "activation 9 of OP_MATMUL"),
    "too many inputs": (([(OpType.EW_ADD, [-1, -2, -3], {})], [add(-1, -2)], [(0, 0)]), "takes 2 inputs, got 3"),
    "missing parameter": (
        ([(OpType.CONCAT, [-1, -2], {"AXIS": 0})], [relu(-1)], [(0, 0)]),
        "OP_CONCAT lacks its parameter PM_NUMDIM",
    ),
    "no permutation": (
        ([(OpType.TRANSPOSE, [-1], {"NUMDIM": 2, "PERM": 3})], [relu(-1)], [(0, 0)]),
        "3 is no permutation of 2 axes",
    ),
    "another window": (
        ([conv(-7, -10), relu(0)], [conv(-7, -10, stride=2), relu(0)], [(1, 1)]),
        "whose stride, padding and kernel no convolution of its source has",
    ),
    "split of unknown sizes": (
        ([matmul(-1, -4), relu(0)], [matmul(-1, -4), split(0, axis=1), relu((1, 0))], [(1, 2)]),
        "the sizes of a split",
    ),
    "two ranks": (
        ([concat(-1, -2, axis=1, rank=2), concat(-7, 0, axis=1, rank=4)], [relu(-1)], [(1, 0)]),
        "ranks [2, 4]",
    ),
}


@pytest.mark.parametrize(("rule", "reason"), INEXPRESSIBLE.values(), ids=INEXPRESSIBLE)
def test_inexpressible_rule_is_reported_by_index_and_reason(
    load: Callable[..., TasoRules], rule: Rule, reason: str
) -> None:
    loaded = load(rule)
    ((index, text),) = loaded.rejected
    assert (index, loaded.outcomes[0].verdict) == (0, Verdict.INEXPRESSIBLE)
    assert reason in text
    with pytest.raises(ValueError, match="None of the 1 rules"):
        _ = loaded.rules


def test_rule_that_never_applies_is_not_loaded(load: Callable[..., TasoRules]) -> None:
    """Nothing reads the result of its second operator, so no graph contains the whole source."""
    loaded = load(([matmul(-1, -4), relu(0), matmul(0, -5)], ASSOCIATE[1], [(2, 1)]))
    assert [outcome.verdict for outcome in loaded.outcomes] == [Verdict.UNTESTED]
    assert "too few to trust it" in loaded.rejected[0][1]


def test_fusing_an_activation_changes_nothing(load: Callable[..., TasoRules]) -> None:
    loaded = load(([conv(-7, -10), relu(0)], [conv(-7, -10, acti=2)], [(1, 0)]))
    assert loaded.outcomes[0].verdict is Verdict.EMPTY


def test_repeated_rule_is_loaded_once(load: Callable[..., TasoRules]) -> None:
    first = ([add(-1, -2), add(-3, 0)], [add(-1, -3), add(-2, 0)], [(1, 1)])
    swapped = ([add(-1, -2), add(-3, 0)], [add(-2, -3), add(-1, 0)], [(1, 1)])
    loaded = load(first, swapped)
    assert loaded.rules.names == ["taso-0"]
    assert loaded.rejected == [(1, "repeated: rule 0 (accepted) but for names and the order of commutative operands")]


@given(st.permutations(range(1, 5)), st.lists(st.booleans(), min_size=5, max_size=5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_rules_are_the_same_under_renaming_and_commutation(
    names: list[int], swaps: list[bool], product_as_sum: bool
) -> None:
    """If one operator is exchanged, a product for a sum, it is another rule."""
    operators = [add(-1, -2), add(-3, 0), matmul(1, -4), add(-4, -1), matmul(-3, 0)]

    def renamed(operator: Op, swap: bool) -> Op:
        type_, inputs, parameters = operator
        fresh = [-names[-tensor - 1] if isinstance(tensor, int) and tensor < 0 else tensor for tensor in inputs]
        return type_, fresh[::-1] if swap and type_ is OpType.EW_ADD else fresh, parameters

    other = [renamed(operator, swap) for operator, swap in zip(operators, swaps, strict=True)]
    if product_as_sum:
        other[2] = add(*other[2][1])
    first, second = (translated((ops[:3], ops[3:], [(2, 1)])) for ops in (operators, other))
    assert same_rule(first, second) is not product_as_sum
    assert same_rule(second, first) is not product_as_sum


def test_target_that_only_swaps_operands_changes_nothing() -> None:
    assert changes_nothing(translated(([add(-1, -2)], [add(-2, -1)], [(0, 0)])))
    assert not changes_nothing(translated(([matmul(-1, -2)], [matmul(-2, -1)], [(0, 0)])))


# ---- The domain in which a rule is accepted --------------------------------------------------------------------------


def two_convolutions(channels: int, filters: tuple[int, int], groups: tuple[int, int]) -> Graph:
    """Returns a graph that concatenates two convolutions, each with inputs of its own."""
    builder = GraphBuilder()
    results = []
    for name, count, group in zip("ab", filters, groups, strict=True):
        x = builder.input(f"x{name}", TensorProto.FLOAT, [1, channels * group, 5, 5])
        weight = builder.input(f"w{name}", TensorProto.FLOAT, [count, channels, 3, 3])
        window = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "group": group}
        results += builder.node("", "Conv", window, [x, weight], [("", TensorProto.FLOAT, [1, count, 5, 5])])
    joined = [("", TensorProto.FLOAT, [1, sum(filters), 5, 5])]
    builder.output(builder.node("", "Concat", {"axis": 1}, results, joined)[0])
    return builder.build()


@pytest.fixture(scope="module")
def merge(tmp_path_factory: pytest.TempPathFactory) -> TasoRules:
    return load_taso_rules(write(tmp_path_factory.mktemp("rules") / "rules.pb", MERGE_CONVS), instances=INSTANCES)


@pytest.mark.parametrize(
    ("filters", "groups", "applies"),
    [((4, 4), (1, 1), True), ((2, 6), (1, 1), False), ((2, 6), (1, 3), True), ((6, 6), (1, 3), False)],
)
def test_convolutions_are_merged_into_groups_only_where_all_groups_have_equally_many_filters(
    merge: TasoRules, filters: tuple[int, int], groups: tuple[int, int], applies: bool
) -> None:
    """TASO itself joins convolutions with 2 and 6 filters into one with 2 groups of 4, which is another function."""
    detail = merge.outcomes[0].detail
    assert detail.startswith("equally many filters in every group; not for any groups: exact test on"), detail
    state = State(two_convolutions(3, filters, groups), merge.rules, CostModel.roofline("rtx2070"))
    assert bool(state.location_mask().any()) is applies


@pytest.mark.full
def test_operands_broadcast_only_without_convolutions(load: Callable[..., TasoRules]) -> None:
    """A convolution pads, so repeating a row before it differs from repeating a row of its result."""
    rule: Rule = ([add(-7, -8), conv(0, -10)], [conv(-7, -10), conv(-8, -10), add(0, 1)], [(1, 2)])
    distribute: Rule = ([add(-7, -8), matmul(0, -10)], [matmul(-7, -10), matmul(-8, -10), add(0, 1)], [(1, 2)])
    details = [outcome.detail for outcome in load(rule, distribute).outcomes]
    assert details == ["operands of equal shapes, any groups", "operands may broadcast"]


# ---- The graphs that rules are tested on -----------------------------------------------------------------------------


def test_instances_are_reproducible_and_varied() -> None:
    rule = translated(MERGE_CONVS)
    first, again = ([graph.hash for graph in source_graphs(rule, seed=0, draws=300)] for _ in range(2))
    assert first == again
    assert len(set(first)) > len(first) // 2
    groups = {
        tuple(node.attributes["group"] for node in graph.nodes() if node.op_type == "Conv")
        for graph in source_graphs(rule, seed=0, draws=300)
    }
    assert (1, 1) in groups
    assert any(a == b > 1 for a, b in groups) and any(a != b for a, b in groups)


def test_counterexample_names_the_graph_it_was_found_in(load: Callable[..., TasoRules]) -> None:
    rules = RuleSet.parse("rule wrong\n  var a, b: float[...]\n  source y = MatMul(a, b)\n  target y = MatMul(b, a)\n")
    commute = translated(COMMUTE)
    graphs = list(source_graphs(commute, seed=0, draws=60))
    counterexample = verify_rule(rules, 0, sources=graphs).counterexample
    assert counterexample is not None
    source = graphs[counterexample.instance_seed]
    assert all(str(value.dims) in counterexample.source for value in source.values().values())


# ---- TASO's own file -------------------------------------------------------------------------------------------------


@needs_shipped
def test_shipped_rules_are_all_translated() -> None:
    rules = [substitution(rule) for rule in read_taso_file(SHIPPED)]
    assert len(rules) == 133
    different: list[Substitution] = []
    for rule in rules:
        if not changes_nothing(rule) and not any(same_rule(rule, other) for other in different):
            different.append(rule)
    assert len(different) == 88


@needs_shipped
@pytest.mark.full
def test_shipped_rules_known_to_be_wrong_are_restricted(tmp_path: Path) -> None:
    """Rules 99 and 130 are wrong for unequal output channels, and all six rules for grouped convolutions."""
    suspects = [98, 99, 105, 126, 127, 130]
    shipped, chosen = collection_class()(), collection_class()()
    shipped.ParseFromString(SHIPPED.read_bytes())
    for index in suspects:
        chosen.rule.add().CopyFrom(shipped.rule[index])
    path = tmp_path / "suspects.pb"
    path.write_bytes(chosen.SerializeToString())
    for index, outcome in zip(suspects, load_taso_rules(path, instances=INSTANCES).outcomes, strict=True):
        if outcome.verdict is Verdict.REPEATED:
            continue
        expected = "equally many filters in every group" if index == 99 else "one group"
        assert outcome.verdict is Verdict.ACCEPTED, (index, outcome.detail)
        assert expected in outcome.detail.split("; not for")[0], (index, outcome.detail)
        assert "any groups" in outcome.detail.split("; not for")[1], (index, outcome.detail)
