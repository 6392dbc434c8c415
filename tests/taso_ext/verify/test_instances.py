"""Properties that the random graphs for tests of rules need so that wrong rules are found."""

from __future__ import annotations

import pytest

from taso_ext import RuleSet
from taso_ext._core import Graph

SEEDS = range(96)
SHARE = len(SEEDS) // 8


def instances(body: str, stretch: int = 0) -> list[Graph]:
    rules = RuleSet.parse(f"rule r\n{body}")
    drawn = [rules.instance(0, seed, stretch) for seed in SEEDS]
    assert all(drawn)
    return [graph for graph in drawn if graph is not None]


def extents(graph: Graph) -> list[list[int]]:
    """Returns the shapes of a graph's inputs and weights."""
    made = {id_ for node in graph.nodes() for id_ in node.outputs}
    return [list(value.dims or ()) for id_, value in graph.values().items() if id_ not in made]


@pytest.mark.parametrize("shape", ["[...]", "[m, n, k]", "[..., m, n]"])
def test_many_have_one_extent_beside_one_and_many_have_several(shape: str) -> None:
    body = f"  var x, y: float{shape}\n  source z = Add(x, y)\n  target z = Add(y, x)\n"
    counts = [len({extent for dims in extents(graph) for extent in dims} - {1}) for graph in instances(body)]
    assert sum(count == 1 for count in counts) >= SHARE
    assert sum(count > 1 for count in counts) >= SHARE


def test_operands_broadcast_and_differ_in_rank() -> None:
    body = "  var x, y: float[...]\n  source z = Add(x, y)\n  target z = Add(y, x)\n"
    pairs = [extents(graph) for graph in instances(body)]
    assert sum(len(x) != len(y) for x, y in pairs) >= SHARE
    assert sum(len(x) == len(y) and x != y for x, y in pairs) >= SHARE


def test_reshapes_only_move_ones_at_times() -> None:
    body = "  var x: float[...]\n  source t = Reshape(x; shape=s); y = Relu(t)\n"
    body += "  target u = Relu(x); y = Reshape(u; shape=s)\n"
    moved = 0
    for graph in instances(body):
        (before,), after = extents(graph), graph.nodes()[0].attributes["shape"]
        assert isinstance(after, list)
        moved += before != after and [e for e in before if e != 1] == [e for e in after if e != 1]
    assert moved >= SHARE


def test_parts_of_concatenations_are_unequal_at_times() -> None:
    body = "  var a, b: float[...]\n  source t = Concat(a, b; axis=d); y = Neg(t)\n"
    body += "  target u = Neg(a); v = Neg(b); y = Concat(u, v; axis=d)\n"
    pairs = [extents(graph) for graph in instances(body)]
    assert sum(a != b for a, b in pairs) >= SHARE
    assert sum(a == b for a, b in pairs) >= SHARE


@pytest.mark.parametrize("stretch", [3, 5])
def test_stretched_ones_share_no_extent_above_one_with_the_others(stretch: int) -> None:
    body = "  var x, y: float[...]\n  source z = Add(x, y)\n  target z = Add(y, x)\n"
    assert all(
        e == 1 or e >= 2 + stretch for graph in instances(body, stretch) for dims in extents(graph) for e in dims
    )


def test_padding_is_with_other_numbers_than_zero() -> None:
    body = "  var x: float\n  source t = Pad(x; @r); u = Neg(t); y = Neg(u)\n  target y = Pad(x; @r)\n"
    values = [graph.nodes()[0].attributes["value"] for graph in instances(body)]
    assert min(values) < 0 < max(values)  # type: ignore[type-var]
    assert values.count(0.0) >= SHARE


def test_attention_of_scalars_does_not_end_the_process() -> None:
    """Operands of any rank may be drawn without an axis; such an operator fits nothing."""
    rules = RuleSet.parse(
        "rule r\n  var    q, k, v: float[...]; m: weight float[...]\n  source y = Attention(q, k, v, m; @r)\n"
        "  where  value(m) <= 0\n  target y = Attention(q, k, v; @r)\n"
    )
    found = [rules.instance(0, seed) for seed in range(40)]
    assert any(graph is not None for graph in found)


@pytest.mark.parametrize("variable", ["z: float[c, ...c]", "*z: float[*c, ...c]"])
def test_a_symbol_cannot_stand_for_one_extent_and_for_several(variable: str) -> None:
    name = variable.partition(":")[0]
    rules = RuleSet.parse(
        f"rule r\n  var x: float[m, c]; {variable}\n  source y = Concat(x, {name}; axis=0)\n"
        f"  target y = Concat(x, {name}; axis=0)\n"
    )
    assert rules.instance(0, 0) is None
    assert rules.misfit(0) is not None


def test_blocks_of_several_channels_are_drawn() -> None:
    body = (
        "  var x: float[n, c, h, w]\n  source y = DepthToSpace(x; @r, blocksize=b)\n"
        "  target y = DepthToSpace(x; @r, blocksize=b)\n"
    )
    found = instances(body)
    assert any(graph.nodes()[0].attributes["blocksize"] == 2 and extents(graph)[0][1] > 4 for graph in found)


def test_shapes_may_name_extents_of_variables_that_are_read_later() -> None:
    graphs = instances(
        "  var x: float[1, k]; w: float[n, k]; z: float[n, k]\n"
        "  source y = Expand(x; shape=[n, k]); s = Add(y, w); t = Mul(s, z)\n"
        "  target s = Add(x, w); t = Mul(s, z)\n"
    )
    assert len({tuple(map(tuple, extents(graph))) for graph in graphs}) >= SHARE


def test_weights_whose_value_the_target_uses_are_uniform() -> None:
    graphs = instances(
        "  var x: float[...]; c: weight float[...]\n  source y = Concat(x, c; axis=0)\n"
        '  target y = Pad(x; mode="constant", pads=[...repeat(0, rank(x)), dims(c)[0], ...repeat(0, rank(x) - 1)],'
        " value=value(c))\n"
    )
    values = [value.content for graph in graphs for value in graph.values().values() if value.name.startswith("c")]
    assert len(values) == len(graphs) and len(set(values)) >= SHARE // 2
