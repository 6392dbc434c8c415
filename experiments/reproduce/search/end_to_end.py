"""What rewriting gains on this machine when candidates are ranked by the clock.

rlflow reproduce end-to-end

A hill climb from the cleaned input graph. Candidates are rules applied at all places that look alike, once or several
times, rules applied until they apply no longer, and what a search under each analytic cost model finds. Each is
measured against the best graph so far, interleaved; those that are faster by more than their interval are added one to
another as long as that makes them faster still. What touches most of the work is measured first, and what costs several
times the work is not. The ratio in the table comes from a new measurement of the final graph against the input. A climb
measures no other candidate after 15 minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from controller.search.passes import exhaust
from environment import zoo
from environment.costs.limits import affordable
from environment.costs.prices.settings import setting_of
from environment.inputs.model_inputs import TIMED_ON
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.runtimes import OnnxRuntime
from experiments.reproduce import graphs
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record, once
from experiments.runs.progress import ProgressDisplay
from taso_ext import CostModel, OnnxModel, RuleSet, State, search_taso
from taso_ext.onnx_io.session import LEVELS

RANKING = "rtx2070"  # a preset of the roofline; only tells places apart
FLOPS_PER_BYTE = 13.0  # that a core computes while a byte comes from memory
MOST_TIMES = 3  # that a rule is applied at one place: groups of convolutions are merged by twos
MOST_MATCHES = 4096
WORTH_MEASURING_WELL = 1.03
"""A candidate whose ratio in a first look is greater is dropped."""

COLUMNS = {
    "graph": "cleaned in full",
    "input_ms": "one inference of the input graph",
    "ratio": "time of the best graph over that of the input, below 1 is faster",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
    "control": "the input against itself, measured at the same time, with its interval",
    "steps": "rewrites of the best graph",
    "tried": "candidates measured",
    "ended": "why: nothing left that helps, or no time left",
    "rules": "of the best graph, with how often each was applied",
}
FORMATS = {"input_ms": ".2f", "ratio": ".3f", "low": ".3f", "high": ".3f"}


@dataclass(frozen=True)
class Scale:
    """How much is tried and how well it is measured."""

    rounds: int
    budget: int  # graphs of each search
    seconds: float  # after which no other candidate is measured
    pairs: int
    sessions: int
    final_pairs: int
    final_sessions: int


SCALES = {"smoke": Scale(1, 200, 60, 6, 2, 10, 2), "full": Scale(3, 5000, 900, 8, 2, 40, 5)}


@dataclass(frozen=True)
class Candidate:
    """A rewritten graph and how it was reached from the input; all share the locations of the input's state."""

    state: State
    actions: tuple[tuple[int, int], ...]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    graphs.add_option(parser)
    parser.add_argument("--device", default="cpu", help="where to measure (cpu)")
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime (1)")
    parser.add_argument("--level", choices=LEVELS, default="all", help="of ONNX Runtime's graph optimisation (all)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Climbs from each graph; finished graphs are not climbed again."""
    names = graphs.chosen(options.graphs)
    rules, runtime = RuleSet.default(), OnnxRuntime(options.device, options.threads, options.level)
    rows = []
    with progress.stage("measure zoo graphs", total=len(names)) as bar:
        for name in names:
            rows.append(climbed(name, rules, options.scale, runtime))
            bar.update(len(rows))
    return Table(
        f"What rewriting gains on {options.device}, {options.threads} thread{'s' * (options.threads > 1)}",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{runtime.label}, on both sides. {len(rules)} rules.",
    )


def settings_of(rules: RuleSet, scale: str, runtime: OnnxRuntime) -> Record:
    """What the result of a climb depends on."""
    return {
        "scale": asdict(SCALES[scale]),
        "rules": rules.fingerprint,
        "setting": str(setting_of(runtime)),
        "feeds": TIMED_ON,
    }


def climbed(name: str, rules: RuleSet, scale: str, runtime: OnnxRuntime) -> Record:
    """The row of one graph; a finished climb is not done again."""
    settings = settings_of(rules, scale, runtime)
    return once("end-to-end", f"{name}-{scale}", settings, lambda: Climb(name, rules, SCALES[scale], runtime).run())


def _state(model: OnnxModel, rules: RuleSet, device: str) -> State:
    return State(model.graph, rules, CostModel.roofline(device), MOST_MATCHES)


def _alike(state: State) -> Iterator[tuple[int, list[int]]]:
    """Rules with the locations at which they match operators that do as much, and promise the same change of cost.

    Those whose operators do most come first: there is most to win.
    """
    rules, locations, costs_ms = state.candidates()
    if not len(rules):
        return
    change = np.round(costs_ms / state.cost.ms - 1, 9)
    logarithms = state.candidate_features(len(rules), one_hot_rules=False)[1:, -2:]  # of FLOPs and bytes, over 20
    kinds, group = np.unique(np.column_stack([rules, change, logarithms]), axis=0, return_inverse=True)
    work = np.bincount(group.reshape(-1), np.expm1(20.0 * logarithms) @ [1.0, FLOPS_PER_BYTE])
    for index in np.argsort(-work, kind="stable"):
        yield int(kinds[index, 0]), locations[group.reshape(-1) == index].tolist()


class Climb:
    """The climb from one graph."""

    def __init__(self, name: str, rules: RuleSet, scale: Scale, runtime: OnnxRuntime) -> None:
        self._name, self._rules, self._scale, self._runtime = name, rules, scale, runtime
        self._model = OnnxModel.load(zoo.build(name))
        self._measured: set[str] = set()
        self._begin = time.monotonic()

    def run(self) -> Record:
        """The row of the table."""
        best = start = Candidate(_state(self._model, self._rules, RANKING), ())
        for number in range(self._scale.rounds):
            if self._out_of_time():
                break
            better = self._round(best, searches=number == 0)
            if better.state.hash == best.state.hash:
                break
            best = better
        scale = self._scale
        final = self._measure(start, best, pairs=scale.final_pairs, sessions=scale.final_sessions, control=True)
        applied = [self._rules.names[rule] for rule, _ in best.actions]
        return {
            "graph": self._name,
            "input_ms": final.reference.ms.value,
            "ratio": final.ratio.value,
            "low": final.ratio.low,
            "high": final.ratio.high,
            "control": str(final.control and final.control.ratio),
            "steps": len(best.actions),
            "tried": len(self._measured),
            "ended": "time" if self._out_of_time() else "top",
            "rules": ", ".join(f"{applied.count(name)} {name}" for name in dict.fromkeys(applied)),
            "actions": best.actions,
            "pairs": final.pairs,
        }

    def _round(self, base: Candidate, *, searches: bool) -> Candidate:
        """The fastest that one kind of rewrite, or several of them together, make of `base`; `base` if none helps."""
        candidates = {c.state.hash: c for c in (*(self._searched(base) if searches else ()), *self._neighbours(base))}
        faster = []
        for candidate in candidates.values():
            if self._out_of_time():
                break
            if candidate.state.hash in self._measured or not affordable(base.state.cost, candidate.state.cost):
                continue
            self._measured.add(candidate.state.hash)
            if self._measure(base, candidate, pairs=2, sessions=1).ratio.value > WORTH_MEASURING_WELL:
                continue
            found = self._measure(base, candidate, pairs=self._scale.pairs, sessions=self._scale.sessions)
            if found.ratio.high < 1:
                faster.append((found.ratio.value, candidate))
        best = base
        for _, candidate in sorted(faster, key=lambda pair: pair[0]):
            joined = self._replay(best, candidate.actions[len(base.actions) :])
            if best is base or self._faster(best, joined):
                best = joined
        return best

    def _out_of_time(self) -> bool:
        return time.monotonic() - self._begin > self._scale.seconds

    def _faster(self, reference: Candidate, candidate: Candidate) -> bool:
        found = self._measure(reference, candidate, pairs=self._scale.pairs, sessions=self._scale.sessions)
        return found.ratio.high < 1

    def _measure(
        self, reference: Candidate, candidate: Candidate, *, pairs: int, sessions: int, control: bool = False
    ) -> Timing:
        return measure(
            Variant("base", self._runtime, self._model.export_detached(reference.state.graph)),
            [Variant("candidate", self._runtime, self._model.export_detached(candidate.state.graph))],
            Effort(resolution=None, pairs=pairs, sessions=sessions, control=control),
        )

    def _neighbours(self, base: Candidate) -> Iterator[Candidate]:
        for rule in np.unique(base.state.legal_actions()[:, 0]).tolist():
            yield self._exhausted(base, rule)
        for rule, places in _alike(base.state):
            for times in range(1, MOST_TIMES + 1):
                yield self._replay(base, [(rule, place) for place in places] * times)

    def _exhausted(self, base: Candidate, rule: int) -> Candidate:
        state = base.state.copy()
        actions = exhaust(state, rule)
        return Candidate(state, (*base.actions, *actions))

    def _searched(self, start: Candidate) -> Iterator[Candidate]:
        for device in CostModel.devices():
            found = search_taso(_state(self._model, self._rules, device), 1.05, self._scale.budget)
            yield self._replay(start, found.actions)

    @staticmethod
    def _replay(base: Candidate, actions: Iterable[tuple[int, int]]) -> Candidate:
        """Takes the actions that are legal when their turn comes: others may have made some impossible."""
        state, taken = base.state.copy(), list(base.actions)
        for rule, location in actions:
            if state.location_mask()[rule, location]:
                state.step(rule, location)
                taken.append((rule, location))
        return Candidate(state, tuple(taken))
