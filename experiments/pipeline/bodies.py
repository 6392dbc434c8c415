"""Rewrites the graphs inside operators: the branches of If, and the bodies of Loop and Scan.

The engine sees such an operator as one node. Once the graph around it is settled, each body is searched as a model of
its own, with the rules and the cost model of the run. It is verified as one too, because the whole model may not take
the branch on any input of its verification. Bodies inside a body come after it. Then the whole model is verified with
all rewritten bodies, and if the clock chooses the graph, it also chooses whether the bodies are worth it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from controller.evaluation import play_episode
from controller.records import EpisodeRecord
from environment.costs import registry as cost_models
from environment.costs.interface import Costs
from environment.measurement import racing
from environment.measurement.racing import Rule
from environment.measurement.timing import Variant
from environment.statistics.sequential import Verdict
from environment.verification import Verification, find_first_bad_rewrite, verify
from experiments.pipeline.clock.measure import feeds_of, runtime_of
from experiments.pipeline.learning.controller import is_clocked, new_controller
from experiments.pipeline.loading.load import Loaded, make_environment
from experiments.pipeline.loading.replay import rewritten, rules_up_to
from experiments.pipeline.result.export import Exported, small_enough, without_faults
from experiments.runs.body_plan import BodyPlan, Plans, plans_from_json
from experiments.runs.result import NOISE
from experiments.runs.run import Run
from taso_ext import OnnxModel
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.subgraphs import Place, body_at, places, with_body

STAGE, CLOCK_STAGE = "subgraphs", "time-subgraphs"
FOUND, TIMED = "checkpoints/subgraphs.json", "checkpoints/subgraphs-timed.json"
SEARCHES = ("greedy", "taso", "beam", "restarts", "passes")
"""Controllers that also search bodies; in a run of another controller, `taso` does."""
MOST_ALONE = 5
"""If there are at most this many rewritten bodies, each is also timed without the others."""


def with_bodies(run: Run, loaded: Loaded, exported: Exported, by_clock: bool) -> Exported:
    """Returns the result with rewritten bodies, as far as it then computes the same.

    Args:
      by_clock: whether only what makes the result faster by the clock is kept.
    """
    base = exported.model if exported.changed else loaded.model.export_checked(loaded.model.graph)
    if not places(base):
        return exported
    rewriting = BodyRewriting(run, loaded, base)
    plans, kept_as_they_are = rewriting.found()
    equal, faults = rewriting.without_faults(plans)
    kept, slow = rewriting.fastest(equal) if by_clock and equal else (equal, [])
    notes = (*kept_as_they_are, *faults, *slow)
    if not kept:
        return dataclasses.replace(exported, body_notes=notes)
    model = rewriting.rewritten(base, kept)
    changed = dataclasses.replace(exported, model=model, bodies=kept, body_notes=notes)
    return changed.judged(rewriting.compared(model))


class BodyRewriting:
    """The search for rewrites of the bodies of a model, and their replay.

    Attributes:
      rules: the rules of the run that do not raise the opset of the model, because a body cannot have one of its own;
        None if there are none.
    """

    def __init__(self, run: Run, loaded: Loaded, base: CheckedModel) -> None:
        """
        Args:
          base: the result so far, whose bodies are to be rewritten.
        """
        self._run, self._loaded, self._base = run, loaded, base
        self.rules = rules_up_to(loaded.env.rules, base.opset)

    def found(self) -> tuple[Plans, list[str]]:
        """Returns what a search finds in each body, without faults, and a sentence for what stays as it is.

        Both are kept in the run directory, and a finished search is only read.
        """
        run = self._run
        if not run.directory.finished(STAGE):
            with run.stage(STAGE, "rewrite the subgraphs", len(places(self._base))) as bar:
                plans, notes = self._found_in(self._base, bar.update)
                run.directory.write_json(FOUND, {"plans": [plan.to_json() for plan in plans], "notes": notes})
        return run.directory.stored(FOUND, lambda fields: (plans_from_json(fields["plans"]), list(fields["notes"])))

    def rewritten(self, model: CheckedModel, plans: Plans) -> CheckedModel:
        """Returns a model with the bodies that the plans make; see the function `rewritten`."""
        return rewritten(model, plans, self.rules, self._run.config)

    def without_faults(self, plans: Plans) -> tuple[Plans, list[str]]:
        """Returns the plans without those that change an output of the whole model, and a sentence for each of these.

        The first one that breaks equality is left out, and the rest is compared again.
        """
        left_out: list[str] = []
        while plans:
            found = self.compared(self.rewritten(self._base, plans))
            if found.equal or not found.comparable:
                break
            first = find_first_bad_rewrite(
                self._loaded.model.source,
                partial(self._with_first, plans),
                len(plans),
                **self._verification(),
            )
            if not first:
                return (), [*left_out, f"All subgraphs stay as they are, because without them {found.reason}."]
            place = plans[first - 1].place
            left_out.append(f"{_sentence_start(place)} stays as it is, because rewritten {found.reason}.")
            plans = plans[: first - 1] + plans[first:]
        return plans, left_out

    def _with_first(self, plans: Plans, count: int) -> CheckedModel:
        return self.rewritten(self._base, plans[:count])

    def compared(self, model: CheckedModel) -> Verification:
        """Returns the comparison of a model with the original."""
        return verify(self._loaded.model.source, model, **self._verification())

    def fastest(self, plans: Plans) -> tuple[Plans, list[str]]:
        """Returns those plans with which the result is the fastest, all or one of them; none if none makes it faster.

        Returns:
          The plans, and a sentence if none is left.
        """
        run = self._run
        alone = [(plan,) for plan in plans] if 1 < len(plans) <= MOST_ALONE else []
        offered: list[Plans] = [plans, *alone]
        if not run.directory.finished(CLOCK_STAGE):
            with run.stage(CLOCK_STAGE, "measure the rewritten subgraphs", len(offered)) as bar:
                made = self._raced(offered)
                bar.update(len(offered))
                run.directory.write_json(TIMED, made)
        raced = run.directory.stored(TIMED, lambda made: [(each["value"], each["faster"]) for each in made])
        faster = [(value, each) for (value, is_faster), each in zip(raced, offered, strict=True) if is_faster]
        if not faster:
            return (), [f"{_subgraphs(len(plans))} could be rewritten, but that is not faster by the clock."]
        return min(faster, key=lambda pair: pair[0])[1], []

    def _raced(self, offered: Sequence[Plans]) -> list[dict[str, Any]]:
        """Returns the time of the result with different bodies over its time with its own, and whether it is faster."""
        runtime, settings = runtime_of(self._run.config), self._run.config.measure
        variants = [
            Variant(str(number), runtime, self.rewritten(self._base, plans)) for number, plans in enumerate(offered)
        ]
        base = Variant("base", runtime, self._base)
        rule = Rule(margin=NOISE, worth=NOISE, pairs=settings.pairs, seed=self._run.seed(CLOCK_STAGE))
        feeds, seconds = feeds_of(self._loaded), settings.seconds or math.inf
        try:
            found = racing.race(base, variants, rule, feeds=feeds, seconds=seconds)
        except ModelError:  # the runtime cannot run them, so that the clock cannot choose them
            return [{"value": 1.0, "faster": False} for _ in offered]
        return [{"value": each.ratio.value, "faster": each.verdict is Verdict.FASTER} for each in found]

    def _found_in(
        self, model: CheckedModel, on_body: Callable[[int], None] = lambda done: None
    ) -> tuple[Plans, list[str]]:
        """Searches the bodies of a model, each with the bodies inside it."""
        plans: list[BodyPlan] = []
        notes: list[str] = []
        for done, place in enumerate(places(model), 1):
            try:
                plan, sentences = self._plan(model, place)
                notes += [f"In {place}: {sentence}" for sentence in sentences]
                plans += [plan] if plan.actions or plan.inner else []
            except ModelError as error:
                notes.append(f"{_sentence_start(place)} stays as it is, because {str(error).rstrip('.')}.")
            on_body(done)
        return tuple(plans), notes

    def _plan(self, model: CheckedModel, place: Place) -> tuple[BodyPlan, list[str]]:
        """Returns the rewrites of a body and of those inside it, and a sentence for each rewrite that was left out.

        Raises:
          ModelError: the body cannot stand alone, be priced or be put back.
        """
        body = OnnxModel.load(body_at(model, place), clean=self._run.config.clean)
        record, left_out = None, list[str]()
        if self.rules is not None:
            part = self._as_loaded(body)
            record, left_out = small_enough(self._run, part, self._searched(part))
            verified = without_faults(self._run, part, record)
            record, left_out = verified.record, [*left_out, *verified.left_out]
        actions = record.best_actions if record else ()
        graph = part.env.replay(actions) if record else body.graph
        after = body.export_checked(graph)
        with_body(model, place, after)  # may raise
        inner, notes = self._found_in(after)
        return BodyPlan(place, actions, record.action_names[: len(actions)] if record else (), inner), left_out + notes

    def _as_loaded(self, body: OnnxModel) -> Loaded:
        """Returns the inputs of a run that optimises a body."""
        assert self.rules is not None, "a body without rules has no rewrites"
        config = self._run.config
        make_env = partial(make_environment, body, self.rules, self._costs(), config)
        return dataclasses.replace(
            self._loaded, model=body, make_env=make_env, env=make_env(), num_candidates=0, inputs=None
        )

    def _costs(self) -> Costs:
        """Returns the cost model of the run; a quick formula if the clock judges whole graphs anyway."""
        if not is_clocked(self._run.config.controller):
            return self._loaded.env.costs
        return cost_models.find("roofline:xeon" if self._run.config.device == "cpu" else "roofline:rtx2070")

    def _searched(self, part: Loaded) -> EpisodeRecord:
        """Returns the episode of a search."""
        run = self._run
        config = run.config
        if config.controller not in SEARCHES:
            config = dataclasses.replace(config, controller="taso")
        controller = new_controller(config, part, config.search.seconds)
        part.env.reset(seed=run.seed(STAGE))
        controller.train(part.env, seed=run.seed(STAGE))
        return play_episode(part.env, controller, seed=run.seed(STAGE), deterministic=True, kind="deterministic")

    def _verification(self) -> dict[str, Any]:
        """Returns how the whole model is verified."""
        return {
            "seed": self._run.seed(STAGE),
            "num_inputs": self._run.config.verify.num_inputs,
            "inputs": self._loaded.inputs,
        }


def _sentence_start(place: Place) -> str:
    return f"The{str(place).removeprefix('the')}"


def _subgraphs(count: int) -> str:
    return "One subgraph" if count == 1 else f"{count} subgraphs"
