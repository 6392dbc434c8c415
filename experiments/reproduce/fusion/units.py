"""The units of the tables about fusion: a trained model of advantages, its quality, and a search.

A model learns from the training graphs alone. A search prices the plans of its own graph, and nothing that was priced
there before comes in: the quality of the predictions on unseen graphs is a unit of its own, which no search reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.fusion.run import Predictor, SearchConfig
from controller.fusion.samples import Samples, collect
from environment.fusion import FusionGraph, bytes_moved, load
from experiments.executors.local import Record
from experiments.executors.units import DIRECTORY, once, unit_path
from experiments.pipeline.fuse import shown_search
from experiments.runs.progress import ProgressDisplay
from experiments.runs.run import import_tensorflow

if TYPE_CHECKING:  # searches without a model load no TensorFlow
    from controller.fusion.advantages import AdvantageModel

TABLE = "fusion-table1"
"""The table in whose folder the units of all tables about fusion lie."""
RULES = 1
"""Version of the engine's rules and prices of fusion: units of another version are made again."""
BY_BYTES = "by bytes"
"""Guided search by a trivial predictor: what moves most is tried first, and nothing is learned."""
PREDICTORS = ("learned", "operator", "bytes")
"""Whose predictions of |advantage| are judged: the model's, and those of two trivial predictors."""
SEEDS = "0,1,2,3,4"
PRESETS = ("v100", "h100")
"""The GPUs by whose prices searches are compared."""


@dataclass(frozen=True)
class Plan:
    """What the tables are made of at a scale.

    At full scale all graphs are training graphs: forward pass, backward pass and a step of Adam. No price of an unseen
    one was asked for before its search: the constants of learning and searching were chosen on inference graphs, among
    them nasnet-a's, and on those that models learn from.

    Attributes:
      training, unseen: graphs that models learn from, and graphs that searches are judged on.
      large: unseen graphs that are searched with one query for each decision, by some searches only, and whose
        advantages are not sampled.
      small: the training graphs with the fewest decisions, from which a model of the ablations learns alone.
      frames: configurations of each training graph.
      steps: gradient steps.
      queries: budget of a search, as a multiple of the graph's configurable tensors.
      frames_judged: configurations of an unseen graph by which predictions are judged.
    """

    training: tuple[str, ...]
    unseen: tuple[str, ...]
    frames: int
    steps: int
    queries: int
    frames_judged: int
    large: tuple[str, ...] = ()
    small: tuple[str, ...] = ()


PLANS = {
    "smoke": Plan(
        ("nasrnn-tiny", "bert-base-tiny"),
        ("nasnet-a-tiny",),
        frames=4,
        steps=10,
        queries=2,
        frames_judged=2,
        large=("squeezenet1.1-tiny",),
        small=("nasrnn-tiny",),
    ),
    "full": Plan(
        tuple(
            f"{name}:training=adam"
            for name in (
                *("squeezenet1.1", "resnet18", "bert-l2-h128", "nasrnn", "minilm-l6", "dalle-mini"),
                *("generated-0", "generated-1", "generated-2", "generated-3"),
            )
        ),
        tuple(f"{name}:training=adam" for name in ("graph-network", "unet", "dlrm", "mnasnet", "ssd-mobilenet")),
        frames=40,
        steps=2000,
        queries=4,
        frames_judged=10,
        large=("nasnet-a:training=adam",),
        small=tuple(f"{name}:training=adam" for name in ("squeezenet1.1", "bert-l2-h128", "nasrnn")),
    ),
}


@dataclass(frozen=True)
class Learning:
    """A model of advantages: where it learns and how.

    Attributes:
      device: preset of the prices.
      seed: of the samples and of the network.
      plan: the training graphs and their numbers.
      changes: fields of `AdvantageConfig` that differ from the defaults.
    """

    device: str
    seed: int
    plan: Plan
    changes: tuple[tuple[str, Any], ...] = ()

    def settings(self) -> Record:
        plan = {
            key: value for key, value in dataclasses.asdict(self.plan).items() if key in ("training", "frames", "steps")
        }
        return {"rules": RULES, "device": self.device, "seed": self.seed, "changes": dict(self.changes), **plan}


@cache
def graph_of(name: str, device: str) -> FusionGraph:
    """Loads a graph once in a process, since large ones take seconds."""
    return load(name, device)


def _samples(learning: Learning, name: str) -> Samples:
    """Returns the samples of a training graph, from their shard if an earlier run has collected them."""
    graph = graph_of(name, learning.device)
    path = (
        DIRECTORY / TABLE / "samples" / f"{name}-{learning.device}-{learning.plan.frames}-{learning.seed}-v{RULES}.npz"
    )
    if path.is_file():
        return Samples.read(path, graph)
    samples = collect(graph, learning.plan.frames, seed=learning.seed)
    samples.write(path, graph)
    return samples


def _training_data(learning: Learning) -> list[tuple[FusionGraph, Samples]]:
    return [(graph_of(name, learning.device), _samples(learning, name)) for name in learning.plan.training]


def _name(learning: Learning) -> str:
    return f"model-{learning.device}-{learning.seed}"


def _model_path(learning: Learning) -> Path:
    return unit_path(TABLE, _name(learning), learning.settings()).with_suffix(".npz")


def learned(learning: Learning, progress: ProgressDisplay) -> Record:
    """Collects samples, trains a model and keeps it beside its record; a finished one is not trained again."""
    return once(TABLE, _name(learning), learning.settings(), lambda: _trained(learning, progress), anywhere=True)


def _trained(learning: Learning, progress: ProgressDisplay) -> Record:
    import_tensorflow()
    from controller.fusion.advantages import AdvantageConfig, AdvantageModel

    training, data = learning.plan.training, []
    with progress.stage(f"samples of training graphs, {learning.device}, seed {learning.seed}", len(training)) as bar:
        for number, name in enumerate(training):
            data.append((graph_of(name, learning.device), _samples(learning, name)))
            bar.update(number + 1)
    config = AdvantageConfig(**{"steps": learning.plan.steps, **dict(learning.changes)})
    model = AdvantageModel(config, seed=learning.seed)
    with progress.stage(f"advantages, {learning.device}, seed {learning.seed}", config.steps) as bar:
        loss = model.train(data, lambda done, total, figures: bar.update(done, **figures))
    model.save(_model_path(learning))
    return {"loss": loss, "training_queries": sum(samples.queries for _, samples in data)}


def _loaded(learning: Learning, progress: ProgressDisplay) -> AdvantageModel:
    import_tensorflow()
    from controller.fusion.advantages import AdvantageModel

    learned(learning, progress)
    if not _model_path(learning).is_file():  # its record came with the source, which has no weights
        _trained(learning, progress)
    return AdvantageModel.load(_model_path(learning))


def judged(learning: Learning, name: str, progress: ProgressDisplay) -> Record:
    """Returns how well a model orders the decisions of an unseen graph, beside trivial predictors."""

    def work() -> Record:
        from controller.fusion.advantages import OperatorMeans, quality

        model, graph = _loaded(learning, progress), graph_of(name, learning.device)
        unseen = collect(graph, learning.plan.frames_judged, seed=10_000 + learning.seed)
        plans = np.zeros((len(unseen.configurations), len(graph.problem)), np.uint8)
        plans[:, graph.configurable] = unseen.configurations
        guesses = (
            np.stack([model.predict(graph, plan) for plan in plans]),
            np.tile(OperatorMeans(_training_data(learning)).predict(graph), (len(plans), 1)),
            np.tile(bytes_moved(graph), (len(plans), 1)),
        )
        return {name: quality(guess, unseen.advantages_ms) for name, guess in zip(PREDICTORS, guesses, strict=True)}

    settings = {**learning.settings(), "frames_judged": learning.plan.frames_judged}
    record = once(TABLE, f"quality-{name}-{_name(learning)}", settings, work, anywhere=True)
    return {**record, "graph": name, "device": learning.device, "seed": learning.seed}


def searched(
    name: str, method: str, config: SearchConfig, learning: Learning, variant: str, progress: ProgressDisplay
) -> Record:
    """Searches a plan of an unseen graph; `config.budget` is a multiple of its configurable tensors.

    Args:
      variant: what the row is called.
    """
    settings: Record = {"rules": RULES, "device": learning.device, "seed": learning.seed, "method": method}
    settings |= {"search": dataclasses.asdict(config)} | ({"model": learning.settings()} if method == "guided" else {})

    unit = f"{name}-{method}-{learning.device}-{config.start}-{learning.seed}"

    def work() -> Record:
        graph = graph_of(name, learning.device)
        count = len(graph.configurable)
        limits = dataclasses.replace(config, budget=1 + config.budget * count)
        predictor = _predictor(method, learning, progress)
        named = "guided" if method == BY_BYTES else method
        state = unit_path(TABLE, unit, settings).with_suffix(".search.npz")
        title = f"{name} {method}, {learning.device}, seed {learning.seed}"
        found = shown_search(progress, title, named, graph, limits, learning.seed, predictor, state)
        return {"configurable": count, "budget": limits.budget, "start_ms": found.start_ms, "curve": found.curve}

    record = once(TABLE, unit, settings, work, anywhere=True)
    known = {"graph": name, "device": learning.device, "start": config.start, "seed": learning.seed}
    return {**record, **known, "method": method, "variant": variant}


def _predictor(method: str, learning: Learning, progress: ProgressDisplay) -> Predictor | None:
    if method == "guided":
        return _loaded(learning, progress).scores
    return (lambda graph, _: bytes_moved(graph)) if method == BY_BYTES else None


def devices_of(names: str | None) -> Sequence[str]:
    """Returns the device presets that an option names; None means all.

    Raises:
      UserError: there is no such preset.
    """
    from experiments.reproduce.options import named

    return list(named(names, {device: device for device in PRESETS}, "fusion device"))
