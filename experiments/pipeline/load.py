"""Loads the model, the rules and the environment that a run works with."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from environment import GraphSubstitutionEnv
from environment.costs.interface import Costs
from environment.runtimes.onnx_runtime import require_working
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.pipeline.cost_model import find_costs
from experiments.runs.directory import features_fingerprint, stored_formats
from experiments.runs.model_source import find_model
from experiments.runs.result import GraphFigures
from taso_ext import Graph, OnnxModel, RuleSet
from taso_ext.files import UNREADABLE_ARRAYS


@dataclasses.dataclass(frozen=True)
class Loaded:
    """
    Attributes:
      name: of the model, for titles and the run directory.
      model: in the engine.
      make_env: makes one more real environment on it, perhaps with another `max_steps`.
      env_source: does too, and can be sent to another process.
      env: the first of them.
      num_candidates: rewrites that its initial graph allows.
      inputs: arrays of `--inputs`, by input name; None without them.
      fingerprint: what decides the result beside the configuration.
      seconds: how long loading took.
      clock_chooses, caveat: of the cost model, see `RunCosts`.
    """

    name: str
    model: OnnxModel
    make_env: Callable[..., GraphSubstitutionEnv]
    env_source: Callable[[], GraphSubstitutionEnv]
    env: GraphSubstitutionEnv
    num_candidates: int
    inputs: dict[str, np.ndarray] | None
    fingerprint: dict[str, Any]
    seconds: float
    clock_chooses: bool
    caveat: str

    def environment(self, max_steps: int) -> GraphSubstitutionEnv:
        """Makes a real environment with another limit of steps."""
        return self.make_env(max_steps=max_steps)

    def figures(self, graph: Graph, cost_ms: float, cost_noise: float) -> GraphFigures:
        """What a graph costs by the run's cost model, which has found its `cost_ms` and their noise already."""
        cost = graph.cost(self.env.cost_model)
        counts = cost.flops, cost.memory_bytes, cost.kernel_launches
        return GraphFigures(graph.num_runtime_nodes, cost_ms, *counts, cost_noise)


def load(model: str, config: RunConfig) -> Loaded:
    """Loads everything that bad input can be wrong with.

    Args:
      model: path of an ONNX file or zoo name.
      config: dims, clean-up, rules, costs, environment.
    Raises:
      UserError, ModelError, UnavailableError: what is wrong with the input, and what to do.
    """
    start = time.perf_counter()
    require_working(config.device)  # now rather than after the search
    source = find_model(model)
    loaded = OnnxModel.load(source.build(), dims=config.bound_dims(), clean=config.clean)
    rules = _allowed(_load_rules(config.rules), loaded, config)
    found = find_costs(config)
    make_env = partial(_make_environment, loaded, rules, found.costs, config)
    env = make_env()
    return Loaded(
        name=source.name,
        model=loaded,
        make_env=make_env,
        env_source=partial(_load_environment, model, config),
        env=env,
        num_candidates=len(env.legal_actions()),
        inputs=_given_inputs(config.inputs),
        fingerprint={
            "graph": loaded.graph.hash,
            "rules": env.rules.fingerprint,
            "prices": found.prices,
            "features": features_fingerprint(),
            "formats": stored_formats(),
        },
        seconds=time.perf_counter() - start,
        clock_chooses=found.clock_chooses,
        caveat=found.caveat,
    )


def _load_environment(model: str, config: RunConfig) -> GraphSubstitutionEnv:
    return load(model, config).env


def _load_rules(path: str | None) -> RuleSet:
    if path is None:
        return RuleSet.default()
    try:
        return RuleSet.load(path)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read the rules {path}: {error}") from error


def _allowed(rules: RuleSet, model: OnnxModel, config: RunConfig) -> RuleSet:
    """The rules that `--opset` and `--portable` leave."""
    try:
        return rules.restricted(
            max_opset=model.opset if config.opset == "keep" else None, domains=[""] if config.portable else None
        )
    except ValueError as error:
        raise UserError(f"With --opset {config.opset}{' --portable' * config.portable}, {error}.") from error


def _make_environment(
    model: OnnxModel, rules: RuleSet, costs: Costs, config: RunConfig, max_steps: int | None = None
) -> GraphSubstitutionEnv:
    settings = config.environment
    try:
        return GraphSubstitutionEnv(
            model,
            costs=costs,
            reward=settings.reward,
            rules=rules,
            max_steps=max_steps or settings.max_steps,
            max_locations=settings.max_locations,
        )
    except ValueError as error:  # an unknown reward: the text lists what there is
        raise UserError(str(error)) from error


def _given_inputs(path: str | None) -> dict[str, np.ndarray] | None:
    """Arrays of `--inputs`."""
    if path is None:
        return None
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except UNREADABLE_ARRAYS as error:
        raise UserError(f"Cannot read the inputs {path}: {error}. Expected an npz file (numpy.savez).") from error
