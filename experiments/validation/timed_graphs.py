"""Makes the graphs again that a run has timed as a whole, and says which are not those that its files name.

What was timed cannot be timed again as it was then. The rewrites, the graphs that they lead to, and the figures that
follow from others are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from controller.records import EpisodeRecord
from controller.search.journal import FILE, Actions, as_actions
from environment import GraphSubstitutionEnv
from experiments.pipeline.clock.timings import CHECKPOINT, Plan
from experiments.validation.replayed_episodes import Difference, Tolerance
from taso_ext import State

JOURNAL = f"checkpoints/{FILE}"


def ends(env: GraphSubstitutionEnv, plans: Iterable[Sequence[tuple[int, int]]]) -> dict[Actions, str]:
    """Returns the hash of the graph to which each of some plans leads, or in words which of its rewrites is not legal.

    Plans that begin alike are replayed together, as those of a climb mostly do.
    """
    found: dict[Actions, str] = {}
    states, before = [env.start_state()], Actions()
    for plan in sorted({tuple(plan) for plan in plans}):
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, plan, strict=False))
        del states[1 + sum(1 for _ in alike) :]
        found[plan] = _end(env, states, plan)
        before = plan[: len(states) - 1]
    return found


def _end(env: GraphSubstitutionEnv, states: list[State], plan: Actions) -> str:
    """Adds the states along a plan to those at its beginning; returns the hash of the last one, or what is wrong."""
    for number in range(len(states) - 1, len(plan)):
        try:
            states.append(env.after(states[-1], *plan[number]))
        except ValueError:
            return f"none, because action {number} is not legal"
    return str(states[-1].hash)


def journal_differences(
    env: GraphSubstitutionEnv, lines: Sequence[Mapping[str, Any]], played: EpisodeRecord | None
) -> Iterator[Difference]:
    """Yields what is wrong in the journal of a climb.

    Args:
      lines: its lines.
      played: the episode that plays the climb's best plan; None if there is none.
    """
    if not lines:
        return
    plans = [as_actions(line["actions"]) for line in lines if line["kind"] in ("timed", "best")]
    last = () if played is None else played.best_actions
    hashes = ends(env, [(), *plans, last])
    start = best = hashes[()]
    ratio = 1.0
    timed: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        for what, claimed, found in _claims(line, hashes, env, start, (best, ratio), timed):
            if claimed != found and not (isinstance(found, float) and Tolerance().equal(claimed, found)):
                yield Difference(f"{JOURNAL}, line {number}", None, what, str(claimed), str(found))
                return
        if line["kind"] == "timed":
            timed[line["graph"]] = line["base_ratio"] * line["ratio"]
        elif line["kind"] == "best":
            best, ratio = line["graph"], line["ratio"]
    if played is not None and hashes[last] != best:
        yield Difference(JOURNAL, None, "the graph of the episode that plays its best plan", best, hashes[last])


def _claims(
    line: Mapping[str, Any],
    hashes: Mapping[Actions, str],
    env: GraphSubstitutionEnv,
    start: str,
    best: tuple[str, float],
    timed: Mapping[str, float],
) -> Iterator[tuple[str, Any, Any]]:
    """Yields what a line of a journal claims: what it is, as it was recorded, and as it follows from the lines before.

    Args:
      hashes: the graphs to which the plans of all lines lead.
      start: the start graph.
      best: the best graph until then, and its ratio to the start graph.
      timed: the ratios of the graphs that were timed until then.
    """
    if line["kind"] == "begun":
        yield "the start graph", line["graph"], start
        yield "the rule set", line["rules"], env.rules.fingerprint
    if line["kind"] in ("timed", "best"):
        yield "the graph of its actions", line["graph"], hashes[as_actions(line["actions"])]
    if line["kind"] == "timed":
        yield "the graph that it was compared with", line["base"], best[0]
        yield "the ratio of that graph", line["base_ratio"], best[1]
    if line["kind"] == "best":
        yield "the ratio", line["ratio"], timed.get(line["graph"], "of no graph that was timed")
        yield "the number of graphs timed so far", line["timed"], len(timed)


def whole_graph_differences(
    env: GraphSubstitutionEnv, kept: Sequence[tuple[str, Plan | None]], met: set[str]
) -> Iterator[Difference]:
    """Yields what is wrong with the hashes of graphs that were timed to correct prices.

    Args:
      kept: the hash of each, and the rewrites that lead to it; older versions kept no rewrites.
      met: hashes of graphs that episodes of the run meet, of which one without rewrites has to be.
    """
    hashes = ends(env, [plan for _, plan in kept if plan is not None])
    for number, (claimed, plan) in enumerate(kept):
        found = hashes[tuple(plan)] if plan is not None else claimed if claimed in met else "one that no episode meets"
        if claimed != found:
            yield Difference(f"{CHECKPOINT}, graph {number}", None, "the graph of its actions", claimed, found)
