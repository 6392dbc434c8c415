"""Run times of models relative to each other: the only place where run times of models are measured.

    reference = Variant("input", OnnxRuntime(), model)
    timing = measure(reference, [Variant("rewritten", OnnxRuntime(), other)])
    print(timing.ratio, timing.ending)

A machine's speed drifts by more than the gain of a rewrite. Samples of all variants therefore alternate in random
order, and a result is the median of paired ratios. Every variant gets several sessions, because sessions of identical
bytes differ by a few tenths of a percent. As a control, a second session of the reference is measured too.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from environment.counting import count
from environment.inputs import Feeds, input_specs, timing_feeds
from environment.measurement.effort import Effort, Ended, common_clock
from environment.measurement.interleaving import Groups, Interleaving, Sampler
from environment.runtimes import Runtime
from environment.statistics.intervals import Estimate
from environment.statistics.sequential import Verdict, verdict_of
from taso_ext.onnx_io.checked_model import CheckedModel


@dataclass(frozen=True)
class Variant:
    """A model in a runtime, to be timed.

    Attributes:
      name: name in the result.
      runtime: runtime with all its settings.
      model: a model with the same inputs as the reference's.
      before_each: called before each inference and not timed, for example to flush caches; inferences are then timed
        one by one.
    """

    name: str
    runtime: Runtime
    model: CheckedModel
    before_each: Callable[[], object] | None = None


@dataclass(frozen=True)
class VariantTiming:
    """The measurement of one variant.

    Attributes:
      name, runtime: name of the variant and label of its runtime.
      ms: time of one inference.
      ratio: its time over the reference's; below 1 is faster, and the reference has exactly 1.
      noise: interquartile range of its samples over their median.
      ratios: the ratios of its pairs in the order of time; none for the reference.
    """

    name: str
    runtime: str
    ms: Estimate
    ratio: Estimate
    noise: float
    ratios: tuple[float, ...] = ()

    def verdict(self, floor: float) -> Verdict:
        """Returns whether it is faster or slower than the reference.

        The pairs of a session have something in common, such as the places of their weights in memory. So the pairs
        alone do not decide: the interval of the ratio, which knows of sessions, has to be on the same side of 1.

        Args:
          floor: ratios closer to 1 than this are noise.
        """
        found = verdict_of(self.ratios, floor)
        agrees = self.ratio.high < 1 if found is Verdict.FASTER else self.ratio.low > 1
        return found if agrees else Verdict.UNDECIDED


@dataclass(frozen=True)
class Timing:
    """A finished measurement.

    Attributes:
      reference, candidates: timings in the order of the arguments.
      control: the reference against itself; None if it was not requested.
      pairs: number of samples of each candidate.
      sessions: number of sessions of each variant.
      ended: what ended the measurement: the resolution, the time or the number of pairs.
      resolution: the requested resolution; None if there was none.
      precision: half the width of the widest interval of a candidate, as a fraction of its ratio.
      clock: name of the clock.
      seconds: wall-clock time of the measurement.
    """

    reference: VariantTiming
    candidates: tuple[VariantTiming, ...]
    control: VariantTiming | None
    pairs: int
    sessions: int
    ended: Ended
    resolution: float | None
    precision: float
    clock: str
    seconds: float

    @property
    def ratio(self) -> Estimate:
        """Ratio of the only candidate."""
        (candidate,) = self.candidates
        return candidate.ratio

    @property
    def ending(self) -> str:
        """A sentence that says why the measurement ended, and whether the clock was too noisy for the resolution."""
        reached = f"±{100 * self.precision:.2g} %"
        effort = f"{self.pairs} pairs in {self.sessions} session{'s' * (self.sessions > 1)}"
        if self.ended == "resolution":
            return f"Measured to {reached} by {effort}."
        limit = "the time was up" if self.ended == "time" else "the pairs were used up"
        if self.resolution is None or self.precision <= self.resolution:
            return f"Measured to {reached} by {effort}, when {limit}."
        return (
            f"The {self.clock} was too noisy for ±{100 * self.resolution:.2g} %: when {limit}, {effort} had given "
            f"{reached} (samples of one model spread by {100 * self.reference.noise:.2g} %)."
        )


def measure(
    reference: Variant,
    candidates: Sequence[Variant] = (),
    effort: Effort | None = None,
    *,
    feeds: Feeds | None = None,
    on_pair: Callable[[int, int], object] | None = None,
    of_kernels: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> Timing:
    """Times variants against a reference, all in one interleaved run and by one clock.

    Each candidate, or the reference that is timed alone, counts as a timing (`environment.counting`) once all variants
    have a sample, even if an error ends the measurement.

    Args:
      candidates: if empty, the reference alone is timed, and the resolution is that of its time.
      effort: None means the defaults of `Effort`.
      feeds: arrays by input name; None means `timing_feeds` of the reference.
      on_pair: called with (pairs done, most pairs) after each pair.
      of_kernels: whether the models are copies of single kernels, which are counted apart from whole graphs.
      now: returns wall-clock seconds, for the limit of time.
    Raises:
      UnavailableError: a runtime or device is not here.
      ModelError: a runtime cannot run a model.
    """
    begin, spent = now(), effort or Effort()
    if feeds is None:
        feeds = timing_feeds(input_specs(reference.model), np.random.default_rng(spent.seed))
    again = [replace(reference, name=f"{reference.name}, again")] if spent.control and candidates else []
    variants = [reference, *candidates, *again]
    clock = common_clock(each.runtime.clock for each in variants)

    def open_sampler(index: int) -> Sampler:
        session = variants[index].runtime.open(variants[index].model, feeds)
        return Sampler(session, clock, spent.warmup, spent.settling, variants[index].before_each)

    judged = range(1, 1 + len(candidates))
    run = Interleaving(open_sampler, len(variants), judged, spent, on_pair, now)
    try:
        ended = run.run()
    finally:
        timed = max(len(candidates), 1) if run.pairs else 0
        count(**{"kernel_timings" if of_kernels else "end_to_end_timings": timed})
    found = [_variant_timing(variant, run, index) for index, variant in enumerate(variants)]
    return Timing(
        reference=found[0],
        candidates=tuple(found[1 : 1 + len(candidates)]),
        control=found[-1] if again else None,
        pairs=run.pairs,
        sessions=run.sessions,
        ended=ended,
        resolution=spent.resolution,
        precision=run.precision(),
        clock=clock.name,
        seconds=now() - begin,
    )


def _variant_timing(variant: Variant, run: Interleaving, index: int) -> VariantTiming:
    time_ms = run.time(index).scaled(1e3)
    ratio = run.ratio(index) if index else Estimate(1.0, 1.0, 1.0)
    ratios = tuple(itertools.chain(*run.ratios[index]))
    return VariantTiming(variant.name, variant.runtime.label, time_ms, ratio, _noise(run.seconds[index]), ratios)


def _noise(groups: Groups) -> float:
    low, median, high = np.percentile(np.concatenate(groups), [25, 50, 75])
    return float((high - low) / median)
