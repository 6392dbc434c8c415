"""Loads the model, the rules and the environment that a run works with."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from environment import GraphSubstitutionEnv, zoo
from experiments.config import RunConfig
from experiments.errors import UserError
from experiments.result import GraphFigures
from taso_ext import Graph, OnnxModel, RuleSet


@dataclasses.dataclass(frozen=True)
class Loaded:
    """
    Attributes:
      name: of the model, for titles and the run directory.
      model: in the engine.
      make_env: makes one more real environment on it.
      env: the first of them.
      num_candidates: rewrites that its initial graph allows.
      fingerprint: what decides the result beside the configuration.
      seconds: how long loading took.
    """

    name: str
    model: OnnxModel
    make_env: Callable[[], GraphSubstitutionEnv]
    env: GraphSubstitutionEnv
    num_candidates: int
    fingerprint: dict[str, str]
    seconds: float

    def figures(self, graph: Graph) -> GraphFigures:
        """What a graph costs by the run's cost model."""
        cost = graph.cost(self.env.cost_model)
        return GraphFigures(graph.num_runtime_nodes, cost.ms, cost.flops, cost.memory_bytes, cost.kernel_launches)


def load(model: str, config: RunConfig) -> Loaded:
    """Loads everything that bad input can be wrong with.

    Args:
      model: path of an ONNX file or zoo name.
      config: dims, clean-up, rules, costs, environment.
    Raises:
      UserError, ModelError: what is wrong with the input, and what to do.
    """
    start = time.perf_counter()
    is_zoo = model in zoo.names() and not Path(model).is_file()
    source = zoo.build(model) if is_zoo else _model_path(model)
    loaded = OnnxModel.load(source, dims=config.bound_dims(), clean=config.clean)
    make_env = partial(_make_environment, loaded, _load_rules(config.rules), config)
    env = make_env()
    return Loaded(
        name=model if is_zoo else Path(model).stem,
        model=loaded,
        make_env=make_env,
        env=env,
        num_candidates=len(env.legal_actions()),
        fingerprint={"graph": loaded.graph.hash, "rules": env.rules.digest},
        seconds=time.perf_counter() - start,
    )


def _model_path(model: str) -> Path:
    """The path, or an error that lists the zoo where it can only have been meant as a name."""
    path = Path(model)
    if not path.exists() and path.suffix != ".onnx" and path.name == model:
        try:
            zoo.build(model)
        except zoo.ZooError as error:
            raise UserError(f"There is no file '{model}', and {error}") from error
    return path


def _load_rules(path: str | None) -> RuleSet:
    if path is None:
        return RuleSet.default()
    try:
        return RuleSet.load(path)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read the rules {path}: {error}") from error


def _make_environment(model: OnnxModel, rules: RuleSet, config: RunConfig) -> GraphSubstitutionEnv:
    settings = config.environment
    try:
        return GraphSubstitutionEnv(
            model,
            costs=config.costs,
            reward=settings.reward,
            rules=rules,
            max_steps=settings.max_steps,
            max_locations=settings.max_locations,
        )
    except ValueError as error:  # unknown cost model or reward: the texts list what there is
        raise UserError(str(error)) from error
