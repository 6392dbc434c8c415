"""Timing two models against each other, end to end, in ONNX Runtime.

Runs alternate, because a machine's speed drifts by more than what a rewrite changes: the result is the median of paired
ratios. Several sessions per model, because sessions of identical bytes differ by a few tenths of a percent. On a CPU
with one thread the calling thread's CPU time is taken, so that other processes do not count.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort

from environment.model_inputs import Feeds, input_specs, random_feeds
from taso_ext.detached import DetachedModel, detach
from taso_ext.errors import did_you_mean
from taso_ext.onnx_session import create_session

_SHORTEST_SAMPLE_S = 0.002
"""Faster models are run several times per sample: clocks and caches make shorter ones noisy."""
_MOST_REPEATS = 1000
_BOOTSTRAP_SAMPLES = 1000
_CONFIDENCE = 0.95
_FEWEST_PAIRS = 5
"""Pairs of each session before a measurement may count as precise enough."""
_PROVIDER = "ExecutionProvider"
_REMOTE = ("AzureExecutionProvider",)  # sends the model to a web service
_ATTEMPTS = 3
"""How often a sample is taken again when another process interrupted it; on a busy machine the last one has to do."""
_LONG_SAMPLE_S = 0.05
"""Longer samples are interrupted on most machines, and an interruption is a small part of them: they are kept."""


class DeviceError(ValueError):
    """A device that ONNX Runtime does not have here; the message names the ones it has."""


@dataclass(frozen=True)
class Measurement:
    """Run time of a candidate relative to a reference.

    Attributes:
      ratio: median over pairs of candidate time over reference time; below 1 is faster.
      ci_low, ci_high: 95 % bootstrap interval of the ratio.
      reference_ms, candidate_ms: median time of one inference.
      pairs: how many pairs were measured.
      sessions: how many sessions of each model they were spread over.
      device, threads: where, and with how many threads.
    """

    ratio: float
    ci_low: float
    ci_high: float
    reference_ms: float
    candidate_ms: float
    pairs: int
    sessions: int
    device: str
    threads: int

    @property
    def significant(self) -> bool:
        """Whether the interval excludes equal speed."""
        return not self.ci_low <= 1.0 <= self.ci_high


def available_devices() -> list[str]:
    """Devices of this ONNX Runtime, such as `cpu`, `cuda` and `tensorrt`."""
    return [name.removesuffix(_PROVIDER).lower() for name in ort.get_available_providers() if name not in _REMOTE]


def measure_pair(
    reference: onnx.ModelProto | DetachedModel,
    candidate: onnx.ModelProto | DetachedModel,
    *,
    device: str = "cpu",
    threads: int = 1,
    pairs: int = 60,
    resolution: float | None = None,
    sessions: int = 5,
    warmup: int = 3,
    seed: int = 0,
    on_pair: Callable[[int, int], object] | None = None,
) -> Measurement:
    """Measures two models of the same inputs, both with ONNX Runtime's full optimisation.

    Args:
      device: one of `available_devices()`.
      pairs: how many pairs of samples to take, at most.
      resolution: stop earlier, once half the width of the interval is below this (0.01: one percent).
      sessions: sessions of each model, used one after the other so that only two are in memory at a time.
      warmup: runs of a new session that are not counted.
      seed: of the inputs, the order within pairs and the bootstrap.
      on_pair: called with (pairs done, `pairs`) after each pair.
    Raises:
      DeviceError: an unknown device.
      ModelError: ONNX Runtime cannot run one of the models.
    """
    if pairs < 2 or sessions < 1:
        raise ValueError(f"expected at least 2 pairs and 1 session, got {pairs} and {sessions}")
    provider = provider_of(device)
    rng = np.random.default_rng(seed)
    reference, candidate = detach(reference), detach(candidate)
    feeds = random_feeds(input_specs(reference), rng)
    sessions = min(sessions, pairs)
    groups: list[list[tuple[float, float]]] = []
    for index in range(sessions):
        share = pairs // sessions + (index < pairs % sessions)
        groups.append([])
        for pair in _sample_pairs(reference, candidate, feeds, provider, threads, warmup, share, rng):
            groups[-1].append(pair)
            if on_pair is not None:
                on_pair(sum(map(len, groups)), pairs)
            if resolution is not None and len(groups[-1]) >= _FEWEST_PAIRS and _half_width(groups, seed) <= resolution:
                break
    times = np.concatenate([np.array(group) for group in groups])
    low, high = median_interval(_ratios(groups), seed)
    return Measurement(
        ratio=float(np.median(times[:, 1] / times[:, 0])),
        ci_low=low,
        ci_high=high,
        reference_ms=1e3 * float(np.median(times[:, 0])),
        candidate_ms=1e3 * float(np.median(times[:, 1])),
        pairs=len(times),
        sessions=sessions,
        device=device,
        threads=threads,
    )


def median_interval(groups: Sequence[np.ndarray], seed: int, confidence: float = _CONFIDENCE) -> tuple[float, float]:
    """Bootstrap interval of the median of samples that come in groups with an error in common.

    Groups are drawn first, then samples within each: drawing single samples alone would take the samples of one session
    for independent, and call differences between sessions effects.

    Args:
      groups: [n] samples of each session.
    Source: Davison & Hinkley 1997, section 3.8 (hierarchical data).
    """
    rng = np.random.default_rng(seed)
    sizes = np.array([len(group) for group in groups])
    table = np.full((len(groups), sizes.max()), np.nan)  # [session, sample], padded
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    drawn = rng.integers(0, len(groups), (_BOOTSTRAP_SAMPLES, len(groups)))
    size = sizes[drawn][:, :, np.newaxis]
    places = (rng.random((*drawn.shape, table.shape[1])) * size).astype(np.int64)
    values = table[drawn[:, :, np.newaxis], places]  # [bootstrap, session, sample]
    values[np.broadcast_to(np.arange(table.shape[1]) >= size, values.shape)] = np.nan
    medians = np.nanmedian(values.reshape(_BOOTSTRAP_SAMPLES, -1), axis=1)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(medians, [tail, 100.0 - tail])
    return float(low), float(high)


def _sample_pairs(
    reference: DetachedModel,
    candidate: DetachedModel,
    feeds: Feeds,
    provider: str,
    threads: int,
    warmup: int,
    count: int,
    rng: np.random.Generator,
) -> Iterator[tuple[float, float]]:
    """(reference, candidate) seconds per inference, from one new session of each."""
    runners = [_Runner(model, feeds, provider, threads, warmup) for model in (reference, candidate)]
    repeats = _repeats(runners)
    for _ in range(count):
        times = [0.0, 0.0]
        for which in rng.permutation(2):
            times[which] = runners[which].run(repeats)
        yield times[0], times[1]


def _ratios(groups: list[list[tuple[float, float]]]) -> list[np.ndarray]:
    return [np.array([candidate / reference for reference, candidate in group]) for group in groups]


def _half_width(groups: list[list[tuple[float, float]]], seed: int) -> float:
    low, high = median_interval(_ratios(groups), seed)
    return (high - low) / 2


def provider_of(device: str) -> str:
    """ONNX Runtime's name of a device. Raises DeviceError if it is not available."""
    known = available_devices()
    if device not in known:
        hint = did_you_mean(device, known)
        raise DeviceError(
            f"device '{device}' is not available{hint}: ONNX Runtime {ort.__version__} has {', '.join(known)} here. "
            f"Name one of these with --device; for `cuda` install onnxruntime-gpu instead of onnxruntime."
        )
    providers = {name.removesuffix(_PROVIDER).lower(): name for name in ort.get_available_providers()}
    return providers[device]


class _Runner:
    """A session with its inputs and outputs bound, which a sample runs a number of times."""

    def __init__(self, model: DetachedModel, feeds: Feeds, provider: str, threads: int, warmup: int) -> None:
        providers = list(dict.fromkeys((provider, "CPUExecutionProvider")))
        self._session = create_session(model, optimise=True, threads=threads, providers=providers)
        self._feeds = feeds
        self._binding = _bind(self._session, feeds, provider)
        # The CPU clock of the calling thread sees all the work only where that thread does all of it.
        self._alone = provider == "CPUExecutionProvider" and threads == 1
        for _ in range(max(warmup, 1)):
            self._infer()

    def run(self, repeats: int) -> float:
        """Seconds per inference."""
        for _ in range(_ATTEMPTS):
            interruptions = _interruptions()
            start = self._clock()
            for _ in range(repeats):
                self._infer()
            elapsed = self._clock() - start
            if elapsed > _LONG_SAMPLE_S or _interruptions() == interruptions:
                break
        return elapsed / repeats

    def _clock(self) -> float:
        return time.thread_time() if self._alone else time.perf_counter()

    def _infer(self) -> None:
        if self._binding is None:
            self._session.run(None, self._feeds)
        else:
            self._session.run_with_iobinding(self._binding)


def _bind(session: ort.InferenceSession, feeds: Feeds, provider: str) -> ort.IOBinding | None:
    """Binds inputs and outputs, which saves copies; None where strings or sequences rule that out."""
    values = (*session.get_inputs(), *session.get_outputs())
    if any(not value.type.startswith("tensor(") or "string" in value.type for value in values):
        return None
    place = "cuda" if provider in ("CUDAExecutionProvider", "TensorrtExecutionProvider") else "cpu"
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, place, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, place)
    return binding


def _interruptions() -> int:
    """How often this thread was made to wait while it had work to do."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _repeats(runners: list[_Runner]) -> int:
    """Runs per sample, the same for both models."""
    fastest = min(runner.run(1) for runner in runners)
    return int(np.clip(np.ceil(_SHORTEST_SAMPLE_S / max(fastest, 1e-9)), 1, _MOST_REPEATS))
