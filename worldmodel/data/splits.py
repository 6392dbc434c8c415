"""What a model may be judged on: states that it was not trained on, and graphs that it was not trained on.

Whole episodes are held out by `EpisodeBuffer.split`, or collected under another seed. That alone does not make their
states new: all episodes of a graph begin in one state, and few rewrites lead to few graphs.
"""

from __future__ import annotations

from collections.abc import Collection

from worldmodel.data.episodes import EpisodeBuffer


def states_of(buffer: EpisodeBuffer) -> frozenset[str]:
    """Hashes of all states that the episodes visit; what is `seen` of training episodes (`open_loop.cut_windows`)."""
    return frozenset(graph_hash for episode in buffer for graph_hash in episode.hashes)


def share_unseen(buffer: EpisodeBuffer, seen: Collection[str], *, first: int = 0) -> float:
    """Share of the visits, from depth `first` on, that are to states outside `seen`; NaN without visits."""
    visits = [graph_hash not in seen for episode in buffer for graph_hash in episode.hashes[first:]]
    return sum(visits) / len(visits) if visits else float("nan")


def start_graphs(buffer: EpisodeBuffer) -> tuple[str, ...]:
    """Hashes of the graphs that episodes start from, in order of first appearance."""
    return tuple(dict.fromkeys(episode.hashes[0] for episode in buffer))


def split_by_graph(buffer: EpisodeBuffer, held_out: Collection[str]) -> tuple[EpisodeBuffer, EpisodeBuffer]:
    """Splits into episodes of other graphs and episodes of held-out ones: (training, held out).

    Args:
      buffer: episodes of several start graphs.
      held_out: hashes of start graphs.
    Raises:
      ValueError: if no episode starts from one of them.
    """
    missing = set(held_out).difference(start_graphs(buffer))
    if missing:
        raise ValueError(
            f"no episode starts from the graph {min(missing)}; those that are there start from {start_graphs(buffer)}"
        )
    parts = [[e for e in buffer if (e.hashes[0] in held_out) == side] for side in (False, True)]
    training, rest = (EpisodeBuffer(buffer.rule_names, buffer.graphs, part) for part in parts)
    return training, rest
