"""Comparison of several tools on one model: equal outputs, run time and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property

import numpy as np

from environment import zoo
from environment.inputs import TIMED_ON, Feeds, InputSpec, input_specs, random_feeds, timing_feeds
from environment.measurement.effort import Effort
from environment.measurement.memory import MeasuringProcessError, peak_memory
from environment.measurement.timing import Variant, measure
from environment.statistics.intervals import Estimate
from environment.verification import Scale, difference, spread_of
from experiments.baselines.tools import Tool
from experiments.errors import UserError
from experiments.executors.units import Record, once
from experiments.reproduce.search.plays import slug
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model

TABLE = "baselines"
TOLERANCE = 1e-4
"""Largest difference of an output from the reference's, as a fraction of the output's spread; the same as for a
rewrite. On the zoo's graphs no library is further off than 1.1e-5."""


class Comparison:
    """A comparison of tools on one zoo graph: each tool is compared with one of them, the reference.

    Args:
      name: the name of the zoo graph.
      tools: the tools by name.
      reference: the name of the tool that the others are compared with.
      required: the names of the tools that must be able to run the graph, beside the reference. If another tool cannot
        run it, that is a result like any other.
      processor: the processor that runs the tools.
      table: the table that keeps the units.
    """

    def __init__(
        self,
        name: str,
        tools: Mapping[str, Tool],
        reference: str,
        required: set[str],
        processor: str,
        *,
        table: str = TABLE,
    ) -> None:
        self._name, self._tools, self._reference = name, tools, reference
        self._processor, self._table = processor, table
        self._required = {*required, reference}
        self._prepared: dict[str, CheckedModel | ModelError] = {}

    def times(self, effort: Effort, settings: Record) -> Record:
        """Times all tools in one interleaved run; a finished run is not made again.

        Args:
          effort: the effort of the measurement, with a control.
          settings: what the times depend on beside the labels of the tools.
        Returns:
          `ms`, the time of the reference; `ratios`, by tool its time over the reference's (1 for the reference);
          `refused`, by tool the reason why it cannot run the graph; `control`, the ratio of the reference to itself;
          `clock` and `ending`, in words the clock and why the measurement ended.
        Raises:
          UserError: a tool computes something else than the reference, or a required tool cannot run the graph.
          ValueError: the effort has no control.
        """
        labels = {name: each.label for name, each in self._tools.items()}
        return once(
            self._table,
            f"{self._name}-time",
            {"effort": asdict(effort), "labels": labels, "processor": self._processor, "feeds": TIMED_ON, **settings},
            lambda: self._time(effort),
        )

    def memory(self, name: str, settings: Record) -> Record:
        """Measures the peak memory of one tool in a process of its own; a finished measurement is not made again.

        Returns:
          `total`, the bytes of the process, and `added`, the part of them that the model added; or `refused`, the
          reason why there are none. If the process was killed or took too long, the next run tries it again.
        Raises:
          UserError: a required tool cannot run the graph.
        """
        label = self._tools[name].label
        settings = {"label": label, "processor": self._processor, **settings}
        try:
            return once(self._table, f"{self._name}-memory-{slug(name)}", settings, lambda: self._remember(name))
        except MeasuringProcessError as error:
            return {"refused": str(error)}

    @cached_property
    def _original(self) -> CheckedModel:
        return read_model(zoo.build(self._name))

    @cached_property
    def _specs(self) -> list[InputSpec]:
        return input_specs(self._original)

    @cached_property
    def _compared_on(self) -> Feeds:
        return random_feeds(self._specs, np.random.default_rng(0))

    @cached_property
    def _timed_on(self) -> Feeds:
        return timing_feeds(self._specs, np.random.default_rng(0))

    def _model(self, name: str) -> CheckedModel:
        """Returns the model as a tool prepares it; each tool prepares it once."""
        if name not in self._prepared:
            try:
                self._prepared[name] = self._tools[name].prepare(self._original)
            except ModelError as error:
                self._prepared[name] = error
        found = self._prepared[name]
        if isinstance(found, ModelError):
            raise found
        return found

    def _time(self, effort: Effort) -> Record:
        refused = self._refused()
        fit = [name for name in self._tools if name not in refused and name != self._reference]
        found = measure(
            self._variant(self._reference), [self._variant(name) for name in fit], effort, feeds=self._timed_on
        )
        if found.control is None:
            raise ValueError("the effort of a comparison has to have a control")
        ratios = {self._reference: found.reference.ratio, **{each.name: each.ratio for each in found.candidates}}
        return {
            "ms": asdict(found.reference.ms),
            "ratios": {name: asdict(ratio) for name, ratio in ratios.items()},
            "control": asdict(found.control.ratio),
            "refused": refused,
            "clock": found.clock,
            "ending": found.ending,
        }

    def _variant(self, name: str) -> Variant:
        return Variant(name, self._tools[name].runtime, self._model(name))

    def _refused(self) -> dict[str, str]:
        """Runs every tool once and checks its outputs; returns by tool why it cannot run the graph."""
        try:
            expected = self._outputs(self._reference)
        except ModelError as error:
            raise self._has_to_run(self._reference, error) from error
        refused = {}
        for name in self._tools:
            try:
                found = self._outputs(name)
            except ModelError as error:
                if name in self._required:
                    raise self._has_to_run(name, error) from error
                refused[name] = str(error)
            else:
                self._require_same(name, expected, found)
        return refused

    def _outputs(self, name: str) -> list[np.ndarray]:
        session = self._tools[name].runtime.open(self._model(name), self._compared_on)
        session.run()
        return session.outputs()

    def _require_same(self, name: str, expected: list[np.ndarray], found: list[np.ndarray]) -> None:
        gaps = [
            difference(one, other, Scale(spread_of((one,)), TOLERANCE))
            for one, other in zip(expected, found, strict=False)
        ]
        gap = max(gaps, default=0.0) if len(found) == len(expected) else np.inf
        if not gap <= TOLERANCE:
            raise UserError(
                f"On {self._name}, {name} ({self._tools[name].label}) computes something else than "
                f"{self._reference} ({self._tools[self._reference].label}): an output differs by {gap:.2g} of "
                f"its spread, and {TOLERANCE:g} is allowed. Its time would mean nothing. Leave it out, or mend it."
            )

    def _has_to_run(self, name: str, error: ModelError) -> UserError:
        return UserError(f"{name} ({self._tools[name].label}) has to run {self._name}, and cannot: {error}")

    def _remember(self, name: str) -> Record:
        try:
            found = peak_memory(self._tools[name].runtime, self._model(name), feeds=self._timed_on)
        except ModelError as error:
            if name in self._required:
                raise self._has_to_run(name, error) from error
            return {"refused": str(error)}
        return {"total": found.total_bytes, "added": found.session_bytes}


def estimate(record: Record) -> Estimate:
    """Returns the estimate that a record stores."""
    return Estimate(**record)
