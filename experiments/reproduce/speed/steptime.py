"""The time of a step in the real environment, with and without a measurement, and in the dream.

rlflow reproduce steptime

All times are processor time of one thread, medians over steps of random episodes. The world model has the sizes of the
preset `best` and the actions of its random episodes. It is hardly trained, because its speed does not depend on its
weights. A dream step includes the prediction of the legal actions and the choice of one of them. A measurement on
another device than the CPU is timed by the clock on the wall, because the processor waits meanwhile. Each of the
two graphs takes about five minutes.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from environment import GraphSubstitutionEnv, zoo
from environment.costs.end_to_end import EFFORT, EndToEnd
from environment.costs.limits import NoisyClockWarning
from environment.inputs import TIMED_ON
from environment.measurement.effort import PROCESS_CPU, WALL, Clock, Effort
from environment.policies.random import RandomAgent, uniform_rewrite
from experiments.config.run import load_config
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_device, add_graphs, chosen_graphs, run_units
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay
from experiments.runs.signals import raise_if_received
from taso_ext import OnnxModel, RuleSet, State

DEFAULT_GRAPHS = ("resnet50", "bert-base")
COSTS = "roofline:rtx2070"
BATCH, ENCODE_BATCH = 256, 16
EPISODE = 50
"""Number of steps after which the engine starts again, as episodes do."""

STEPS = {
    "engine": "rewrite, match anew, masks",
    "real": "the same with costs and observation",
    "timed": "the same with a measurement end to end",
    "encode": "encode a state",
    "encode_many": f"encode a state, {ENCODE_BATCH} at a time",
    "dream": "dream step",
    "dream_xla": "dream step, whole rollouts compiled",
    "dream_many": f"dream step, {BATCH} rows at a time",
}
DREAMED = ("encode", "encode_many", "dream", "dream_xla", "dream_many")
"""The steps that need a world model, and with it TensorFlow."""
PAPERS_MS = {("resnet50", "real"): 850.0, ("resnet50", "dream"): 10.0}
PAPERS = "RLFlow: Optimising Neural Network Subgraph Transformation with World Models"

COLUMNS = {
    "graph": "cleaned in full",
    "operators": "of the start graph",
    "actions": "(rule, site) pairs that the world model knows",
    "step": "what is done",
    "ms": "processor time of one, of one row or state where there are several; on the wall for a measurement on a GPU",
    "ratio": "to a dream step of a single row",
    "papers_ms": f"as published: {PAPERS} gives one step of ResNet-50 in each world, on hardware of its own",
    "papers_ratio": "the same ratio, as published",
}
FORMATS = {"ms": ".3f", "ratio": ".3g", "papers_ms": ".0f", "papers_ratio": ".0f"}


@dataclass(frozen=True)
class Counts:
    """The amount of work that is timed.

    Attributes:
      episodes: the number of random episodes that the world model is made of.
      steps: the number of real steps without a measurement.
      timed: the number of real steps with an end-to-end measurement.
      effort: the effort of such a measurement.
      repeats: the number of timed rollouts and of timed encodings; single states are encoded five times as often.
    """

    episodes: int
    steps: int
    timed: int
    effort: Effort
    repeats: int


SCALES = {
    "smoke": Counts(4, 10, 2, Effort(resolution=None, pairs=2, sessions=1, control=False), 2),
    "full": Counts(200, 500, 5, EFFORT, 10),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, default=" ".join(DEFAULT_GRAPHS))
    add_device(parser)
    parser.add_argument(
        "--without-dream", action="store_true", help="time the real environment only, which needs no TensorFlow"
    )


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Times the steps of each graph; finished graphs are not timed again."""
    names = chosen_graphs(options, DEFAULT_GRAPHS)
    costs = EndToEnd(options.device, effort=SCALES[options.scale].effort)
    study = StepTimes(SCALES[options.scale], costs, dreams=not options.without_dream)
    units = [Unit(name, partial(study.times, name, options.scale)) for name in names]
    found = dict(zip(names, run_units(units, options, progress, measures=True), strict=True))
    noise = max(record["noise"] for record in found.values())
    return Table(
        "What a step takes in the real environment and in the dream",
        COLUMNS,
        FORMATS,
        [row for name, record in found.items() for row in rows(name, record)],
        options.command_line,
        f"{study.text} The widest interval of a measured ratio was ± {noise:.1%}.",
        finding(found),
    )


def finding(found: Mapping[str, Record]) -> str:
    """Returns how long real and dreamed steps take, in one sentence for each graph."""
    return " ".join(_sentence(name, record) for name, record in found.items())


def _sentence(name: str, record: Record) -> str:
    text = f"{name}: a real step takes {record['real']:.3f} ms, {record['timed'] / 1e3:.1f} s with a measurement"
    if "dream" not in record:
        return f"{text}; no dream was timed."
    return (
        f"{text}, and a dream step {record['dream']:.3f} ms, {record['dream_many']:.3f} ms a row where there are "
        f"{BATCH}."
    )


def rows(name: str, record: Record) -> list[Record]:
    """Returns one row for each kind of step that was timed."""
    return [
        {
            "graph": name,
            "operators": record["operators"],
            "actions": record.get("actions", UNDEFINED),
            "step": text,
            "ms": record[step],
            "ratio": record[step] / record["dream"] if "dream" in record else UNDEFINED,
            "papers_ms": PAPERS_MS.get((name, step), UNDEFINED),
            "papers_ratio": _papers_ratio(name, step),
        }
        for step, text in STEPS.items()
        if step in record
    ]


def _papers_ratio(name: str, step: str) -> float | str:
    known, dream = PAPERS_MS.get((name, step)), PAPERS_MS.get((name, "dream"))
    return UNDEFINED if known is None or dream is None else known / dream


def engine_steps_ms(start: State, steps: int, seed: int = 0) -> Iterator[float]:
    """Yields the processor time in ms of random rewrites, each with matching and masks; `start` must allow some."""
    generator, state, depth = np.random.default_rng(seed), start.copy(), 0
    for _ in range(steps):
        if depth == EPISODE or not len(state.legal_actions()):
            state, depth = start.copy(), 0
        depth, legal = depth + 1, state.legal_actions()
        rule, location = uniform_rewrite(legal, generator)
        before = PROCESS_CPU.now()
        state.step(rule, location)
        state.rule_mask()
        state.location_mask()
        yield 1e3 * (PROCESS_CPU.now() - before)


def real_steps_ms(
    env: GraphSubstitutionEnv, steps: int, seed: int = 0, clock: Clock = PROCESS_CPU
) -> Iterator[tuple[float, float]]:
    """Yields the time in ms of each step of random episodes, and the relative noise of the cost after it."""
    agent, ended = RandomAgent(seed, noop_probability=0.0), True
    for _ in range(steps):
        if ended:
            observation, _ = env.reset(seed=seed)
        action = agent(observation)
        before = clock.now()
        observation, _, terminated, truncated, info = env.step(action)
        yield 1e3 * (clock.now() - before), info.get("cost_noise", 0.0)
        ended = terminated or truncated
        raise_if_received()


def _limits(effort: Effort) -> str:
    """Returns what ends a measurement, in words."""
    named = {
        f"±{effort.resolution:.0%}" if effort.resolution else "": effort.resolution,
        f"{effort.pairs} pairs": effort.pairs,
        f"{effort.seconds:g} s": effort.seconds,
    }
    return " or ".join(text for text, limit in named.items() if limit)


class StepTimes:
    """The measurement of all kinds of steps of a graph; each is one rewrite, as in the published figures."""

    def __init__(self, scale: Counts, costs: EndToEnd, *, dreams: bool = True) -> None:
        """
        Args:
          scale: how much is timed.
          costs: the cost model that measures whole graphs.
          dreams: whether the steps that need a world model are timed too.
        """
        self._scale, self._costs, self._dreams = scale, costs, dreams
        self._rules, self._sizes = RuleSet.default(), load_config("best", {}).world_model

    @property
    def text(self) -> str:
        """The settings of the measurement, in words."""
        worlds = f"World models of {self._scale.episodes} random episodes" if self._dreams else "No world models; steps"
        return (
            f"{worlds} under {COSTS} with {len(self._rules)} rules. "
            f"Whole graphs are measured by {self._costs.runtime.label}, until {_limits(self._scale.effort)}."
        )

    def times(self, name: str, scale: str, progress: ProgressDisplay) -> Record:
        """Returns the milliseconds of every kind of step of a graph, and facts about it; finished ones are only read.

        Raises:
          UserError: nothing can be rewritten in this graph.
        """
        settings = {
            "steps": [step for step in STEPS if self._dreams or step not in DREAMED],
            "scale": asdict(self._scale),
            "rules": self._rules.fingerprint,
            "runtime": self._costs.runtime.label,
            "feeds": TIMED_ON,
            "sizes": [asdict(self._sizes.encoder), asdict(self._sizes.mdn_rnn)],
        }
        return once("steptime", f"{name}-{scale}", settings, lambda: self._time(name, progress))

    def _time(self, name: str, progress: ProgressDisplay) -> Record:
        model = OnnxModel.load(zoo.build(name))
        env = GraphSubstitutionEnv(model, costs=COSTS, rules=self._rules, everywhere=False)
        if not len(env.legal_actions()):
            raise UserError(f"No rule applies to {name}: there is no step to time. Choose another graph.")
        with progress.stage(f"time steps of {name}", 3) as bar:
            record: Record = {
                "operators": env.state.graph.num_runtime_nodes,
                "engine": statistics.median(engine_steps_ms(env.state, self._scale.steps)),
                "real": statistics.median(ms for ms, _ in real_steps_ms(env, self._scale.steps)),
            }
            bar.update(1)
            measured = GraphSubstitutionEnv(model, costs=self._costs, rules=self._rules, everywhere=False)
            record |= self._measure(measured)
            bar.update(2)
            record |= self._dream(env) if self._dreams else {}
            bar.update(3)
        return record

    def _measure(self, env: GraphSubstitutionEnv) -> Record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisyClockWarning)  # the table says how noisy it was
            clock = PROCESS_CPU if self._costs.device == "cpu" else WALL
            times_ms, noise = zip(*real_steps_ms(env, self._scale.timed, clock=clock), strict=True)
        return {"timed": statistics.median(times_ms), "noise": max(noise)}

    def _dream(self, env: GraphSubstitutionEnv) -> Record:
        from experiments.runs.run import import_tensorflow

        import_tensorflow()
        from experiments.reproduce.speed.dream_times import FixedOrder, barely_trained, dream_env, dream_ms, encode_ms

        model, buffer = barely_trained(env, self._scale.episodes, self._sizes)
        graph, repeats = buffer.graphs[buffer[0].hashes[0]], self._scale.repeats
        dream, policy = dream_env(model, buffer), FixedOrder(model.num_actions)
        return {
            "actions": model.num_actions,
            "encode": encode_ms(model, graph, batch=1, repeats=5 * repeats),
            "encode_many": encode_ms(model, graph, batch=ENCODE_BATCH, repeats=repeats),
            "dream": dream_ms(dream, policy, batch=1, repeats=repeats),
            "dream_xla": dream_ms(dream_env(model, buffer, xla=True), policy, batch=1, repeats=repeats),
            "dream_many": dream_ms(dream, policy, batch=BATCH, repeats=repeats),
        }
