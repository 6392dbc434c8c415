"""TASO's rule files: what is sound is loaded for the shapes it is sound for, all else is reported, nothing crashes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from taso_ext import CostModel, Graph, GraphBuilder, RuleSet, State
from taso_ext.taso_rules import TasoFileError, TasoRules, Verdict, load_taso_rules
from taso_ext.taso_rules.__main__ import main
from taso_ext.taso_rules.file import OpType, ParameterKey, TasoRule, collection_class, read_taso_file
from taso_ext.taso_rules.instances import source_graphs
from taso_ext.taso_rules.substitution import Substitution, substitution
from taso_ext.taso_rules.terms import changes_nothing, same_rule
from taso_ext.verify import verify_rule

INSTANCES = 12  # enough to refute what is refuted here; the command takes more
SHIPPED = Path(__file__).parents[3] / "shared" / "taso" / "graph_subst.pb"
needs_shipped = pytest.mark.skipif(not SHIPPED.exists(), reason="TASO's own rule file is not there")

Tensor = int | tuple[int, int]
Op = tuple[OpType, Sequence[Tensor], dict[str, int]]
Rule = tuple[Sequence[Op], Sequence[Op], Sequence[tuple[Tensor, Tensor]]]


def relu(x: Tensor) -> Op:
    return OpType.RELU, [x], {}


def add(a: Tensor, b: Tensor) -> Op:
    return OpType.EW_ADD, [a, b], {}


def matmul(a: Tensor, b: Tensor, acti: int = 0) -> Op:
    return OpType.MATMUL, [a, b], {"ACTI": acti}


def conv(x: Tensor, weight: Tensor, acti: int = 0, stride: int = 1) -> Op:
    window = {"STRIDE_H": stride, "STRIDE_W": stride, "PAD": 0, "KERNEL_H": 3, "KERNEL_W": 3}
    return OpType.CONV2D, [x, weight], {**window, "ACTI": acti}


def concat(*xs: Tensor, axis: int, rank: int) -> Op:
    return OpType.CONCAT, xs, {"NUM_INPUTS": len(xs), "AXIS": axis, "NUMDIM": rank}


def split(x: Tensor, axis: int) -> Op:
    return OpType.SPLIT, [x], {"NUM_OUTPUTS": 2, "AXIS": axis}


def transpose(x: Tensor) -> Op:
    return OpType.TRANSPOSE, [x], {"NUMDIM": 2, "PERM": 2, "OUTSHUFFLE": 1}


def collection(rules: Sequence[Rule]) -> Any:
    """The protobuf of `rules`; operators count from 0, external inputs are negative."""
    message = collection_class()()
    for source, target, outputs in rules:
        rule = message.rule.add()
        for operators, side in ((source, rule.srcOp), (target, rule.dstOp)):
            for type_, inputs, parameters in operators:
                operator = side.add(type=int(type_))
                for tensor in inputs:
                    id_, port = tensor if isinstance(tensor, tuple) else (tensor, 0)
                    operator.input.add(opId=id_, tsId=port)
                for name, value in parameters.items():
                    operator.para.add(key=int(ParameterKey[name]), value=value)
        for of_source, of_target in outputs:
            (a, i), (b, j) = (t if isinstance(t, tuple) else (t, 0) for t in (of_source, of_target))
            rule.mappedOutput.add(srcOpId=a, srcTsId=i, dstOpId=b, dstTsId=j)
    return message


def write(path: Path, *rules: Rule) -> Path:
    path.write_bytes(collection(rules).SerializeToString())
    return path


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., TasoRules]:
    return lambda *rules: load_taso_rules(write(tmp_path / "rules.pb", *rules), instances=INSTANCES)


ASSOCIATE: Rule = ([matmul(-1, -4), matmul(0, -5)], [matmul(-4, -5), matmul(-1, 0)], [(1, 1)])
MERGE_CONVS: Rule = (
    [conv(-7, -10), conv(-8, -11), concat(0, 1, axis=1, rank=4)],
    [concat(-7, -8, axis=1, rank=4), concat(-10, -11, axis=0, rank=4), conv(0, 1)],
    [(2, 2)],
)
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


@pytest.mark.parametrize("rule", SOUND.values(), ids=SOUND)
def test_sound_rule_is_loaded_and_keeps_the_function(load: Callable[..., TasoRules], rule: Rule) -> None:
    loaded = load(rule)
    assert loaded.rejected == []
    assert loaded.rules.names == ["taso-0"]
    # The loader's verdict is reproduced from the text alone, on graphs it has not seen.
    fresh = source_graphs(substitution(_read(rule)), seed=1, draws=400)
    verification = verify_rule(RuleSet.parse(loaded.text), 0, instances=INSTANCES, sources=fresh)
    assert verification.ok, str(verification)


def _read(rule: Rule) -> TasoRule:
    with tempfile.TemporaryDirectory() as directory:
        return read_taso_file(write(Path(directory) / "rules.pb", rule))[0]


WRONG: dict[str, Rule] = {
    "matrix products do not commute": ([matmul(-1, -4)], [matmul(-4, -1)], [(0, 0)]),
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


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_wrong_rule_is_reported_with_a_counterexample(load: Callable[..., TasoRules], rule: Rule) -> None:
    loaded = load(ASSOCIATE, rule)
    assert loaded.rules.names == ["taso-0"]
    ((index, reason),) = loaded.rejected
    assert (index, loaded.outcomes[1].verdict) == (1, Verdict.WRONG)
    assert "finite-field test on x" in reason and "modulo" in reason, reason


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
    """Its second operator is read by nobody, so no graph has it."""
    loaded = load(([matmul(-1, -4), relu(0), matmul(0, -5)], ASSOCIATE[1], [(2, 1)]))
    assert [outcome.verdict for outcome in loaded.outcomes] == [Verdict.UNTESTED]
    assert "too few to trust it" in loaded.rejected[0][1]


def test_every_index_is_either_loaded_or_rejected(load: Callable[..., TasoRules]) -> None:
    loaded = load(*WRONG.values(), *SOUND.values(), *(rule for rule, _ in INEXPRESSIBLE.values()))
    accepted = {int(name.removeprefix("taso-")) for name in loaded.rules.names}
    rejected = {index for index, _ in loaded.rejected}
    assert accepted | rejected == set(range(len(loaded.outcomes)))
    assert not accepted & rejected


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
    """…and only then: one operator exchanged makes another rule."""
    operators = [add(-1, -2), add(-3, 0), matmul(1, -4), add(-4, -1), matmul(-3, 0)]

    def renamed(operator: Op, swap: bool) -> Op:
        type_, inputs, parameters = operator
        fresh = [-names[-tensor - 1] if isinstance(tensor, int) and tensor < 0 else tensor for tensor in inputs]
        return type_, fresh[::-1] if swap and type_ is OpType.EW_ADD else fresh, parameters

    other = [renamed(operator, swap) for operator, swap in zip(operators, swaps, strict=True)]
    if product_as_sum:
        other[2] = add(*other[2][1])
    first, second = (substitution(_read((ops[:3], ops[3:], [(2, 1)]))) for ops in (operators, other))
    assert same_rule(first, second) is not product_as_sum
    assert same_rule(second, first) is not product_as_sum


def test_target_that_only_swaps_operands_changes_nothing() -> None:
    assert changes_nothing(substitution(_read(([add(-1, -2)], [add(-2, -1)], [(0, 0)]))))
    assert not changes_nothing(substitution(_read(([matmul(-1, -2)], [matmul(-2, -1)], [(0, 0)]))))


# ---- The domain in which a rule is accepted --------------------------------------------------------------------------


def two_convolutions(channels: int, filters: tuple[int, int], groups: tuple[int, int]) -> Graph:
    """Two convolutions of their own inputs, concatenated."""
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


@pytest.mark.parametrize(
    ("filters", "groups", "applies"),
    [((4, 4), (1, 1), True), ((2, 6), (1, 1), False), ((2, 6), (1, 3), True), ((6, 6), (1, 3), False)],
)
def test_convolutions_are_merged_into_groups_only_where_all_groups_have_equally_many_filters(
    load: Callable[..., TasoRules], filters: tuple[int, int], groups: tuple[int, int], applies: bool
) -> None:
    """TASO's own rule joins convolutions with 2 and 6 filters into one with 2 groups of 4: another function."""
    loaded = load(MERGE_CONVS)
    detail = loaded.outcomes[0].detail
    assert detail.startswith("equally many filters in every group; not for any groups: finite-field test on"), detail
    state = State(two_convolutions(3, filters, groups), loaded.rules, CostModel.roofline("rtx2070"))
    assert bool(state.location_mask().any()) is applies


def test_operands_broadcast_only_without_convolutions(load: Callable[..., TasoRules]) -> None:
    """A convolution pads; one row repeated before it is not one row repeated behind it."""
    rule: Rule = ([add(-7, -8), conv(0, -10)], [conv(-7, -10), conv(-8, -10), add(0, 1)], [(1, 2)])
    distribute: Rule = ([add(-7, -8), matmul(0, -10)], [matmul(-7, -10), matmul(-8, -10), add(0, 1)], [(1, 2)])
    details = [outcome.detail for outcome in load(rule, distribute).outcomes]
    assert details == ["operands of equal shapes, any groups", "operands may broadcast"]


# ---- Files -----------------------------------------------------------------------------------------------------------

VALID = collection([ASSOCIATE, MERGE_CONVS]).SerializeToString()


def _with(change: Callable[[Any], None]) -> bytes:
    message = collection([ASSOCIATE])
    change(message.rule[0])
    return message.SerializeToString()


def _set(message: Any, **fields: int) -> None:
    for name, value in fields.items():
        setattr(message, name, value)


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it holds no rule"),
    "truncated": (VALID[:-3], "is not a collection of TASO's rules"),
    "text": (b"rule merge-matmuls\n  var x: float[...]\n", "is not a collection of TASO's rules"),
    "unknown fields": (VALID + b"\x50\x01", "2 of its"),
    "unknown operator": (_with(lambda rule: _set(rule.srcOp[0], type=200)), "200 is not a valid OpType"),
    "unknown parameter": (_with(lambda rule: _set(rule.srcOp[0].para[0], key=99)), "99 is not a valid ParameterKey"),
    "dangling input": (_with(lambda rule: _set(rule.srcOp[0].input[0], opId=1)), "operator 0 reads tensor (1, 0)"),
    "dangling port": (_with(lambda rule: _set(rule.srcOp[1].input[0], tsId=1)), "operator 1 reads tensor (0, 1)"),
    "dangling output": (_with(lambda rule: _set(rule.mappedOutput[0], dstOpId=7)), "maps an output to tensor (7, 0)"),
    "missing field": (VALID + b"\x0a\x02\x1a\x00", "it lacks rule[2].mappedOutput[0].srcOpId"),
    "no operators": (_with(lambda rule: rule.ClearField("dstOp")), "expected 1 to 8 operators, got 0"),
}


@pytest.mark.parametrize(("data", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_refused_in_one_paragraph(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "broken.pb"
    path.write_bytes(data)
    with pytest.raises(TasoFileError) as caught:
        load_taso_rules(path)
    assert reason in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["absent.pb", "."])
def test_unreadable_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TasoFileError, match="Cannot read"):
        load_taso_rules(tmp_path / name)


@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(VALID)))
@settings(max_examples=300, deadline=None)
def test_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], length: int
) -> None:
    """Whatever is read can be translated or says why not; nothing else is ever raised."""
    data = bytearray(VALID)
    for at, byte in changes:
        data[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.pb"
    path.write_bytes(data[:length] if len(changes) < 4 else data)
    try:
        rules = read_taso_file(path)
    except TasoFileError:
        return
    for rule in rules:
        try:
            translated = substitution(rule)
        except ValueError as error:
            assert str(error)
        else:
            next(source_graphs(translated, seed=0, draws=3), None)


# ---- The command -----------------------------------------------------------------------------------------------------


def test_command_prints_every_rule_and_writes_the_accepted_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "rules.pb", ASSOCIATE, WRONG["matrix products do not commute"])
    output = tmp_path / "out.rules"
    assert main([str(file), "-o", str(output), "--instances", "4"]) == 0
    printed = capsys.readouterr().out
    assert "| accepted | 1 |" in printed and "| wrong | 1 |" in printed
    assert "| 0 | `MatMul(MatMul(x1, x4), x5) → MatMul(x1, MatMul(x4, x5))` | accepted |" in printed
    assert RuleSet.load(str(output)).names == ["taso-0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.rules", "rules.pb"]


@pytest.mark.parametrize("case", ["garbage", "output exists", "no directory", "nothing accepted", "no instances"])
def test_command_ends_with_status_2_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    file = write(tmp_path / "rules.pb", WRONG["matrix products do not commute"])
    output = tmp_path / ("absent/out.rules" if case == "no directory" else "out.rules")
    if case == "garbage":
        file.write_bytes(b"garbage")
    if case == "output exists":
        output.write_text("kept")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as caught:
        main([str(file), "-o", str(output), "--instances", "0" if case == "no instances" else "4"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.strip()
    assert sorted(tmp_path.iterdir()) == before
    assert case != "output exists" or output.read_text() == "kept"


# ---- The graphs that rules are tested on -----------------------------------------------------------------------------


def test_instances_are_reproducible_and_varied() -> None:
    rule = substitution(_read(MERGE_CONVS))
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
    commute = substitution(_read(WRONG["matrix products do not commute"]))
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
def test_shipped_rules_known_to_be_wrong_are_restricted(tmp_path: Path) -> None:
    """99 and 130 are wrong for unequal output channels, all of these on grouped convolutions."""
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
