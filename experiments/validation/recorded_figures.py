"""Derives the figures in result.json again from the other files of a run.

Nothing that a file alone can say is taken on trust: a figure is either derived here or by `rlflow validate` from what
it replays and verifies, or docs/how-to/runs.md names it as not checked.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord, best_record
from environment.verification import Verification
from experiments.pipeline.clock.measure import STAGE as MEASURE
from experiments.pipeline.clock.measure import WITH_OTHER_THREADS
from experiments.pipeline.learning.collect import EPISODES, RECOLLECTED, joined, parted, random_play, read_episodes
from experiments.pipeline.learning.controller import TrainingFacts
from experiments.pipeline.learning.rounds import MIXED
from experiments.pipeline.learning.world_model import ACCURACY
from experiments.pipeline.loading.load import Loaded
from experiments.pipeline.optimise import SOURCES, set_apart, sources_of
from experiments.pipeline.stored import StoredRun
from experiments.runs.body_plan import plans_from_json
from experiments.runs.result import count_rules
from experiments.runs.rounds import PLAYED, best_round, plans_file
from experiments.runs.run import TENSORFLOW, of_round
from experiments.validation.replayed_episodes import Difference, Tolerance
from worldmodel.data.episodes import EpisodeBuffer

RESULT = "result.json"
LOAD = "load"
LATER = (WITH_OTHER_THREADS, TENSORFLOW)
"""Stages that may be new after result.json was written."""
GROWING = (LOAD, TENSORFLOW)
"""Stages to which each command on the run adds, also one that leaves result.json as it is."""
SAME_NUMBER = 1e-6
"""Results of one program on one processor, in one thread, differ by less than this fraction."""


def differences(claimed: Any, found: Any, record: str, what: str) -> Iterator[Difference]:
    """Yields what differs in two plain JSON values; numbers may differ by rounding."""
    if isinstance(claimed, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys([*claimed, *found]):
            yield from differences(claimed.get(key), found.get(key), record, f"{what}: {key}")
    elif isinstance(claimed, list) and isinstance(found, list) and len(claimed) == len(found):
        for number, pair in enumerate(zip(claimed, found, strict=True)):
            yield from differences(*pair, record, f"{what}, row {number}")
    elif not _equal(claimed, found):
        yield Difference(record, None, what, _in_words(claimed), _in_words(found))


def _equal(claimed: Any, found: Any) -> bool:
    numbers = [each for each in (claimed, found) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 2:
        return bool(claimed == found and type(claimed) is type(found))
    return Tolerance().equal(claimed, found) or all(map(math.isnan, numbers))


def _in_words(value: Any) -> str:
    return "nothing" if value is None else repr(value) if isinstance(value, str | float) else json.dumps(value)


class RecordedFigures:
    """The figures of one run's result.json, beside those that need a replay or a comparison of outputs."""

    def __init__(self, run: StoredRun, loaded: Loaded, evaluation: Evaluation, result: Mapping[str, Any]) -> None:
        """
        Args:
          result: the content of result.json.
        """
        self._run, self._loaded, self._evaluation, self._result = run, loaded, evaluation, result
        self._training: TrainingFacts = run.directory.stored(
            "checkpoints/training.json", lambda fields: TrainingFacts(**fields)
        )

    def differences(self, log: Mapping[str, Any], timed: int) -> Iterator[Difference]:
        """Yields what differs from what the files of the run say.

        Args:
          log: the content of actions.json.
          timed: the number of graphs that the journal of the climb has timed.
        """
        for name, found in (*self._of_settings(), *self._of_episodes(), *self._of_rewrites(log), ("timed", timed)):
            if name in self._result:  # older versions had fewer figures
                yield from differences(self._result[name], json.loads(json.dumps(found)), RESULT, name)
        yield from self._of_effort()
        yield from self._of_measurements()
        yield from self._of_training()

    def _of_settings(self) -> Iterator[tuple[str, Any]]:
        config = self._run.config
        yield "controller", config.controller
        yield "world", config.learns_in
        yield "costs", config.costs
        yield "seed", config.seed
        models = self._run.directory.stored("manifest.json", lambda commands: [each["model"] for each in commands])
        yield "model", self._result["model"] if self._result["model"] in models else models[-1]

    def _of_episodes(self) -> Iterator[tuple[str, Any]]:
        sources = sources_of(self._evaluation)
        bests = {SOURCES[kind]: best for kind, records in sources.items() if (best := best_record(records))}
        episodes = {kind: len(records) for kind, records in sources.items()}
        if self._evaluation.collection is not None:
            episodes[self._evaluation.collection.kind] = self._training.num_collected
        rewards = (noise for records in sources.values() for record in records for noise in record.reward_noise)
        yield "improvements", {source: 100 * best.improvement for source, best in bests.items()}
        yield "noise", {source: 100 * best.improvement_noise for source, best in bests.items()}
        yield "episodes", {SOURCES[kind]: count for kind, count in episodes.items()}
        yield "reward_noise", max(rewards, default=0.0)
        yield "by_clock", self._evaluation.deterministic.chosen is not None
        yield "candidates", self._loaded.num_candidates

    def _of_rewrites(self, log: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        yield "rules_applied", count_rules([each["rule_name"] for each in log["actions"]])
        names = [name for plan in plans_from_json(log["subgraphs"]) for name in plan.all_rule_names()]
        yield "rules_in_subgraphs", count_rules(names)
        yield "bytes_before", self._loaded.model.source.file_bytes

    def of_selection(self, selected: EpisodeRecord, log: Mapping[str, Any]) -> Iterator[Difference]:
        """Yields what does not follow from the episode whose graph the run has selected.

        The exported plan is that of the episode, or what remained of it after rewrites were left out. It is empty if
        nothing remained, or if the end-to-end measurement did not confirm that the graph is faster.
        """
        yield from differences(self._result["found_by"], SOURCES[selected.kind], RESULT, "found_by")
        plan = tuple((each["rule"], each["location"]) for each in log["actions"])
        if plan and plan != selected.best_actions:
            added = count_rules([each["rule_name"] for each in log["actions"]])
            left = count_rules(selected.action_names[: len(selected.best_actions)])
            more = [name for name, count in added.items() if count > left.get(name, 0)]
            if more or len(plan) == len(selected.best_actions):
                expected = f"that of {SOURCES[selected.kind]}, or a part of it"
                yield Difference("actions.json", None, "the plan", "another one", expected)
            return
        record = selected if plan else selected.until(0)
        before, after = self._result["before"], self._result["after"]
        cost_ms = record.best_cost_ms
        for what, claimed, found in (
            ("the cost_ms of the graph before", before["cost_ms"], record.costs_ms[0]),
            ("the cost_ms of the graph after", after["cost_ms"], cost_ms),
            ("the cost_noise of the graph before", before.get("cost_noise", 0.0), record.noise_at(0)),
            ("the cost_noise of the graph after", after.get("cost_noise", 0.0), record.noise_at(record.best_step)),
            ("ratio_noise", self._result.get("ratio_noise", record.improvement_noise), record.improvement_noise),
            ("cut_off", self._result.get("cut_off", record.cut_off), record.cut_off),
        ):
            yield from differences(claimed, found, RESULT, what)
        logged = log["actions"][-1]["cost_ms"] if plan else cost_ms
        yield from differences(log["initial_cost_ms"], record.costs_ms[0], "actions.json", "the cost of the model")
        yield from differences(logged, cost_ms, "actions.json", "the cost of the exported graph")

    def _of_effort(self) -> Iterator[Difference]:
        """Compares with stages.json; what later commands have added since is allowed for."""
        directory, result = self._run.directory, self._result
        apart = set_apart(self._training.rounds)
        most, least = (directory.counts(leaving_out=each).to_json() for each in (apart, (*apart, LOAD)))
        for name, claimed in result.get("counts", {}).items():
            if name not in most or not least[name] <= claimed <= most[name]:
                yield from differences(claimed, most.get(name), RESULT, f"counts: {name}")
        if result.get("final_timings") is not None:
            timings = directory.counts(only=[MEASURE]).end_to_end_timings
            yield from differences(result["final_timings"], timings, RESULT, "final_timings")
        spent, claimed_seconds = directory.stage_seconds(), result["stage_seconds"]
        for stage in dict.fromkeys([*spent, *claimed_seconds]):
            seconds, now = claimed_seconds.get(stage), spent.get(stage)
            grown = stage in GROWING and None not in (seconds, now) and seconds <= now
            if not grown and not (seconds is None and stage in LATER):
                yield from differences(seconds, now, RESULT, f"stage_seconds: {stage}")
        earlier = directory.spent(*(stage for stage in spent if stage not in (*LATER, *GROWING))) or {}
        peak, most_bytes = result["peak_memory_bytes"], directory.peak_memory_bytes()
        if not earlier.get("peak_bytes", 0) <= peak <= most_bytes:
            yield from differences(peak, most_bytes, RESULT, "peak_memory_bytes")

    def _of_measurements(self) -> Iterator[Difference]:
        """Compares with the files of the measurements; of one that was not confirmed, the result says nothing."""
        files = {"measured": "measured", "with_other_threads": "measured-with-other-threads"}
        for name, file in files.items():
            if (claimed := self._result.get(name)) is not None:
                kept = self._run.directory.read_json(f"checkpoints/{file}.json")
                yield from differences(claimed, kept, RESULT, name)

    def _of_training(self) -> Iterator[Difference]:
        """Compares with training.json, and that with the files of the stages."""
        facts = dataclasses.asdict(self._training) | {"played": self._training.played}
        for name in ("stop_reason", "accuracy", "rounds", "played"):
            if self._result.get(name) is not None:
                yield from differences(self._result[name], facts[name], RESULT, name)
        record, rounds = "checkpoints/training.json", self._training.rounds
        if not self._run.config.uses_world_model or not rounds:  # also if another run has trained the controller
            return
        kept = list(self._rounds(len(rounds)))
        yield from differences(rounds, kept, record, "rounds")
        played = best_round([row["plans"] for row in kept])
        yield from differences(self._training.played, played, record, "the round that plays")
        stored = self._run.directory.stored(PLAYED, lambda fields: played if fields is None else fields["round"])
        yield from differences(stored, played, PLAYED, "the round that plays")
        yield from differences(self._training.accuracy, self._stage(ACCURACY, played), record, "accuracy")
        count = sum(len(each) for each in (self._random, *self._own_play(len(rounds) - 1, last=True)))
        yield from differences(self._training.num_collected, count, record, "num_collected")

    @property
    def _random(self) -> EpisodeBuffer:
        return random_play(self._run.config, read_episodes(self._run.directory.checkpoint(EPISODES)))

    def _own_play(self, number: int, *, last: bool = False) -> Iterator[EpisodeBuffer]:
        """Yields the real episodes that controllers have played before a round, or also in it as the last one."""
        directory = self._run.directory
        for each in range(number + last):
            mixed = directory.checkpoint(of_round(MIXED, each))
            if mixed.is_dir():
                yield read_episodes(mixed)
            if each < number:
                yield read_episodes(directory.checkpoint(of_round(RECOLLECTED, each + 1)))

    def _rounds(self, count: int) -> Iterator[dict[str, Any]]:
        """Yields the rows of the rounds as `Learning.round_row` makes them."""
        training, _ = parted(self._run.config, self._random)
        for number in range(count):
            episodes = joined([training, *self._own_play(number)])
            accuracy = self._stage(ACCURACY, number)
            facts = {"round": number, "episodes": len(episodes), "real_steps": episodes.num_transitions}
            yield facts | (accuracy[-1] if accuracy else {}) | {"plans": self._plans(number)}

    def _stage(self, stage: str, number: int) -> list[dict[str, Any]]:
        return self._run.directory.stored(f"checkpoints/{of_round(stage, number)}.json", list)

    def _plans(self, number: int) -> dict[str, Any]:
        if not self._run.config.reward_telescopes:
            return {}
        return self._run.directory.stored(plans_file(number), dict)


def verified_differences(
    result: Mapping[str, Any], found: Verification, is_judged: bool, same_machine: bool
) -> Iterator[Difference]:
    """Yields what of the figures of the comparison of outputs differs from what it finds now.

    ONNX Runtime computes the same numbers with the same version on the same processor, because outputs are compared in
    one thread. Another processor or version rounds differently, and may find another largest difference; the outputs
    then only have to be equal again. So they have if OUT has symbolic dimensions: what was compared when the run ended
    had the sizes of `--dim`.

    Args:
      found: the comparison of OUT with the model.
      is_judged: whether that says anything.
      same_machine: whether the run was made with the runtime and on the processor of this comparison.
    """
    if not (result["rules_applied"] or result.get("rules_in_subgraphs")):  # the model itself was written
        for name in ("largest_difference", "tolerance"):
            yield from differences(result[name], 0.0, RESULT, name)
        return
    if not same_machine or result.get("symbolic"):
        if result["largest_difference"] > result["tolerance"]:
            expected = f"at most {result['tolerance']:.3g}"
            yield Difference(RESULT, None, "largest_difference", repr(result["largest_difference"]), expected)
        return
    if is_judged == bool(result.get("unverified")):
        said = {True: "its outputs were compared", False: "its outputs were not compared"}
        yield Difference(RESULT, None, "what was proved", said[not result["unverified"]], said[is_judged])
    figures = (found.largest_difference, found.tolerance) if found.comparable else (0.0, 0.0)
    for name, now in zip(("largest_difference", "tolerance"), figures, strict=True):
        if not math.isclose(result[name], now, rel_tol=SAME_NUMBER):
            yield Difference(RESULT, None, name, repr(result[name]), repr(now))
    yield from differences(result.get("verified_in", found.runs_in), found.runs_in, RESULT, "verified_in")
