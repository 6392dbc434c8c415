"""Every generated graph is a valid model of all kinds of blocks, always the same, that runs and can be rewritten."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import GraphSubstitutionEnv, zoo

TUNING, REPORTED = range(12), range(100, 112)
QUICK = (0, 3, 100, 104)
SEEDS = [seed if seed in QUICK else pytest.param(seed, marks=pytest.mark.full) for seed in (*TUNING, *REPORTED)]
DIGESTS = {0: "853a773319fc9c67", 3: "efec5f7fde7f81f5", 100: "843cb26e46f48868", 104: "07c3a1bf0327b19c"}


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


def digest(model: onnx.ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:16]


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_valid_runs_and_has_all_kinds_of_blocks(seed: int) -> None:
    model = zoo.build(f"generated-{seed}")
    counts = Counter(operators(model))
    onnx.checker.check_model(model, full_check=True)
    assert 40 <= counts.total() <= 250
    # A gated block has 9 products and 4 norms, an attention block 8 and 2, and each has one softmax.
    gated, attention = counts["MatMul"] - 8 * counts["Softmax"], 9 * counts["Softmax"] - counts["MatMul"]
    assert gated >= 1 and attention >= 1 and counts["LayerNormalization"] == 4 * gated + 2 * attention
    without_norm = counts["Conv"] - counts["BatchNormalization"] - 1  # those of fire modules; the stem has none either
    assert without_norm >= 3 and without_norm % 3 == 0 and counts["AveragePool"] >= 1

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    rng = np.random.default_rng(0)
    first, second = (
        session.run(None, {image.name: rng.standard_normal(image.shape, dtype=np.float32)})[0] for _ in range(2)
    )
    assert first.shape == (1, 1000) and np.isfinite(first).all()
    assert 0.1 < first.std() < 20 and np.abs(first - second).mean() > 0.01 * first.std()

    env = GraphSubstitutionEnv(model)
    _, info = env.reset()
    assert info["cost_ms"] > 0 and len(env.legal_actions()) > 50


@pytest.mark.parametrize("seed", QUICK)
def test_a_seed_stands_for_the_same_bytes_for_ever(seed: int) -> None:
    """Published tables name graphs by their seeds."""
    assert digest(zoo.build(f"generated-{seed}")) == DIGESTS[seed]


def test_seeds_differ_in_order_and_sizes() -> None:
    models = [zoo.build(f"generated-{seed}") for seed in QUICK]
    assert len({tuple(operators(model)) for model in models}) == len(QUICK)
    shapes = [frozenset(tuple(tensor.dims) for tensor in model.graph.initializer) for model in models]
    assert len(set(shapes)) == len(QUICK)


def test_the_zoo_contains_one_for_every_seed_and_lists_none() -> None:
    assert zoo.contains("generated-0") and zoo.contains("generated-123456")
    assert zoo.family_of("generated-5") == "composed"
    assert not any(name.startswith("generated-") for name in zoo.names())
    for wrong in ("generated-", "generated-01", "generated--1", "generated-1-tiny", "generated-x"):
        assert not zoo.contains(wrong)
        with pytest.raises(zoo.ZooError, match="and generated-0"):
            zoo.build(wrong)
