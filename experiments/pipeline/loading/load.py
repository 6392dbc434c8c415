"""Loads the inputs of a run: the model, the rules, the cost model and the environment.

A model is given as on the command line: by the path of an ONNX file, or by a name of the zoo.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from environment import GraphSubstitutionEnv, zoo
from environment.costs import registry as cost_models
from environment.costs.corrected.cost_model import Corrected
from environment.costs.end_to_end import EFFORT, EndToEnd, RecordedEndToEnd, effort_of
from environment.costs.interface import Costs
from environment.costs.measured.cost_model import Learned, Measured, Recorded, runtime_here
from environment.costs.prices.database import default_database
from environment.costs.prices.settings import setting_of
from environment.counting import Counts, counting
from environment.inputs import check_given, input_specs
from environment.runtimes import OnnxRuntime
from environment.runtimes.interface import threads_text
from environment.runtimes.onnx_runtime import require_working
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.pipeline.loading.cases import Cases, Plan
from experiments.runs.directory import features_fingerprint, stored_formats
from experiments.runs.result import MEASURED_FORMAT, GraphFigures
from taso_ext import Graph, OnnxModel, RuleSet
from taso_ext.errors import ModelError, did_you_mean
from taso_ext.files import UNREADABLE_ARRAYS
from taso_ext.rule_sets import load_rule_set


@dataclass(frozen=True)
class ModelSource:
    """An ONNX file or a graph of the zoo.

    Attributes:
      name: name in titles and files.
      path: path of the file; None for a graph of the zoo.
    """

    name: str
    path: Path | None

    def build(self) -> onnx.ModelProto | Path:
        """Returns the argument for `OnnxModel.load`: the file's path, or the zoo's graph."""
        return self.path or zoo.build(self.name)


def find_model(model: str) -> ModelSource:
    """Returns the file of this path, or else the zoo graph of this name.

    Raises:
      UserError: there is no such file, and `model` can only be meant as a name; the message suggests the nearest one.
    """
    path = Path(model)
    if path.is_file() or not zoo.contains(model):
        _require_file_or_name(path, model)
        return ModelSource(path.stem, path)
    return ModelSource(model, None)


def find_models(models: Sequence[str]) -> list[ModelSource]:
    """Returns the named models, or the full-size graphs of the zoo if none is named."""
    return [find_model(model) for model in models or zoo.published_names()]


def _require_file_or_name(path: Path, model: str) -> None:
    if not path.exists() and path.suffix != ".onnx" and path.name == model:
        try:
            zoo.build(model)
        except zoo.ZooError as error:
            raise UserError(f"There is no file '{model}', and {error}") from error


@dataclasses.dataclass(frozen=True)
class RunCosts:
    """The cost model of a run.

    Attributes:
      costs: one cost model for all environments of the run.
      clock_chooses: whether its prices are of the device that the result is for; then the clock has the last word on
        which graph is exported.
      caveat: one sentence if the prices were measured on another machine; else empty.
      prices: identity of the prices or of the setting that they are measured in, on which the costs depend beside the
        configuration; empty if they depend on nothing else.
    """

    costs: Costs
    clock_chooses: bool = False
    caveat: str = ""
    prices: str = ""


def find_costs(config: RunConfig) -> RunCosts:
    """Returns the cost model that the configuration names.

    Raises:
      UserError: the cost model is unknown, or its device, threads or level differ from those of the final measurement.
    """
    try:
        name = cost_models.parse(config.costs)
        if config.measures_costs and name.place:
            return _measuring(name, config)
        costs = cost_models.find(config.costs)
    except ValueError as error:  # an unknown cost model or device: the texts list what there is
        raise UserError(str(error)) from error
    return _replayed(costs, config) if isinstance(costs, Recorded | RecordedEndToEnd) else RunCosts(costs)


def _measuring(name: cost_models.Name, config: RunConfig) -> RunCosts:
    """Returns a cost model that measures as the final measurement will: same device, threads and level."""
    device, noise, settings = name.place, name.noise, config.measure
    runtime = OnnxRuntime(device, settings.num_threads, settings.level)
    if device != config.device:
        raise UserError(
            f"Costs are measured on {device} and the result on {config.device}: expected one device. Add --device "
            f"{device}, or choose other --costs."
        )
    costs: Costs
    if name.kind == "endtoend":
        effort = dataclasses.replace(EFFORT, resolution=settings.resolution or EFFORT.resolution)
        database: Path | None = default_database()
        if name.pairs is not None:  # its prices would stand beside surer ones
            effort, database = effort_of(effort, name.pairs), None
        if name.timings is None:
            costs = EndToEnd(device, runtime=runtime, effort=effort, noise=noise, database=database)
        else:
            of_kernels: dict[str, Any] = {"threads": settings.num_threads, "level": settings.level}
            costs = Corrected(device, name.timings, pairs=name.pairs, effort=effort, graphs=database, **of_kernels)
    else:
        kernels = partial(Measured, predict=settings.predict) if name.kind == "measured" else Learned
        costs = kernels(device, threads=settings.num_threads, level=settings.level, noise=noise)
    return RunCosts(costs, clock_chooses=True, prices=str(setting_of(runtime)))


def _replayed(costs: Recorded | RecordedEndToEnd, config: RunConfig) -> RunCosts:
    """Returns a cost model of recorded prices.

    Prices of this machine are as good as new ones. Whether those of another machine are true cannot be checked here.
    """
    setting, measure = costs.setting, config.measure
    here = runtime_here(setting)
    if here is None or setting_of(here) != setting:
        caveat = f"The prices are of another machine, {setting}: that the result is faster there was not checked."
        return RunCosts(costs, caveat=caveat, prices=costs.digest)
    if (setting.device, setting.threads, setting.level) != (config.device, measure.num_threads, measure.level):
        raise UserError(
            f"The prices in {config.costs} are of this machine's {setting}, but the result is measured on "
            f"{config.device}, {threads_text(measure.num_threads)}, optimisation {measure.level}: expected the same of "
            f"both. Add --device {setting.device} --set measure.threads={setting.threads} "
            f"--set measure.level={setting.level}, or choose other --costs."
        )
    return RunCosts(costs, clock_chooses=True, prices=costs.digest)


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The loaded inputs of a run.

    Attributes:
      name: name of the model, for titles and the run directory.
      model: the model in the native engine.
      make_env: makes another real environment of the model; `max_steps` changes its limit of steps.
      env_source: also makes one, and can be sent to another process, which then loads everything anew.
      env: the first real environment.
      num_candidates: number of rewrites that the start graph allows.
      inputs: arrays of `--inputs` by input name; None if none are given.
      fingerprint: everything beside the configuration that decides the result.
      seconds, cpu_seconds: wall-clock time and CPU time of loading.
      clock_chooses, caveat: see `RunCosts`.
      counts: what loading has done; costs may time the start graph.
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
    cpu_seconds: float
    clock_chooses: bool
    caveat: str
    counts: Counts

    def environment(self, max_steps: int) -> GraphSubstitutionEnv:
        """Returns a new real environment with another limit of steps."""
        return self.make_env(max_steps=max_steps)

    def figures(self, graph: Graph, cost_ms: float, cost_noise: float) -> GraphFigures:
        """Returns the figures of a graph by the run's cost model, given its cost in ms and the noise of that."""
        cost = graph.cost(self.env.cost_model)
        counts = cost.flops, cost.memory_bytes, cost.kernel_launches
        return GraphFigures(graph.num_runtime_nodes, cost_ms, *counts, cost_noise)


def load(model: str, config: RunConfig) -> Loaded:
    """Loads the model, the rules, the costs and the inputs, so that bad input fails before any work.

    Args:
      model: path of an ONNX file, or zoo name.
      config: settings, of which the dims, clean-up, rules, opset, costs, device, environment and inputs matter here.
    Raises:
      UserError, ModelError, UnavailableError: the input is bad; the message says what is wrong and what to do.
    """
    start, cpu_start = time.perf_counter(), time.process_time()
    require_working(config.device)  # now rather than after the search
    inputs = given_inputs(config.inputs)
    loaded, rules = load_model(model, config)
    if inputs is not None:
        check_given(input_specs(loaded.source), inputs)  # before costs, which may time kernels
    found = find_costs(config)
    make_env = partial(make_environment, loaded, rules, found.costs, config)
    with counting() as counts:
        env = make_env()
    return Loaded(
        name=find_model(model).name,
        model=loaded,
        make_env=make_env,
        env_source=_EnvironmentSource(model, config, make_env),
        env=env,
        num_candidates=len(env.legal_actions()),
        inputs=inputs,
        fingerprint={
            "graph": loaded.graph.hash,
            "rules": env.rules.fingerprint,
            "prices": found.prices,
            "features": features_fingerprint(),
            "formats": {**stored_formats(), "measured": MEASURED_FORMAT},
        },
        seconds=time.perf_counter() - start,
        cpu_seconds=time.process_time() - cpu_start,
        clock_chooses=found.clock_chooses,
        caveat=found.caveat,
        counts=counts,
    )


def load_model(model: str, config: RunConfig) -> tuple[OnnxModel, RuleSet]:
    """Loads the model and the rules alone, which needs no device and prices nothing; see `load`."""
    dims = config.bound_dims()
    loaded = OnnxModel.load(
        find_model(model).build(), dims=dims, clean=config.clean, sizes_last=config.symbolic == "keep"
    )
    rules = _allowed(load_rules(config.rules), loaded, config)
    if config.symbolic == "keep" and dims:
        rules = _independent(rules, loaded, config)
    return loaded, rules


class _EnvironmentSource:
    """Makes environments: in this process with the costs of the run, so that no graph is timed twice."""

    def __init__(self, model: str, config: RunConfig, make_env: Callable[[], GraphSubstitutionEnv]) -> None:
        self._model, self._config = model, config
        self._make_env: Callable[[], GraphSubstitutionEnv] | None = make_env

    def __call__(self) -> GraphSubstitutionEnv:
        return load(self._model, self._config).env if self._make_env is None else self._make_env()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_make_env": None}  # costs and the native model cannot be sent


def load_rules(path: str | None) -> RuleSet:
    """Returns the rules of a file, the default ones (None), or those of `default+FAMILY`, see `load_rule_set`.

    Raises:
      UserError: the file cannot be read, a rule lacks its proof, or no optional family has this name.
    """
    try:
        return load_rule_set(path)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read the rules {path}: {error}") from error


def _allowed(rules: RuleSet, model: OnnxModel, config: RunConfig) -> RuleSet:
    """Returns the rules that `--only`, `--skip`, `--opset` and `--portable` allow."""
    names = _named(rules.names, config.only, "--only") if config.only else set(rules.names)
    names -= _named(rules.names, config.skip, "--skip")
    try:
        return rules.restricted(
            max_opset=model.opset if config.opset == "keep" else None,
            domains=[""] if config.portable else None,
            names=names,
        )
    except ValueError as error:
        named = [f"--only {each}" for each in config.only] + [f"--skip {each}" for each in config.skip]
        options = " ".join([*named, f"--opset {config.opset}", *(["--portable"] if config.portable else [])])
        raise UserError(f"With {options}, {error}.") from error


def _independent(rules: RuleSet, model: OnnxModel, config: RunConfig) -> RuleSet:
    """Returns the rules without those whose rewrites of the model depend on dimensions that could stay symbolic.

    If each does, all are returned: where they apply after others, they may be independent.
    """
    cases = Cases(model, rules, config)
    names = cases.general(Plan()).names
    left = set(rules.names) - (cases.dependent_rules(names) if names else set())
    return rules.restricted(names=left) if left else rules


def _named(names: Sequence[str], patterns: Sequence[str], flag: str) -> set[str]:
    """Returns the names that any of the patterns fits."""
    found: set[str] = set()
    for pattern in patterns:
        fitting = fnmatch.filter(names, pattern)
        if not fitting:
            raise UserError(
                f"{flag} {pattern}: no rule has this name{did_you_mean(pattern, names)}. `rlflow rules show` lists "
                "all rules, and * stands for any part of a name."
            )
        found.update(fitting)
    return found


def make_environment(
    model: OnnxModel, rules: RuleSet, costs: Costs, config: RunConfig, max_steps: int | None = None
) -> GraphSubstitutionEnv:
    """Returns a real environment of a model; `max_steps` changes the limit of steps that the settings give.

    Raises:
      UserError: the settings name an unknown reward.
    """
    settings = config.environment
    try:
        return GraphSubstitutionEnv(
            model,
            costs=costs,
            reward=settings.reward,
            rules=rules,
            max_steps=max_steps or settings.max_steps,
            max_locations=settings.max_locations,
            everywhere=settings.everywhere,
        )
    except ModelError:
        raise
    except ValueError as error:  # an unknown reward: the text lists what there is
        raise UserError(str(error)) from error


def given_inputs(path: str | None) -> dict[str, np.ndarray] | None:
    """Returns the arrays of `--inputs` by input name; None if there is no path.

    Raises:
      UserError: the file cannot be read.
    """
    if path is None:
        return None
    try:
        arrays = np.load(path)
        if isinstance(arrays, np.ndarray):
            raise ValueError("it holds one array without a name")
        with arrays:
            return dict(arrays)
    except UNREADABLE_ARRAYS as error:
        raise UserError(f"Cannot read the inputs {path}: {error}. Expected an npz file (numpy.savez).") from error
