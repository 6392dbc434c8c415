"""`rlflow validate`: replays a finished run from its files, proves and times what it wrote, and names every difference.

Nothing here needs TensorFlow: a run is its action logs, whoever chose the actions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord, best_record
from environment.costs.end_to_end import RecordedEndToEnd
from environment.costs.measured.cost_model import Recorded
from environment.costs.prices.settings import setting_of
from environment.runtimes.onnx_runtime import require_working
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.output_file import WrittenFile, content_hash
from experiments.pipeline.check import Checked, DifferentInterface, compared, read_result
from experiments.pipeline.clock.measure import runtime_of
from experiments.pipeline.learning.collect import as_record
from experiments.pipeline.learning.evaluate import EVALUATION
from experiments.pipeline.learning.rounds import BEST_IN_TRAINING
from experiments.pipeline.loading.load import Loaded, find_model
from experiments.pipeline.loading.replay import rewritten, rules_up_to
from experiments.pipeline.optimise import SOURCES, sources_of
from experiments.pipeline.select import CLIMB_EPISODE
from experiments.pipeline.stored import StoredRun
from experiments.runs.body_plan import Plans, plans_from_json
from experiments.runs.directory import OUTPUT
from experiments.runs.progress import ProgressDisplay, warnings_noted
from experiments.runs.result import GraphFigures, count_rules
from experiments.validation.recomputed_costs import Recomputed, device_of, recomputable, require_same_prices, widened
from experiments.validation.replayed_episodes import Claim, Difference, Replay, Tolerance
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model
from worldmodel.data.episodes import EpisodeBuffer

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
      differences: what is not as it was recorded.
      output: what was compared with the model: the file that the run wrote, or what its actions lead to.
      checked: the comparison of `output` with the model, as of `rlflow check`; None if it could not be read.
      ratio_then: the measured ratio in the run's own result; None if there was none.
    """

    run: str
    episodes: int
    steps: int
    costs: str
    recomputed: Recomputed
    why: str
    differences: tuple[Difference, ...]
    output: str
    checked: Checked | None
    ratio_then: float | None

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
        how = {
            "exactly": f"costs were recomputed exactly ({self.costs})",
            "within noise": f"costs ({self.costs}) were compared within their noise, because {self.why}",
            "not at all": f"costs ({self.costs}) were not recomputed, because {self.why}",
        }
        lines.append(f"{verdict} {played} in the exact engine; {how[self.recomputed]}.")
        lines.append(f"Compared with the model: {self.output}.")
        lines += [] if self.checked is None else self.checked.lines()
        if self.ratio_then is not None:
            lines.append(f"When the run ended, the ratio was {self.ratio_then:.3f}.")
        return lines

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
        self.differences: list[Difference] = []

    def _read(self, name: str, make: Callable[[Any], T]) -> T:
        return self.run.directory.stored(name, make)

    def result(self, output: Path | None, timed: bool) -> Validated:
        """Does everything and returns what was found."""
        episodes, steps = self._replay_episodes()
        with self.run.directory.reading("actions.json"):
            self.differences += self._of_actions()
        with self.run.directory.reading("result.json"):
            self.differences += self._of_figures()
        said, after = self._output(output)
        checked = None if after is None else self._checked(said, after, timed)
        measured = self.result_json.get("measured")
        return Validated(
            run=str(self.run.path),
            episodes=episodes,
            steps=steps,
            costs=self.run.config.costs,
            recomputed=self.recomputed,
            why=self.why,
            differences=tuple(self.differences),
            output=said,
            checked=checked,
            ratio_then=measured and measured["ratio"],
        )

    def _claims(self) -> Iterator[Claim]:
        """Yields all episodes that the run keeps."""
        for kind, records in sources_of(self.evaluation).items():
            for number, record in enumerate(records):
                yield Claim(f"{EVALUATION}, {kind} episode {number}", record)
        for name in (BEST_IN_TRAINING, CLIMB_EPISODE):
            stored = self._read(name, lambda fields: fields and _with_numbers(EpisodeRecord.from_json(fields)))
            if stored is not None:
                yield Claim(name, stored)
        for path, first in self.run.shards():
            buffer, shard = EpisodeBuffer.load(path), path.relative_to(self.run.path)
            for number, episode in enumerate(buffer, first):
                record = as_record(episode, buffer.rule_names, "collection")
                yield Claim(f"{shard}, episode {number}", record, episode)

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
        return len(claims), done

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
        applied = count_rules([each["rule_name"] for each in self.log["actions"]])
        if applied != stored["rules_applied"]:
            yield Difference(name, None, "the rules applied", str(stored["rules_applied"]), str(applied))
        for kind, records in sources_of(self.evaluation).items():
            best = best_record(records)
            percent = 0.0 if best is None else 100 * best.improvement
            claimed = stored["improvements"][SOURCES[kind]]
            if not Tolerance().equal(100 - claimed, 100 - percent):
                yield Difference(name, None, f"the improvement of {SOURCES[kind]}", f"{claimed} %", f"{percent} %")
        if any(each.record == "actions.json" for each in self.differences):  # they lead elsewhere
            return
        reached = self.loaded.env.replay(self._actions).hash
        if reached != stored["graph_hash"]:
            yield Difference(name, None, "the hash of the exported graph", stored["graph_hash"], reached)
            return
        for part, actions in (("before", []), ("after", self._actions)):
            claimed_figures = GraphFigures(**stored[part])
            graph = self.loaded.env.replay(actions)
            price = self.loaded.env.known_price(actions) if self.recomputed == "exactly" else None
            cost_ms = claimed_figures.cost_ms if price is None else price.cost.ms
            found = self.loaded.figures(graph, cost_ms, claimed_figures.cost_noise)
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
        if given is not None and not given.is_file():
            raise UserError(f"There is no file {given}. Name the file that the run has written, or leave --output out.")
        if path is None or not path.is_file():
            where = "the run does not say where it wrote OUT" if path is None else f"{_short(path)} is not here"
            if self.differences:
                return f"nothing, because {where} and the actions do not lead to the recorded graph", None
            return f"what the actions lead to, because {where}", self._exported_again()
        if written is not None and (found := content_hash(path)) != written.sha256:
            what = f"the content of {_short(path)} (SHA-256)"
            self.differences.append(Difference(OUTPUT, None, what, written.sha256, found))
        try:
            return _short(path), read_result(path, self.config)
        except ModelError as error:
            self.differences.append(Difference(OUTPUT, None, _short(path), "a model", f"what cannot be read: {error}"))
            return f"nothing, because {_short(path)} cannot be read", None

    def _exported_again(self) -> CheckedModel:
        """Returns the model that the actions lead to, also those of graphs inside operators."""
        plans: Plans = plans_from_json(self.log["subgraphs"])
        if not (self._actions or plans):
            return self.loaded.model.source
        model = self.loaded.model.export_checked(self.loaded.env.replay(self._actions))
        return rewritten(model, plans, rules_up_to(self.loaded.env.rules, model.opset), self.run.config)

    def _checked(self, said: str, after: CheckedModel, timed: bool) -> Checked | None:
        """Compares the result with the model, and times it; None if it has other inputs or outputs."""
        before = read_model(find_model(self.run.model).build(), self.config.bound_dims())
        try:
            checked = compared(self.run.model, said, before, after, self.config, self.progress, timed=timed)
        except DifferentInterface as error:
            self.differences.append(Difference(OUTPUT, None, said, "a model like MODEL", f"another one: {error}"))
            return None
        self.differences += self._of_time(checked)
        return checked

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
