"""The generated graphs are compositions of the zoo's blocks, differ from seed to seed, and have rewrites that pay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from environment import GraphSubstitutionEnv, zoo
from environment.policies.greedy import GreedyAgent

NAMES = [name for name in zoo.names() if name.startswith("composed-")]
FULL_SIZE = [name for name in NAMES if not name.endswith("-tiny")]


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


@pytest.mark.parametrize("name", NAMES)
def test_a_composition_has_every_kind_of_block(name: str) -> None:
    """A fire module has no batch norm, an inception block has some; only gated attention has a softmax and an erf."""
    counts = Counter(operators(zoo.build(name)))
    assert 60 <= counts.total() <= 200
    assert counts["Softmax"] == counts["Erf"] >= 1 and counts["MatMul"] == 9 * counts["Softmax"]
    assert counts["AveragePool"] >= 1 and counts["Concat"] >= 2
    without_norm = counts["Conv"] - counts["BatchNormalization"] - 1  # the stem's convolution has none either
    assert without_norm >= 3 and without_norm % 3 == 0 and counts["BatchNormalization"] >= 7


def test_seeds_give_different_graphs() -> None:
    """Not only the weights differ, but also the order of the operators and the shapes of the parameters."""
    for tiny in ("", "-tiny"):
        first, second = (zoo.build(f"composed-{seed}{tiny}") for seed in (0, 1))
        assert operators(first) != operators(second)
        shapes = [Counter(tuple(t.dims) for t in model.graph.initializer) for model in (first, second)]
        assert shapes[0] != shapes[1]
    other = zoo.build("composed-0", seed=2)
    assert operators(other) not in (operators(zoo.build("composed-0")), operators(zoo.build("composed-1")))
    onnx.checker.check_model(other, full_check=True)


@pytest.mark.parametrize("name", FULL_SIZE)
def test_rewrites_pay(name: str) -> None:
    env = GraphSubstitutionEnv(name, costs="roofline:rtx2070", max_steps=12)
    agent, generator = GreedyAgent(env), np.random.default_rng(0)
    observation, info = env.reset()
    start_ms, over = info["cost_ms"], False
    while not over:
        observation, _, terminated, truncated, info = env.step(agent(observation, generator))
        over = terminated or truncated
    assert info["cost_ms"] < 0.9 * start_ms


OTHERS = [
    *("t5-small", "vgg19", "csrnet"),
    *("mnasnet", "unet", "ssd-mobilenet", "graph-network", "dlrm", "rnnlm", "nmt"),
]
"""Networks that are no part of the papers' tables, each with a tiny variant."""


def test_tables_leave_compositions_out_by_default() -> None:
    assert not set(NAMES) & set(zoo.published_names())
    others = {
        "minilm-l6",
        "bert-l2-h128",
        *(f"{name}{tiny}" for name in OTHERS for tiny in ("", "-tiny")),
    }
    published = zoo.published_names()
    assert set(zoo.names()) == {*published, *(f"{name}-tiny" for name in published), *NAMES, *others}
