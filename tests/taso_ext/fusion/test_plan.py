"""Fusion plans: prices against a slow definition, exact deltas, the rules of the compiler, and what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from taso_ext import FusionPlan, FusionProblem, Graph, GraphBuilder
from tests.taso_ext.oracles.slow_fusion import SlowFusion
from tests.taso_ext.oracles.slow_graph import PlainGraph
from tests.taso_ext.samples.random_graphs import graphs

DEVICES = FusionProblem.devices()
OPERATORS = ("Relu", "Tanh", "Add", "Mul", "Transpose", "ReduceSum", "Softmax", "MatMul", "Concat", "Slice", "MaxPool")


class Sketch:
    """A builder of graphs of [rows, columns] matrices."""

    def __init__(self, rows: int = 64, columns: int = 64) -> None:
        self.builder, self.dims = GraphBuilder(), [rows, columns]

    def input(self, name: str = "x", dims: list[int] | None = None) -> int:
        return self.builder.input(name, TensorProto.FLOAT, dims or self.dims)

    def weight(self, name: str, dims: list[int]) -> int:
        return self.builder.weight(name, name, TensorProto.FLOAT, dims)

    def apply(self, op_type: str, *operands: int, dims: list[int] | None = None, **attributes: Any) -> int:
        result = [("", TensorProto.FLOAT, dims or self.dims)]
        return self.builder.node("", op_type, attributes, operands, result)[0]

    def problem(self, *outputs: int, device: str = "v100") -> FusionProblem:
        for value in outputs:
            self.builder.output(value)
        return FusionProblem(self.builder.build(), device)


def grown(seed: int, size: int) -> Graph:
    """A random graph of square matrices that has every kind of operator and tensors with several readers."""
    rng, sketch = np.random.default_rng(seed), Sketch(32, 32)
    pool = [sketch.input("a"), sketch.input("b"), sketch.weight("w", [32, 32])]
    for _ in range(size):
        pick = [pool[i] for i in rng.integers(max(0, len(pool) - 8), len(pool), 2)]
        op = OPERATORS[rng.integers(len(OPERATORS))]
        if op in ("Relu", "Tanh", "Softmax"):
            pool.append(sketch.apply(op, pick[0]))
        elif op == "Transpose":
            pool.append(sketch.apply(op, pick[0], perm=[1, 0]))
        elif op == "ReduceSum":  # and back to a matrix, by a broadcast
            row = sketch.apply(op, pick[0], dims=[32, 1], axes=[1], keepdims=1)
            pool.append(sketch.apply("Mul", pick[1], row))
        elif op == "Concat":
            wide = sketch.apply(op, *pick, dims=[64, 32], axis=0)
            pool.append(sketch.apply("Slice", wide, dims=[32, 32], starts=[16], ends=[48], axes=[0], steps=[1]))
        elif op == "MaxPool":
            image = sketch.apply("Reshape", pick[0], dims=[1, 1, 32, 32], shape=[1, 1, 32, 32])
            pooled = sketch.apply(
                op, image, dims=[1, 1, 32, 32], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]
            )
            pool.append(sketch.apply("Reshape", pooled, shape=[32, 32]))
        else:
            pool.append(sketch.apply("MatMul" if op == "MatMul" else "Add" if op == "Add" else "Mul", *pick))
    for value in pool[-3:]:
        sketch.builder.output(value)
    return sketch.builder.build()


def drawn(problem: FusionProblem, seed: int) -> np.ndarray:
    bits = np.zeros(len(problem), np.uint8)
    configurable = problem.configurable()
    bits[configurable] = np.random.default_rng(seed).integers(0, 2, len(configurable))
    return bits


def require_agreement(problem: FusionProblem, seed: int) -> None:
    """The engine's cost is that of the slow definition; every delta is exactly the difference of two new plans."""
    bits = drawn(problem, seed)
    plan = FusionPlan(problem, bits)
    cost = plan.cost_ms()
    assert cost == pytest.approx(SlowFusion(problem, bits).cost_ms(), rel=1e-9)
    for tensor, delta in zip(problem.configurable(), plan.deltas_ms(problem.configurable()), strict=True):
        other = bits.copy()
        other[tensor] ^= 1
        difference = FusionPlan(problem, other).cost_ms() - cost
        assert round(delta * 1e12) == round(difference * 1e12)
    assert np.array_equal(plan.configuration(), bits)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(6))
def test_prices_and_deltas_of_mixed_graphs(seed: int, device: str) -> None:
    require_agreement(FusionProblem(grown(seed, 60), device), seed)


@settings(max_examples=40, deadline=None)
@given(graph=graphs(foreign=True), seed=st.integers(0, 1000), device=st.sampled_from(DEVICES))
def test_prices_and_deltas_of_any_graph(graph: PlainGraph, seed: int, device: str) -> None:
    require_agreement(FusionProblem(graph.build(), device), seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_depends_on_its_configuration_alone(seed: int) -> None:
    """Flips in any order, and flips that cancel, lead to the kernels and the cost of a plan that is made anew."""
    problem = FusionProblem(grown(seed, 80), "h100")
    plan, rng = FusionPlan(problem, problem.compiler_default()), np.random.default_rng(seed)
    for _ in range(5):
        plan.flip(rng.choice(problem.configurable(), 20))
        fresh = FusionPlan(problem, plan.configuration())
        assert plan.cost_ms() == fresh.cost_ms() and plan.kernels() == fresh.kernels()


@pytest.mark.parametrize("seed", range(4))
def test_kernels_write_what_is_read(seed: int) -> None:
    problem = FusionProblem(grown(seed, 80), "v100")
    tensors = problem.tensors()
    kernels = FusionPlan(problem, drawn(problem, seed)).kernels()
    written = {members[0] for members, _, _ in kernels}
    external = set(np.flatnonzero(tensors["kind"] == 0).tolist())
    assert set(np.flatnonzero(tensors["is_output"]).tolist()) <= written
    for members, reads, price in kernels:
        assert not set(members) & set(reads) and max(reads, default=-1) < members[0]  # so there is no circle
        assert set(reads) <= written | external
        heroes = np.isin(tensors["kind"][members], (2, 3, 4, 5)).sum()
        assert heroes <= 1 and (price > 0 or tensors["kind"][members[0]] == 7)


def test_a_chain_becomes_one_kernel_that_reads_and_writes_once() -> None:
    sketch = Sketch(1024, 1024)
    value = x = sketch.input()
    for _ in range(5):
        value = sketch.apply("Relu", value)
    problem = sketch.problem(value)
    del x
    ones = problem.compiler_default()
    assert ones.sum() == 4 == len(problem.configurable())
    fused, parted = (FusionPlan(problem, bits) for bits in (ones, np.zeros_like(ones)))
    assert [len(members) for members, _, _ in fused.kernels()] == [5]
    saved_traffic = 4 * 2 * 4 * 1024**2 / problem.constants["bytes_per_ms"]
    hidden = 0.05 * 5 * 3 * 1024**2 / (2e6 * 1.53 * 80 * 64)  # computing is hidden behind loading but for 5 %
    alone = parted.cost_ms() - fused.cost_ms() - saved_traffic - 4 * problem.constants["launch_ms"]
    assert abs(alone) <= hidden


def fuses(problem: FusionProblem) -> bool:
    """Whether the compiler fuses the first configurable tensor."""
    return bool(problem.compiler_default()[problem.configurable()[0]])


def test_the_compiler_computes_nothing_expensive_twice() -> None:
    for op_type, twice in (("Neg", True), ("Exp", True), ("Tanh", False), ("Erf", False)):
        sketch = Sketch()
        shared = sketch.apply(op_type, sketch.input())
        problem = sketch.problem(sketch.apply("Relu", shared), sketch.apply("Abs", shared))
        assert fuses(problem) is twice, op_type


def test_the_compiler_repeats_nothing_expensive_in_a_broadcast() -> None:
    for op_type, repeated in (("Neg", True), ("Tanh", False)):
        sketch = Sketch()
        row = sketch.apply(op_type, sketch.input("row", [1, 64]), dims=[1, 64])
        assert fuses(sketch.problem(sketch.apply("Add", sketch.input(), row))) is repeated, op_type


def test_library_calls_end_in_pointwise_operators_of_one_reader() -> None:
    def product(sketch: Sketch) -> int:
        return sketch.apply("MatMul", sketch.input(), sketch.weight("w", [64, 64]))

    sketch = Sketch()
    assert fuses(sketch.problem(sketch.apply("Relu", product(sketch))))
    sketch = Sketch()
    first = product(sketch)
    shared = sketch.problem(sketch.apply("Relu", first), sketch.apply("Abs", first))
    assert not len(shared.configurable())
    sketch = Sketch()
    first = product(sketch)
    chained = sketch.problem(sketch.apply("MatMul", first, sketch.weight("v", [64, 64])))
    assert not len(chained.configurable())


def test_what_moves_no_data_is_no_tensor() -> None:
    sketch = Sketch()
    x = sketch.apply("Relu", sketch.input())
    x = sketch.apply("Reshape", x, dims=[1, 64, 64], shape=[1, 64, 64])
    x = sketch.apply("Transpose", x, dims=[64, 1, 64], perm=[1, 0, 2])
    problem = sketch.problem(sketch.apply("Relu", x, dims=[64, 1, 64]))
    assert len(problem) == 3 and len(problem.configurable()) == 1


def test_every_price_counts() -> None:
    problem = FusionProblem(grown(0, 40), "v100")
    count = len(problem.configurable())
    plan = FusionPlan(problem, problem.compiler_default())
    assert problem.queries == 0
    plan.cost_ms()
    FusionPlan(problem, plan.configuration()).cost_ms()  # another plan counts at the same place
    plan.deltas_ms(problem.configurable())
    plan.gibbs(2, 0.01, 0)
    plan.flip(problem.configurable())
    assert problem.queries == 2 + 3 * count


def test_gibbs_sampling_reaches_its_distribution() -> None:
    """The share of visits of each configuration is exp(-cost / T) / sum; within 5 standard errors of independent draws
    with a quarter of the sweeps, so that a false alarm is rarer than one in a million."""
    sketch = Sketch(64, 64)
    shared = sketch.apply("Tanh", sketch.input())
    problem = sketch.problem(
        sketch.apply("Relu", shared),
        sketch.apply("Abs", shared),
        sketch.apply("Exp", sketch.apply("Neg", sketch.input("y"))),
    )
    places = problem.configurable()
    assert len(places) == 2
    costs, temperature, sweeps = np.zeros(4), 1e-3, 40_000
    for k in range(4):
        bits = np.zeros(len(problem), np.uint8)
        bits[places] = [k & 1, k >> 1]
        costs[k] = FusionPlan(problem, bits).cost_ms()
    expected = np.exp(-costs / temperature)
    expected /= expected.sum()
    plan = FusionPlan(problem, np.zeros(len(problem), np.uint8))
    tensors, _, flipped = plan.gibbs(sweeps, temperature, 3)
    state, seen = np.zeros(len(problem), np.int64), np.zeros(4)
    for visit, (tensor, flip) in enumerate(zip(tensors, flipped, strict=True)):
        state[tensor] ^= flip
        if visit % 2:
            seen[state[places[0]] + 2 * state[places[1]]] += 1
    error = np.sqrt(expected * (1 - expected) / (sweeps / 4))
    assert np.all(np.abs(seen / sweeps - expected) < 5 * error) and expected.min() > 0.02


def test_gibbs_sampling_repeats_and_tells_exact_deltas() -> None:
    problem = FusionProblem(grown(5, 60), "v100")
    plans = [FusionPlan(problem, problem.compiler_default()) for _ in range(2)]
    first, second = (plan.gibbs(3, 0.001, 7) for plan in plans)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    replay = FusionPlan(problem, problem.compiler_default())
    for tensor, delta, flip in zip(*first, strict=True):
        assert replay.deltas_ms([tensor])[0] == delta
        if flip:
            replay.flip([tensor])
    assert np.array_equal(replay.configuration(), plans[0].configuration())


def test_bad_input_is_refused() -> None:
    graph = grown(0, 20)
    with pytest.raises(ValueError, match="no fusion device is called 'abacus'; choose one of v100, h100"):
        FusionProblem(graph, "abacus")
    problem = FusionProblem(graph, "v100")
    with pytest.raises(ValueError, match=f"a configuration of {len(problem)} decisions"):
        FusionPlan(problem, np.zeros(3, np.uint8))
    plan = FusionPlan(problem, np.zeros(len(problem), np.uint8))
    for tensors in ([-1], [len(problem)], [0]):
        for ask in (plan.flip, plan.deltas_ms):
            with pytest.raises(ValueError, match="is not configurable"):
                ask(tensors)
    with pytest.raises(ValueError, match="positive temperature"):
        plan.gibbs(1, 0.0, 0)
    with pytest.raises(ValueError, match="a tensor below"):
        problem.neighbourhood(-1, 1)
