"""A model at several sizes of its symbolic dimensions, and what a plan of rewrites makes of it for all sizes."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx
import onnxruntime as ort

from environment.inputs import Feeds, input_specs, random_feeds
from environment.verification import verify
from experiments.config.run import RunConfig
from experiments.pipeline.loading.replay import IllegalRewriteError, replayed, rewritten, rules_up_to
from experiments.runs.body_plan import Plans
from experiments.runs.run import seed_for
from taso_ext import CostModel, OnnxModel, RuleSet, State
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.dimensions import bind_dims
from taso_ext.onnx_io.merging import DependsOnSizeError, merged
from taso_ext.onnx_io.session import create_session

Sizes = dict[str, int]
"""Sizes of symbolic dimensions by name."""
PURPOSE = "symbolic"
"""The purpose of the random inputs here; see `seed_for`."""
SMALL = (3, 5, 7, 11, 13, 17, 19, 23)
"""Sizes to try. Two dimensions begin at different ones, so that a graph that confuses them is noticed."""
MULTIPLES = (2, 3, 4)
"""Multiples of the size of `--dim` to try if a model does not run at small sizes."""
LARGE = (4099, 4111, 4127, 4129, 4133, 4139, 4153, 4157)
"""Sizes at which nothing runs, but at which the rewritten graphs must agree too: what a model cuts off at a length of
512, for example, no small size shows."""
AGREEING = 2
"""Number of other sizes at which the graphs must agree and the outputs must be equal."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The rewrites of a result: actions in the graph with the names of their rules, and those in bodies."""

    actions: Sequence[tuple[int, int]] = ()
    rule_names: Sequence[str] = ()
    bodies: Plans = ()


@dataclasses.dataclass(frozen=True)
class General:
    """What a plan makes for all sizes of some dimensions.

    Attributes:
      names: the dimensions on which its result does not depend.
      model: the model for all their sizes; None if there are no such dimensions.
      notes: a sentence for each other dimension.
    """

    names: tuple[str, ...]
    model: CheckedModel | None
    notes: tuple[str, ...]


class Cases:
    """A model at several sizes of its symbolic dimensions."""

    def __init__(self, model: OnnxModel, rules: RuleSet, config: RunConfig) -> None:
        """
        Args:
          model: the model with the sizes of `--dim`.
          rules: the rules of all plans.
        """
        self._rules, self._config, self._sizes = rules, config, config.bound_dims()
        self._given, self._name = model.given, "the model"
        self._models = {_key(self._sizes): model}

    def general(self, plan: Plan) -> General:
        """Returns what a plan makes for all sizes of as many dimensions as possible."""
        names = tuple(self._sizes)
        notes: list[str] = []
        try:
            return General(names, self.merged(plan, names), ())
        except ModelError as error:
            if len(names) == 1:
                return General((), None, (self.fixed(names[0], str(error)),))
        models: dict[str, CheckedModel] = {}  # of those dimensions that can each be symbolic alone
        for name in names:
            try:
                models[name] = self.merged(plan, (name,))
            except ModelError as error:
                notes.append(self.fixed(name, str(error)))
        alone = list(models)
        while len(alone) > 1:
            try:
                return General(tuple(alone), self.merged(plan, alone), tuple(notes))
            except ModelError as error:
                notes.append(self.fixed(alone.pop(), f"{str(error).rstrip('.')} if {quoted(alone)} may change too"))
        return General(tuple(alone), models[alone[0]] if alone else None, tuple(notes))

    def merged(self, plan: Plan, names: Sequence[str], draft: bool = False) -> CheckedModel:
        """Returns what a plan makes for all sizes of these dimensions; the others have their own sizes.

        Args:
          draft: whether large weights may be zeros instead of being computed.
        Raises:
          ModelError: the result depends on one of these dimensions, or the model runs at no other sizes; the text says
            what does, as part of a sentence.
        """
        exports = [self.export(plan, sizes, draft) for sizes in (self._sizes, *self._together(names))]
        general = merged(exports)  # first without the large sizes, because the reason is then easier to understand
        large = self._sizes | dict(zip(names, LARGE, strict=False))
        return merged([*exports, self.export(plan, large, draft)]) if self._can_load(large) else general

    def depends(self, plan: Plan, names: Sequence[str]) -> bool:
        """Returns whether the result of a plan depends on dimensions."""
        try:
            self.merged(plan, names, draft=True)
        except ModelError:
            return True
        return False

    def dependent_rules(self, names: Sequence[str]) -> set[str]:
        """Returns the rules of which a rewrite of the model, at the first place, depends on dimensions."""
        model = self._model(self._sizes)
        state = State(
            model.graph, self._rules, CostModel.roofline("rtx2070"), self._config.environment.max_locations or 0
        )
        first: dict[int, int] = {}
        for rule, location in state.legal_actions().tolist():
            first.setdefault(rule, location)
        known = self._rules.names
        plans = {known[rule]: Plan(((rule, location),), (known[rule],)) for rule, location in first.items()}
        return {name for name, plan in plans.items() if self.depends(plan, names)}

    def first_dependent(self, plan: Plan, names: Sequence[str]) -> int:
        """Returns the number of the first rewrite, from 1, with which a result depends on dimensions; 0 if none."""

        def depends(count: int) -> bool:
            return self.depends(Plan(plan.actions[:count], plan.rule_names[:count]), names)

        total = len(plan.actions)
        if not total or not depends(total):
            return 0
        return 1 + bisect.bisect_left(range(1, total), True, key=depends)

    def with_sizes_but(self, names: Sequence[str]) -> CheckedModel:
        """Returns the original in which these dimensions are symbolic and the others have their sizes."""
        fixed = {name: size for name, size in self._sizes.items() if name not in names}
        return bind_dims(self._given, fixed, self._name)

    def with_symbols(self, model: CheckedModel, names: Sequence[str]) -> CheckedModel:
        """Returns a merged model with the inputs and outputs that `with_sizes_but` declares."""
        declared = self.with_sizes_but(names).skeleton.graph
        skeleton = onnx.ModelProto()
        skeleton.CopyFrom(model.skeleton)
        for field in ("input", "output"):
            skeleton.graph.ClearField(field)
            getattr(skeleton.graph, field).extend(getattr(declared, field))
        return dataclasses.replace(model, skeleton=skeleton)

    def verified(self, candidate: CheckedModel, names: Sequence[str], inputs: Feeds | None) -> tuple[str, list[str]]:
        """Compares a model with symbolic dimensions with the original at several sizes.

        Args:
          inputs: the inputs that the user gave, of the sizes of `--dim`; None for random ones.
        Returns:
          Why they are not equal, as part of a sentence, or an empty text; and the sizes at which they were compared.
        """
        ones = self._sizes | dict.fromkeys(names, 1)
        cases = [self._sizes, *self._together(names), *([ones] if self._runs_at(ones) else [])]
        for number, sizes in enumerate(cases):
            found = verify(
                bind_dims(self._given, sizes, self._name),
                candidate,
                seed=seed_for(self._config.seed, PURPOSE),
                num_inputs=self._config.verify.num_inputs,
                inputs=None if number else inputs,
            )
            if not (found.equal and found.comparable):
                return f"at {in_words(sizes)} {found.reason}", []
        return "", list(dict.fromkeys(in_words({name: sizes[name] for name in names}) for sizes in cases))

    def fixed(self, name: str, reason: str) -> str:
        """Returns the sentence on a dimension that has one size in OUT."""
        return f"'{name}' is fixed to {self._sizes[name]} in OUT, because {reason.rstrip('.')}."

    def export(self, plan: Plan, sizes: Sizes, draft: bool = False) -> CheckedModel:
        """Returns what a plan makes at one size of each dimension; see `merged`.

        Raises:
          DependsOnSizeError: a rewrite cannot be made there.
        """
        model, rules, config = self._model(sizes), self._rules, self._config
        try:
            graph = replayed(model, plan.actions, rules, config)
        except IllegalRewriteError as error:
            name = plan.rule_names[error.position]
            raise DependsOnSizeError(f"the rewrite '{name}' cannot be made at {in_words(sizes)}") from error
        base = model.sketch(graph).model if draft else model.export_checked(graph)
        try:
            return rewritten(base, plan.bodies, rules_up_to(rules, base.opset), config)
        except IllegalRewriteError as error:
            raise DependsOnSizeError(f"a rewrite in a subgraph cannot be made at {in_words(sizes)}") from error

    def _model(self, sizes: Sizes) -> OnnxModel:
        key = _key(sizes)
        if key not in self._models:
            self._models[key] = self._models[_key(self._sizes)].at(sizes)
        return self._models[key]

    def _can_load(self, sizes: Sizes) -> bool:
        """Returns whether there is such a model at all; of sizes at which there is none, nothing is promised."""
        try:
            self._model(sizes)
        except ModelError:
            return False
        return True

    def _together(self, names: Sequence[str]) -> list[Sizes]:
        """Returns other sizes of dimensions at which the model runs.

        Raises:
          ModelError: there are not enough.
        """
        for name in names:
            if len(self._other_sizes[name]) < AGREEING:
                raise ModelError("the model runs at no other sizes of it that were tried")
        cases = [self._sizes | {name: self._other_sizes[name][number] for name in names} for number in range(AGREEING)]
        for sizes in cases:
            if len(names) > 1 and not self._runs_at(sizes):
                raise ModelError(f"the model does not run at {in_words(sizes)}")
        return cases

    @cached_property
    def _other_sizes(self) -> dict[str, list[int]]:
        """Other sizes of each dimension at which the model runs, while the other dimensions have their own sizes."""
        found: dict[str, list[int]] = {}
        for number, (name, size) in enumerate(self._sizes.items()):
            begin = AGREEING * number % len(SMALL)
            tried = [*SMALL[begin:], *SMALL[:begin], *(size * times for times in MULTIPLES)]
            runnable = (other for other in tried if other != size and self._runs_at(self._sizes | {name: other}))
            found[name] = list(itertools.islice(runnable, AGREEING))
        return found

    def _runs_at(self, sizes: Sizes) -> bool:
        """Returns whether the original runs on random inputs of these sizes."""
        if self._session is None:
            return False
        try:
            specs = input_specs(bind_dims(self._given, sizes, self._name))
            self._session.run(None, random_feeds(specs, np.random.default_rng(seed_for(self._config.seed, PURPOSE))))
        except Exception:  # ONNX Runtime's exceptions share no public base class
            return False
        return True

    @cached_property
    def _session(self) -> ort.InferenceSession | None:
        """The original with all its symbolic dimensions; None if ONNX Runtime cannot run it."""
        try:
            return create_session(self._given, "disabled")
        except ModelError:
            return None


def _key(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def in_words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def quoted(names: Sequence[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
