"""`rlflow validate`: replays a finished run from its files, proves and times what it wrote, and names every difference.

Nothing here needs TensorFlow: a run is its action logs, whoever chose the actions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import onnx

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord
from environment.costs.end_to_end import RecordedEndToEnd
from environment.costs.measured.cost_model import Recorded
from environment.costs.prices.settings import setting_of
from environment.runtimes.onnx_runtime import require_working
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.output_file import WrittenFile, content_hash
from experiments.pipeline.check import Checked, DifferentInterface, compared, read_result
from experiments.pipeline.clock.measure import runtime_of
from experiments.pipeline.clock.timings import CHECKPOINT as WHOLE_GRAPHS
from experiments.pipeline.clock.timings import kept_timings
from experiments.pipeline.learning.collect import as_record
from experiments.pipeline.learning.controller import journal_of, num_timed
from experiments.pipeline.learning.evaluate import EVALUATION, TRAINING
from experiments.pipeline.learning.rounds import BEST_IN_TRAINING
from experiments.pipeline.loading.load import Loaded, find_model
from experiments.pipeline.loading.replay import rewritten, rules_up_to
from experiments.pipeline.optimise import sources_of
from experiments.pipeline.select import CLIMB_EPISODE, selected_before
from experiments.pipeline.stored import StoredRun
from experiments.runs.body_plan import Plans, plans_from_json
from experiments.runs.directory import OUTPUT
from experiments.runs.manifest import compares_as_here
from experiments.runs.progress import ProgressDisplay, warnings_noted
from experiments.runs.result import GraphFigures, MeasuredRatio, Result
from experiments.runs.run import Run
from experiments.validation.compared_times import time_differences
from experiments.validation.recomputed_costs import Recomputed, device_of, recomputable, require_same_prices, widened
from experiments.validation.recorded_figures import RecordedFigures, differences, verified_differences
from experiments.validation.replayed_episodes import COLLECTED, Claim, Difference, Replay, Tolerance
from experiments.validation.timed_graphs import JOURNAL, journal_differences, whole_graph_differences
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.dimensions import open_dims
from taso_ext.onnx_io.reading import read_model
from worldmodel.data.episodes import EpisodeBuffer, reset_seed

T = TypeVar("T")
SHOWN = 10
"""Number of differences that are printed; `--json` has all."""


@dataclasses.dataclass(frozen=True)
class Validated:
    """A run that was replayed.

    Attributes:
      run: the run directory.
      episodes, steps: numbers of episodes that were replayed, and of their steps.
      costs: the cost model of the run.
      recomputed: whether costs were recomputed, and how they were compared with the records.
      why: why costs were not compared exactly; empty if they were.
      draws: whether rewards are made of drawn costs (`noise=resampled`), which depend on the seeds of episodes.
      differences: what is not as it was recorded.
      output: what was compared with the model: the file that the run wrote, or what its actions lead to.
      checked: the comparison of `output` with the model, as of `rlflow check`; None if it could not be read.
      unchecked: one sentence for each group of figures that were not compared although the run has recorded them.
      measured_then: the end-to-end measurement in the run's own result; None if there was none.
      other_setting: why the two measurements were not compared; empty if they were, or if one is missing.
    """

    run: str
    episodes: int
    steps: int
    costs: str
    recomputed: Recomputed
    why: str
    draws: bool
    differences: tuple[Difference, ...]
    output: str
    checked: Checked | None
    unchecked: tuple[str, ...]
    measured_then: MeasuredRatio | None
    other_setting: str

    @property
    def holds(self) -> bool:
        """Whether nothing differs from the records, and the outputs are not known to differ from the model's."""
        wrong = self.checked is None or (self.checked.is_judged and not self.checked.verification.equal)
        return not (self.differences or wrong)

    @property
    def is_judged(self) -> bool:
        """Whether the outputs could be compared."""
        return self.checked is not None and self.checked.is_judged

    def lines(self) -> list[str]:
        """Returns the sentences that the user reads, the most important first."""
        lines = [f"DIFFERENT: {each}." for each in self.differences[:SHOWN]]
        if len(self.differences) > SHOWN:
            lines.append(f"And {len(self.differences) - SHOWN} more differences; --json lists them.")
        played = f"{self.episodes:,} episode{'s' * (self.episodes != 1)} with {self.steps:,} steps"
        verdict = "Replayed" if self.differences else "As recorded:"
        again = ", and drawn ones were drawn again" * self.draws
        how = {
            "exactly": f"costs were recomputed exactly ({self.costs}){again}",
            "within noise": f"costs ({self.costs}) were compared within their noise, because {self.why}",
            "not at all": f"costs ({self.costs}) were not recomputed, because {self.why}",
        }
        lines.append(f"{verdict} {played} in the exact engine; {how[self.recomputed]}.")
        lines.append(f"Compared with the model: {self.output}.")
        lines += [] if self.checked is None else self.checked.lines()
        if self.measured_then is not None:
            with_reason = f"; the two were not compared, because {self.other_setting}" if self.other_setting else ""
            lines.append(f"When the run ended, the ratio was {self.measured_then.interval}{with_reason}.")
        return [*lines, *self.unchecked]

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {**dataclasses.asdict(self), "holds": self.holds}


def validate(
    path: Path,
    progress: ProgressDisplay,
    *,
    device: str | None = None,
    timed: bool = True,
    model: str | None = None,
    output: Path | None = None,
    reward: object = None,
) -> Validated:
    """Replays all action logs of a finished run, compares its result with the model, and times it.

    Args:
      path: the run directory.
      device: where the result is timed; None means where the run has timed it.
      timed: whether it is timed.
      model: where the model is now; None means where the run has found it.
      output: where OUT is now; None means where the run has written it.
      reward: see `StoredRun`.
    Raises:
      UserError, DamagedRun and similar errors: the run is not finished or a file is damaged; the model, the rules or
        the cost model have changed since; the device is not here.
    """
    run = StoredRun(path, model=model, reward=reward)
    run.require_done("nothing to validate")
    if output is not None and not output.is_file():
        raise UserError(f"There is no file {output}. Name the file that the run has written, or leave --output out.")
    config = run.config if device is None else dataclasses.replace(run.config, device=device)
    if timed:
        require_working(config.device)
    progress.note(f"Loading {run.model}")
    with warnings_noted(progress):
        return _Validation(run, config, progress).result(output, timed)


class _Validation:
    """A validation in progress."""

    def __init__(self, run: StoredRun, config: RunConfig, progress: ProgressDisplay) -> None:
        """
        Args:
          config: the settings of the run with the device that times.
        """
        self.run, self.config, self.progress = run, config, progress
        self.recomputed, self.why, costs = recomputable(run)
        replaying = dataclasses.replace(run.config, costs=costs, device=device_of(costs, run.config))
        self.loaded: Loaded = run.load_with(replaying)
        if self.recomputed == "exactly" and isinstance(self.loaded.env.costs, Recorded | RecordedEndToEnd):
            require_same_prices(run, self.loaded)
        self.result_json: dict[str, Any] = run.directory.stored("result.json", dict)
        self.log: dict[str, Any] = run.directory.stored("actions.json", dict)
        self.evaluation = self._read(EVALUATION, _evaluation)
        self.journal = journal_of(Run(run.config, run.directory, progress))
        self.differences: list[Difference] = []
        self.unchecked: list[str] = []

    def _read(self, name: str, make: Callable[[Any], T]) -> T:
        return self.run.directory.stored(name, make)

    def result(self, output: Path | None, timed: bool) -> Validated:
        """Does everything and returns what was found."""
        episodes, steps = self._replay_episodes()
        with self.run.directory.reading("actions.json"):
            self.differences += self._of_actions()
        self.differences += self._of_timed_graphs()
        with self.run.directory.reading("result.json"):
            measured = Result.from_json(self.result_json).measured
        with self.run.directory.reading("result.json", "stages.json", "actions.json", EVALUATION, TRAINING):
            self.differences += self._of_figures()
        said, after = self._output(output)
        checked = None if after is None else self._checked(said, after, timed, measured)
        return Validated(
            run=str(self.run.path),
            episodes=episodes,
            steps=steps,
            costs=self.run.config.costs,
            recomputed=self.recomputed,
            why=self.why,
            draws=self.loaded.env.draws_costs,
            differences=tuple(self.differences),
            output=said,
            checked=checked,
            unchecked=tuple(self.unchecked),
            measured_then=measured,
            other_setting=self._other_setting(checked) if measured and checked and checked.measured else "",
        )

    def _claims(self) -> Iterator[Claim]:
        """Yields all episodes that the run keeps."""
        seeds: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        for path, first, seed in self.run.shards():
            buffer, shard = EpisodeBuffer.load(path), path.relative_to(self.run.path)
            for number, episode in enumerate(buffer, first):
                record = as_record(episode, buffer.rule_names, "collection")
                seeds[record.seed, record.actions] = reset_seed(seed, episode.index)
                yield Claim(f"{shard}, episode {number}", record, reset_seed(seed, episode.index), episode)
        for kind, records in sources_of(self.evaluation).items():
            for number, record in enumerate(records):
                known = seeds.get((record.seed, record.actions)) if kind in COLLECTED else record.seed
                yield Claim(f"{EVALUATION}, {kind} episode {number}", record, known)
        for name in (BEST_IN_TRAINING, CLIMB_EPISODE):
            stored = self._read(name, lambda fields: fields and _with_numbers(EpisodeRecord.from_json(fields)))
            if stored is not None:
                yield Claim(name, stored, stored.seed)

    def _replay_episodes(self) -> tuple[int, int]:
        """Replays all episodes; returns their number and that of their steps."""
        claims = list(self._claims())
        total, done = sum(claim.record.num_steps for claim in claims), 0
        replay = Replay(self.loaded.env, self._tolerance(total))
        with self.progress.stage("replay the episodes", total) as bar:
            for claim in claims:
                difference = replay.of(claim)
                self.differences += [difference] if difference else []
                done += claim.record.num_steps
                bar.update(done)
        self._met = replay.hashes
        if without := sum(not replay.compares_rewards(claim) for claim in claims):
            because = (
                "nobody knows from which seeds their costs were drawn"
                if self.recomputed == "exactly"
                else "they are made of costs that were not recomputed exactly"
            )
            self.unchecked.append(f"Rewards of {without:,} of {len(claims):,} episodes were not compared: {because}.")
        return len(claims), done

    def _of_timed_graphs(self) -> Iterator[Difference]:
        """Yields what differs in the files of graphs that the run has timed as a whole."""
        directory, env = self.run.directory, self.loaded.env
        played = self._read(CLIMB_EPISODE, lambda fields: fields and EpisodeRecord.from_json(fields))
        if played is None and self.evaluation.deterministic.chosen is not None:
            played = self.evaluation.deterministic
        with directory.reading(JOURNAL):
            yield from journal_differences(env, self.journal, played)
        with directory.reading(WHOLE_GRAPHS):
            kept = [(each.hash, plan) for each, plan in kept_timings(directory)]
            yield from whole_graph_differences(env, kept, self._met)
        if self.journal or kept:
            self.unchecked.append(
                f"Of {num_timed(self.journal) + len(kept):,} whole graphs that were timed, the times are as the run "
                "recorded them: they were not measured again."
            )

    def _tolerance(self, comparisons: int) -> Tolerance:
        """Returns how far measured costs may be apart: 95 % intervals, widened for the number of comparisons."""
        if self.recomputed == "not at all":
            return Tolerance(compares=False)
        return Tolerance(widened=0.0 if self.recomputed == "exactly" else widened(comparisons))

    def _of_actions(self) -> Iterator[Difference]:
        """Replays the exported plan; yields what differs."""
        env, tolerance = self.loaded.env, Tolerance(compares=self.recomputed == "exactly")
        name = "actions.json"
        _, info = env.reset(options={"max_steps": len(self.log["actions"]) + 1})
        costs = [("the cost of the model", self.log["initial_cost_ms"], info["cost_ms"])]
        over = False
        for number, action in enumerate(self.log["actions"]):
            *_, terminated, truncated, info = env.step([action["rule"], action["location"]])
            over = terminated or truncated
            if info["rule_name"] != action["rule_name"]:
                yield Difference(name, number, "the rewrite", action["rule_name"], info["rule_name"])
                return
            if action["cost_ms"] is not None:
                costs.append((f"the cost after action {number}", action["cost_ms"], info["cost_ms"]))
        if self.log["actions"] and not over:  # at the end, every reward has the graph measured
            *_, info = env.step([env.num_rules, 0])
            costs[-1] = (*costs[-1][:2], info["cost_ms"])
        for number, (what, claimed, found) in enumerate(costs, -1):
            if not tolerance.equal(claimed, found):
                yield Difference(name, max(number, 0), what, f"{claimed} ms", f"{found} ms")
                return

    @functools.cached_property
    def _actions(self) -> list[tuple[int, int]]:
        return [(int(each["rule"]), int(each["location"])) for each in self.log["actions"]]

    def _of_figures(self) -> Iterator[Difference]:
        """Yields what of the figures in result.json does not follow from the records."""
        name, stored = "result.json", self.result_json
        figures = RecordedFigures(self.run, self.loaded, self.evaluation, stored)
        replayed = not self.differences
        yield from figures.differences(self.log, num_timed(self.journal))
        if replayed:  # or else the records lead elsewhere
            records = list(itertools.chain(*sources_of(self.evaluation).values()))
            selected = selected_before(self.run.directory, self.loaded, self.evaluation, records)
            yield from figures.of_selection(selected, self.log)
        if any(each.record == "actions.json" for each in self.differences):  # they lead elsewhere
            return
        reached = self.loaded.env.replay(self._actions).hash
        if reached != stored["graph_hash"]:
            yield Difference(name, None, "the hash of the exported graph", stored["graph_hash"], reached)
            return
        if not stored.get("symbolic"):  # or else OUT is not what the actions alone lead to
            exported, before = self._exported_again(), self.loaded.model
            raised = exported.opset > before.opset and exported is not before.source
            found_sizes = {
                "bytes_after": exported.file_bytes,
                "raised_opset": f"{before.opset} to {exported.opset}" if raised else "",
            }
            for figure, now in found_sizes.items():
                if figure in stored:
                    yield from differences(stored[figure], now, name, figure)
        for part, actions in (("before", []), ("after", self._actions)):
            claimed_figures = GraphFigures(**stored[part])
            graph = self.loaded.env.replay(actions)
            price = self.loaded.env.known_price(actions) if self.recomputed == "exactly" else None
            cost_ms, noise = claimed_figures.cost_ms, claimed_figures.cost_noise
            if price is not None:
                cost_ms, noise = price.cost.ms, price.noise if noise else 0.0  # the collection keeps none
            found = self.loaded.figures(graph, cost_ms, noise)
            compared_fields = [field.name for field in dataclasses.fields(GraphFigures)]
            if self.recomputed != "exactly":
                compared_fields = ["operators"]
            for field in compared_fields:
                then, now = getattr(claimed_figures, field), getattr(found, field)
                if not Tolerance().equal(then, now):
                    yield Difference(name, None, f"the {field} of the graph {part}", str(then), str(now))

    def _output(self, given: Path | None) -> tuple[str, CheckedModel | None]:
        """Returns what to compare with the model, in words, and the model; None if it cannot be read.

        It is the file OUT if that is here, or else what the actions lead to.
        """
        written = self._read(OUTPUT, lambda fields: fields and WrittenFile(**fields))
        path = given or (None if written is None else self.run.path / written.path)
        if path is None or not path.is_file():
            where = "the run does not say where it wrote OUT" if path is None else f"{_short(path)} is not here"
            if self.differences:
                return f"nothing, because {where} and the actions do not lead to the recorded graph", None
            return f"what the actions lead to, because {where}", self._exported_again()
        if written is not None and (found := content_hash(path)) != written.sha256:
            what = f"the content of {_short(path)} (SHA-256)"
            self.differences.append(Difference(OUTPUT, None, what, written.sha256, found))
        try:
            after = read_result(path, self.config)
            self.differences += self._of_dimensions(path)
            return _short(path), after
        except ModelError as error:
            self.differences.append(Difference(OUTPUT, None, _short(path), "a model", f"what cannot be read: {error}"))
            return f"nothing, because {_short(path)} cannot be read", None

    def _of_dimensions(self, path: Path) -> Iterator[Difference]:
        """Yields a difference if other dimensions of OUT are symbolic than result.json says."""
        found = {dim.name for dim in open_dims(onnx.load(path, load_external_data=False).graph)}
        symbolic = sorted(found & self.config.bound_dims().keys())
        yield from differences(sorted(self.result_json.get("symbolic", [])), symbolic, "result.json", "symbolic")

    def _exported_again(self) -> CheckedModel:
        """Returns the model that the actions lead to, also those of graphs inside operators."""
        plans: Plans = plans_from_json(self.log["subgraphs"])
        if not (self._actions or plans):
            return self.loaded.model.source
        model = self.loaded.model.export_checked(self.loaded.env.replay(self._actions))
        return rewritten(model, plans, rules_up_to(self.loaded.env.rules, model.opset), self.run.config)

    def _checked(self, said: str, after: CheckedModel, timed: bool, then: MeasuredRatio | None) -> Checked | None:
        """Compares the result with the model, and times it; None if it has other inputs or outputs."""
        before = read_model(find_model(self.run.model).build(), self.config.bound_dims())
        try:
            checked = compared(self.run.model, said, before, after, self.config, self.progress, timed=timed)
        except DifferentInterface as error:
            self.differences.append(Difference(OUTPUT, None, said, "a model like MODEL", f"another one: {error}"))
            return None
        same_machine = all(map(compares_as_here, self._commands))
        self.differences += verified_differences(
            self.result_json, checked.verification, checked.is_judged, same_machine
        )
        self.differences += self._of_time(checked)
        if then is not None and checked.measured is not None and not self._other_setting(checked):
            self.differences += time_differences(then, checked.measured)
        return checked

    @functools.cached_property
    def _commands(self) -> list[Mapping[str, Any]]:
        return self._read("manifest.json", list)

    def _other_setting(self, checked: Checked) -> str:
        """Returns why the time of the result cannot be compared with the run's; empty if it can."""
        settings = {str(command.get("setting", "")) for command in self._commands}
        if settings == {checked.here}:
            return ""
        if "" in settings:
            return "the run is of an older version, which has not recorded on which machine it was"
        return f"that was on {' or '.join(sorted(settings))}, and this is {checked.here}"

    def _of_time(self, checked: Checked) -> Iterator[Difference]:
        """Yields a difference if the time of whole graphs is the cost, and is not what the run has recorded.

        The recorded ratio is the least of many, which noise alone makes too small; the interval is widened for that.
        """
        ratio = checked.measured
        here = str(setting_of(runtime_of(self.config)))
        if not self.run.config.costs.startswith("endtoend:") or ratio is None or here != self.run.fingerprint["prices"]:
            return
        before, after = (GraphFigures(**self.result_json[part]) for part in ("before", "after"))
        recorded, noise = after.cost_ms / before.cost_ms, after.cost_noise
        records = itertools.chain(*sources_of(self.evaluation).values())
        costs = set(itertools.chain(*(record.costs_ms for record in records)))
        unsure = noise * recorded + ratio.interval.half_width * ratio.ratio
        if abs(recorded - ratio.ratio) > widened(len(costs)) * unsure:
            what = "the ratio of end-to-end times"
            yield Difference("result.json", None, what, f"{recorded:.3f} ± {noise:.3f}", str(ratio.interval))


def _evaluation(fields: Any) -> Evaluation:
    found = Evaluation.from_json(fields)
    for records in sources_of(found).values():
        for record in records:
            _with_numbers(record)
    return found


def _with_numbers(record: EpisodeRecord) -> EpisodeRecord:
    """Returns the record; raises TypeError or ValueError if a cost or a reward is no number."""
    for number in (*record.costs_ms, *record.rewards, *record.cost_noise, *record.ratio_noise):
        math.isfinite(number)
    return record


def _short(path: Path) -> str:
    """Returns a path as seen from the current folder."""
    return os.path.relpath(path)
