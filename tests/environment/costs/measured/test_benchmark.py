"""Copies of a kernel are timed beside a reference kernel, on a fake machine of known times and on the real one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto

from environment import zoo
from environment.costs.measured import benchmark
from environment.costs.measured.benchmark import (
    COPIES,
    FEWEST_COPIES,
    LONG_MS,
    MOST_COPIES,
    MOST_MB,
    OTHERS_SHARE,
    REFERENCE_KERNEL,
    SESSIONS_DIFFER,
    copies_model,
    measure_beside,
    require_timeable,
    sweep,
    time_kernel,
    time_reference_kernel,
    usual_ms,
    views_model,
    weight_bytes,
)
from environment.costs.measured.kernel import Kernel, Operand
from environment.costs.measured.kernel_prices import NOISY
from environment.costs.measured.ort_kernels import lower
from environment.counting import Counts, counting
from environment.measurement.effort import Effort
from environment.runtimes import OnnxRuntime
from taso_ext import ModelError, OnnxModel
from taso_ext.onnx_io.weights.handles import content_bytes
from tests.environment.costs.timed_kernels import REFERENCE_MS, TimedKernels, run_on
from tests.environment.measurement.fake_machine import FakeMachine

RUNTIME = OnnxRuntime()
F = TensorProto.FLOAT
X = Operand(F, (64, 512))
RELU = Kernel("", "Relu", 14, "{}", (X,), (True,))


def gemm(rows: int) -> Kernel:
    """Returns a kernel that reads `2 * rows` kilobytes of weights."""
    return Kernel("", "Gemm", 13, "{}", (X, Operand(F, (512, rows), True)), (True,))


SMALL, LARGE, HUGE = gemm(512), gemm(16384), gemm(70000)  # 1, 34 and 143 MB


@pytest.mark.parametrize(
    ("kernel", "weights_mb", "ms", "copies"),
    [
        pytest.param(RELU, 64, 0.01, MOST_COPIES, id="no weights"),
        pytest.param(RELU, 1, 0.01, 8, id="no weights, and few in the graph"),
        pytest.param(RELU, 64, 15.0, 2, id="slow"),
        pytest.param(RELU, 64, 100.0, 1, id="very slow"),
        pytest.param(SMALL, 8, 0.05, 7, id="weights that fill a cache"),
        pytest.param(SMALL, 64, 0.05, 14, id="weights that fill no cache"),
        pytest.param(gemm(16), 64, 0.001, MOST_COPIES, id="few weights"),
        pytest.param(SMALL, 64, 1.96, 10, id="weights, slow"),
        pytest.param(SMALL, 1, 0.05, FEWEST_COPIES, id="all weights of the graph"),
        pytest.param(LARGE, 64, 0.5, 3, id="large weights"),
        pytest.param(HUGE, 64, 0.5, 1, id="weights beyond all bounds"),
    ],
)
@pytest.mark.parametrize("reference_ms", [REFERENCE_MS, 3 * REFERENCE_MS])
def test_a_price_is_what_a_run_takes(
    kernel: Kernel, weights_mb: int, ms: float, copies: int, reference_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in milliseconds of the reference kernel when the database was begun; the machine may be faster now."""
    runtime = TimedKernels({kernel.op_type: ms, "MatMul": REFERENCE_MS}, FakeMachine(drift=0.0005))
    run_on(runtime, monkeypatch)
    price = time_kernel(kernel, weights_mb, RUNTIME, reference_ms)
    assert price.ms == pytest.approx(ms * reference_ms / REFERENCE_MS, rel=0.01)
    assert (kernel.op_type, copies) in runtime.opened
    assert {count for op_type, count in runtime.opened if op_type == "MatMul"} == {COPIES}


@pytest.mark.parametrize(
    ("kernel", "weights_mb", "ms", "swept_mb"),
    [
        pytest.param(gemm(4096), 362, 0.5, 362 - 4 * 8.39, id="the rest of the graph's weights"),
        pytest.param(gemm(512), 362, 0.05, 362 - 14 * 1.0486, id="with enough copies of a small kernel"),
        pytest.param(gemm(4096), 36, 0.5, None, id="as much as copies read"),
        pytest.param(gemm(16), 362, 0.01, None, id="more of inputs than of weights"),
        pytest.param(RELU, 362, 0.01, None, id="no weights"),
    ],
)
def test_weights_come_from_where_the_rest_of_the_graph_leaves_them(
    kernel: Kernel, weights_mb: int, ms: float, swept_mb: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is swept before each run of the copies, but not of the reference kernel, and the sweep is not timed."""
    swept: list[float] = []
    runtime = TimedKernels({kernel.op_type: ms, "MatMul": REFERENCE_MS})

    def sweep(mb: float) -> Callable[[], object]:
        return lambda: swept.append(mb)

    run_on(runtime, monkeypatch)
    monkeypatch.setattr(benchmark, "sweep", sweep)
    price = time_kernel(kernel, weights_mb, RUNTIME, REFERENCE_MS)
    assert price.ms == pytest.approx(ms, rel=0.01)
    assert sorted(set(swept)) == pytest.approx([swept_mb] if swept_mb else [], abs=0.1)


def test_every_timing_of_a_kernel_counts_also_the_one_that_finds_the_number_of_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_on(TimedKernels({"Gemm": 0.5, "MatMul": REFERENCE_MS}), monkeypatch)
    with counting() as counts:
        time_kernel(HUGE, 64, RUNTIME, REFERENCE_MS)
        assert counts.take() == Counts(kernel_timings=1), "one copy is all that fits"
        time_kernel(SMALL, 64, RUNTIME, REFERENCE_MS)
        assert counts.take() == Counts(kernel_timings=2)


def test_a_sweep_reads_as_much_as_it_says() -> None:
    for mb in (8.0, 2.0):
        assert sweep(mb)() == 1.0 and benchmark._memory.nbytes >= 1e6 * mb


def test_a_price_says_how_sure_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spread is never below the difference between sessions, which a single session cannot show."""
    spreads = []
    for noise in (0.0, 0.02, 0.2):
        run_on(TimedKernels({"Relu": 0.5, "MatMul": REFERENCE_MS}, FakeMachine(noise=noise)), monkeypatch)
        price = time_kernel(RELU, 0, RUNTIME, REFERENCE_MS)
        assert price.timings == 1 and price.error_ms == price.ms * price.spread
        spreads.append(price.spread)
    assert spreads[0] == pytest.approx(SESSIONS_DIFFER)
    assert spreads[0] < spreads[1] < spreads[2]


def test_prices_cover_the_truth_where_sessions_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of both kernels differ, together by 0.3 %; of 30 prices, fewer than 23 cover the truth once in 10^4."""
    covered = 0
    for seed in range(30):
        machine = FakeMachine(noise=0.002, session_noise=0.003 / math.sqrt(2), seed=seed)
        run_on(TimedKernels({"Relu": 0.5, "MatMul": REFERENCE_MS}, machine), monkeypatch)
        price = time_kernel(RELU, 0, RUNTIME, REFERENCE_MS)
        covered += abs(price.ms - 0.5) <= price.error_ms
    assert covered >= 23


def test_a_price_is_less_sure_where_the_machine_is_not_as_fast_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes slow the reference kernel down, and nobody knows how much they slow the kernel down."""
    spreads = []
    for slower in (1.0, 1.1, 1.5):
        run_on(TimedKernels({"Relu": 0.5, "MatMul": slower * REFERENCE_MS}, FakeMachine(noise=0.002)), monkeypatch)
        price = time_kernel(RELU, 0, RUNTIME, REFERENCE_MS)
        assert abs(math.log(price.ms / 0.5)) <= price.spread * 1.01 / OTHERS_SHARE
        spreads.append(price.spread)
    assert spreads[0] < NOISY / 2 and spreads[1] > OTHERS_SHARE * math.log(1.09) and spreads[2] > 2 * NOISY


def test_the_reference_kernel_is_timed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    run_on(TimedKernels({"MatMul": REFERENCE_MS}, FakeMachine(drift=0.0002)), monkeypatch)
    assert time_reference_kernel(RUNTIME) == pytest.approx(REFERENCE_MS, rel=0.02)


def test_other_models_too_are_timed_in_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds whatever the machine's speed is at the time."""
    (model, feeds), effort = copies_model(RELU, 10), Effort(pairs=20, seconds=60, sessions=2, control=False)
    for speed in (1.0, 0.3):
        ms = {"Relu": 0.5 / speed, "MatMul": REFERENCE_MS / speed}
        run_on(TimedKernels(ms, FakeMachine(drift=0.0002)), monkeypatch)
        timing = measure_beside(model, RUNTIME, effort, feeds)
        assert timing.ratio.value * usual_ms(REFERENCE_MS) == pytest.approx(10 * 0.5, rel=0.01)


def test_a_kernel_that_cannot_be_run_alone_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = TimedKernels({"Cast": 1.0, "MatMul": REFERENCE_MS})
    run_on(runtime, monkeypatch)
    for dtype, said in ((TensorProto.STRING, "reads text"), (TensorProto.BFLOAT16, "reads bfloat16 4")):
        with pytest.raises(ModelError, match=f"operator Cast {said}.*endtoend:"):
            time_kernel(Kernel("", "Cast", 13, "{}", (Operand(dtype, (4,)),), (True,)), 0, RUNTIME, REFERENCE_MS)
    assert not runtime.opened


# On the real machine


NAMES = ["squeezenet1.1-tiny", "bert-base-tiny", "inception-v3-tiny", "nasrnn-tiny"]


@cache
def kernels_of(name: str) -> tuple[Kernel, ...]:
    """Returns each kernel of a graph once."""
    model = OnnxModel.load(zoo.build(name))
    placed = lower(model.sketch(model.graph).model, RUNTIME)
    return tuple({each.kernel.signature: each.kernel for each in placed}.values())


def test_copies_read_inputs_that_were_not_read_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read in turn as many inputs as take `RECENT_MB`, all of one value."""
    model, feeds = copies_model(SMALL, 7, 3)
    read = [node.input[0] for node in model.skeleton.graph.node]
    assert len(set(read)) == 3 and read[:3] == read[3:6] and set(read) == set(feeds)
    assert all(np.array_equal(array, feeds[read[0]]) for array in feeds.values())
    sets: list[int] = []
    monkeypatch.setattr(
        benchmark,
        "copies_model",
        lambda *given: sets.append(given[2] if len(given) > 2 else 1) or copies_model(*given),
    )
    for dims in ((64, 512), (1024, 1024), (4, 4)):
        relu = Kernel("", "Relu", 14, "{}", (Operand(F, dims),), (True,))
        run_on(TimedKernels({"Relu": 0.01, "MatMul": REFERENCE_MS}), monkeypatch)
        time_kernel(relu, 64, RUNTIME, REFERENCE_MS)
    assert {31, 1, MOST_COPIES} <= set(sets)


def test_a_view_costs_its_call_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = []
    for rows in (1, 1 << 20):
        view = Kernel(
            "", "Reshape", 14, "{}", (Operand(F, (rows, 8)), Operand(TensorProto.INT64, (1,), True, (-1,))), (True,)
        )
        run_on(TimedKernels({"Reshape": 0.001, "MatMul": REFERENCE_MS}), monkeypatch)
        prices.append(time_kernel(view, 64, RUNTIME, REFERENCE_MS).ms)
    assert prices == pytest.approx([0.001, 0.001], rel=0.02)
    model, feeds = views_model(5)
    session = OnnxRuntime(level="disabled").open(model, feeds)
    session.run()
    assert np.array_equal(session.outputs()[0], feeds["x"]) and len(model.skeleton.graph.node) == 5


@pytest.mark.parametrize("name", NAMES)
def test_copies_of_every_kernel_run(name: str) -> None:
    kernels = [REFERENCE_KERNEL, *kernels_of(name)]
    assert len(kernels) > 5
    for kernel in kernels:
        require_timeable(kernel)
        model, feeds = copies_model(kernel, 3)
        session = OnnxRuntime(level="disabled").open(model, feeds)
        session.run()
        outputs = session.outputs()
        assert len(outputs) == 3 * sum(kernel.results), kernel.description
        assert [node.op_type for node in model.skeleton.graph.node] == [kernel.op_type] * 3


def test_signatures_say_all_there_is_to_a_kernel() -> None:
    for name in NAMES:
        for kernel in kernels_of(name):
            assert Kernel.of_signature(kernel.signature) == kernel


FLOATS = [F, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN]
QUANTISED = [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4, TensorProto.INT16]


@pytest.mark.parametrize("dtype", [*FLOATS, *QUANTISED], ids=TensorProto.DataType.Name)
def test_no_two_copies_have_equal_weights(dtype: int) -> None:
    """ONNX Runtime would keep equal weights once, and read them from a cache."""
    kernel = Kernel("", "MatMul", 13, "{}", (X, Operand(dtype, (512, 6), True)), (True,))
    model, _ = copies_model(kernel, MOST_COPIES)
    contents = {bytes(content_bytes(name, tensor)) for name, tensor in model.tensors.items()}
    assert len(contents) == len(model.tensors) == MOST_COPIES
    (nbytes,) = {tensor.nbytes for tensor in model.tensors.values()}
    assert weight_bytes(kernel) == nbytes


@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny"])
def test_no_two_copies_of_a_real_kernel_have_equal_weights(name: str) -> None:
    found = 0
    for kernel in kernels_of(name):
        model, _ = copies_model(kernel, 5)
        for place, operand in enumerate(kernel.operands):
            if operand is not None and operand.is_weight:
                found += 1
                contents = {bytes(content_bytes("w", model.tensors[f"w{place}.{copy}"])) for copy in range(5)}
                assert len(contents) == 5, kernel.description
    assert found > 3


@pytest.mark.parametrize(
    "operand",
    [
        Operand(TensorProto.INT64, (100,), True),
        Operand(TensorProto.INT32, (10, 10), True),
        Operand(TensorProto.INT8, (100,), True),
    ],
    ids=lambda operand: operand.description,
)
def test_indices_and_zero_points_stay_zero(operand: Operand) -> None:
    """Other values might be indices out of bounds, or be refused."""
    model, _ = copies_model(Kernel("", "Gather", 13, "{}", (X, operand), (True,)), 5)
    assert all(not np.any(tensor.numpy()) for tensor in model.tensors.values())


def test_quantised_kernels_run_with_weights_of_their_own() -> None:
    operands = (Operand(TensorProto.UINT8, (64, 512)), Operand(TensorProto.INT8, (512, 512), True))
    kernel = Kernel("", "MatMulInteger", 10, "{}", operands, (True,))
    model, feeds = copies_model(kernel, 4)
    session = OnnxRuntime(level="disabled").open(model, {"x0.0": np.ones_like(feeds["x0.0"])})
    session.run()
    assert len({output.tobytes() for output in session.outputs()}) == 4


def test_what_is_wanted_is_within_the_bounds() -> None:
    """If the constants do not fit one another, the cases above test something else."""
    assert weight_bytes(LARGE) / 1e6 > MOST_MB / FEWEST_COPIES > weight_bytes(SMALL) / 1e6
    assert weight_bytes(HUGE) / 1e6 > MOST_MB and LONG_MS == 20.0
