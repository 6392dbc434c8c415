"""Learned advantages: samples and their shards, labels, batches, the network's symmetries, and learning itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from controller.fusion.advantages import (
    AdvantageConfig,
    AdvantageModel,
    Batch,
    OperatorMeans,
    labels,
    quality,
)
from controller.fusion.network import AdvantageNetwork
from controller.fusion.samples import Samples, SamplesError, collect
from controller.interface import StoredControllerError
from environment.fusion import FusionGraph, load
from taso_ext import FusionPlan

SMALL = AdvantageConfig(
    hidden=32, layers=3, steps=250, batch=64, tensors=200, learning_rate=5e-3, top_share_of_batch=0.1
)


@pytest.fixture(scope="module")
def data() -> list[tuple[FusionGraph, Samples]]:
    graphs = [load(name, "v100") for name in ("nasrnn-tiny", "bert-base-tiny")]
    return [(graph, collect(graph, 12, seed=1)) for graph in graphs]


def test_samples_are_exact_advantages_and_are_paid_for(data: list[tuple[FusionGraph, Samples]]) -> None:
    graph, samples = data[0]
    count = len(graph.configurable)
    assert samples.configurations.shape == samples.advantages_ms.shape == (12, count)
    assert samples.queries == count * (1 + 2 * 12)
    bits = np.zeros(len(graph.problem), np.uint8)
    bits[graph.configurable] = samples.configurations[-1]
    assert np.array_equal(FusionPlan(graph.problem, bits).deltas_ms(graph.configurable), samples.advantages_ms[-1])
    again = collect(graph, 12, seed=1)
    assert np.array_equal(again.configurations, samples.configurations)
    assert not np.array_equal(collect(graph, 12, seed=2).configurations, samples.configurations)


def test_colder_sampling_finds_cheaper_plans(data: list[tuple[FusionGraph, Samples]]) -> None:
    graph, _ = data[0]

    def mean_cost(temperature: float) -> float:
        costs = []
        for configuration in collect(graph, 8, temperatures=[temperature]).configurations[2:]:
            bits = np.zeros(len(graph.problem), np.uint8)
            bits[graph.configurable] = configuration
            costs.append(FusionPlan(graph.problem, bits).cost_ms())
        return float(np.mean(costs))

    assert mean_cost(0.1) < mean_cost(10.0)


def test_shards_come_back_and_damaged_ones_are_refused(tmp_path: Path, data: list[tuple[FusionGraph, Samples]]) -> None:
    (graph, samples), (other, _) = data
    path = tmp_path / "nasrnn.npz"
    samples.write(path, graph)
    back = Samples.read(path, graph)
    assert np.array_equal(back.configurations, samples.configurations) and back.queries == samples.queries
    assert np.array_equal(back.advantages_ms, samples.advantages_ms)
    with pytest.raises(SamplesError, match="for a graph of"):
        Samples.read(path, other)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SamplesError, match=r"holds no samples .* Delete it"):
        Samples.read(path, graph)
    with pytest.raises(ValueError, match="a frame for each"):
        collect(graph, 0)


def test_labels_keep_the_order_and_the_sign() -> None:
    advantages = np.array([-4.0, -1.0, 0.0, 1.0, 10.0])
    signed = labels(advantages, 2.0, AdvantageConfig(signed=True))
    assert np.array_equal(np.sign(signed), np.sign(advantages)) and np.all(np.diff(signed) > 0)
    assert signed[-1] == pytest.approx(np.log(6))
    assert np.array_equal(labels(advantages, 2.0, AdvantageConfig()), np.abs(signed))
    assert np.array_equal(labels(advantages, 2.0, AdvantageConfig(label="linear", signed=True)), advantages / 2)


@pytest.mark.parametrize("share", [0.9, 0.1, 0.0, 1.0])
def test_a_batch_draws_its_share_from_the_top_decile(share: float, data: list[tuple[FusionGraph, Samples]]) -> None:
    config = AdvantageConfig(batch=200, top_share_of_batch=share)
    drawn = [
        (
            graph,
            samples.configurations[0],
            labels(samples.advantages_ms[0], samples.scale_ms, config),
            samples.is_top[0],
        )
        for graph, samples in data
    ]
    batch = Batch(drawn, np.random.default_rng(0), config)
    start, top = 0, 0.0
    for graph, bits, targets, is_top in drawn:
        places = graph.configurable + start
        assert np.array_equal(batch.bits[places], bits) and np.allclose(batch.targets[places], targets)
        top += batch.weights[places[is_top]].sum()
        start += len(graph.problem)
    assert batch.weights.sum() == 200 and top == 200 * share
    assert batch.links.max() < start == len(batch.nodes)


def test_the_top_decile_is_a_tenth(data: list[tuple[FusionGraph, Samples]]) -> None:
    for _, samples in data:
        assert 0.1 <= samples.is_top.mean() < 0.2  # ties at the threshold count
        assert (
            np.abs(samples.advantages_ms[samples.is_top]).min() >= np.abs(samples.advantages_ms[~samples.is_top]).max()
        )


def test_renumbered_tensors_have_the_same_predictions(data: list[tuple[FusionGraph, Samples]]) -> None:
    graph, _ = data[0]
    network, count = AdvantageNetwork(16, 3), len(graph.problem)
    order = np.random.default_rng(0).permutation(count)
    place = np.argsort(order)
    bits = graph.start("random", 1).astype(np.float32)
    plain = network(graph.nodes, tf.constant(graph.links), bits).numpy()
    shuffled = network(graph.nodes[order], tf.constant(place[graph.links].astype(np.int32)), bits[order]).numpy()
    assert np.allclose(shuffled[place], plain, atol=1e-5)


def test_a_layer_sees_one_edge_far(data: list[tuple[FusionGraph, Samples]]) -> None:
    graph, _ = data[0]
    layers, changed = 2, int(graph.configurable[5])
    network = AdvantageNetwork(16, layers)
    bits = np.zeros(len(graph.problem), np.float32)
    before = network(graph.nodes, tf.constant(graph.links), bits).numpy()
    bits[changed] = 1
    moved = np.flatnonzero(
        np.abs(network(graph.nodes, tf.constant(graph.links), bits).numpy() - before).max(axis=1) > 0
    )
    near = {changed}
    for _ in range(layers):
        near |= {int(b if a in near else a) for a, b in graph.links if (a in near) != (b in near)}
    assert changed in moved and set(moved.tolist()) <= near


def test_learning_beats_what_knows_only_types(data: list[tuple[FusionGraph, Samples]], tmp_path: Path) -> None:
    """On plans of the training graphs that were not seen, and the same model comes back from its file."""
    model = AdvantageModel(SMALL, seed=0)
    assert model.train(data) < 0.2
    means = OperatorMeans(data)
    for graph, seen in data:
        unseen = collect(graph, 4, seed=9)
        targets = labels(unseen.advantages_ms, seen.scale_ms, SMALL)
        plans = np.zeros((4, len(graph.problem)), np.uint8)
        plans[:, graph.configurable] = unseen.configurations
        learned = np.stack([model.predict(graph, plan) for plan in plans])
        assert np.abs(learned - targets).mean() < 0.7 * np.abs(means.predict(graph) - targets).mean()
    model.save(tmp_path / "model.npz")
    graph, plan = data[0][0], data[0][0].start()
    assert np.array_equal(AdvantageModel.load(tmp_path / "model.npz").predict(graph, plan), model.predict(graph, plan))
    with pytest.raises(StoredControllerError, match="cannot be read"):
        AdvantageModel.load(tmp_path / "none.npz")


def test_training_repeats(data: list[tuple[FusionGraph, Samples]]) -> None:
    config = AdvantageConfig(hidden=8, layers=1, steps=5, batch=16, tensors=50)
    assert AdvantageModel(config).train(data) == AdvantageModel(config).train(data)


def test_quality_knows_the_best_and_the_worst() -> None:
    advantages = np.random.default_rng(0).normal(size=(3, 50))
    assert quality(np.abs(advantages), advantages) == {"spearman": pytest.approx(1), "recall": 1}
    assert quality(advantages, advantages) == {"spearman": pytest.approx(1), "recall": 1}  # a sign does not matter
    assert quality(-1 / np.abs(advantages), advantages)["spearman"] == pytest.approx(-1)
    assert quality(np.ones_like(advantages), advantages)["spearman"] == 0


def test_bad_settings_are_refused() -> None:
    for settings in ({"hidden": 0}, {"steps": 0}, {"top_share_of_batch": 1.5}, {"label": "cubic"}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            AdvantageConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one training graph"):
        AdvantageModel(SMALL).train([])
