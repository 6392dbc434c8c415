"""Episodes of the real environment: how they are collected, and the buffer that keeps, splits, saves and loads them.

Costs may be noisy (`noise=resampled`, `environment.costs.resampling`). Then an episode holds two costs of each state:
`cost_ms`, the frozen cost, by which figures and records judge, and `drawn_ms`, the cost that the agent saw. Everything
that is learned is learned from what the agent saw: rewards, and the costs from which the encoder learns what z should
hold (`seen_ms`). The node features are the prices as the environment knows them, frozen too. So is the sum of them that
z holds (`EncoderConfig.holds_time`), since an agent observes these features. If costs are such sums, a drawn reward is
the difference of two sums and noise. A world model then learns these differences, which the nodes show exactly, and how
large the noise is (`worldmodel.dynamics.reward_table.without_noise`). Without such a sum the reward head learns from
the noisy rewards: by its robust loss, their median.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from environment.policies.random import EVERYWHERE_PROBABILITY, RandomAgent
from taso_ext.files import UNREADABLE_ARRAYS, write_arrays
from worldmodel.data.actions import MAX_LOCATIONS, ActionTable, kinds_of, num_kinds, pack, unpack
from worldmodel.data.graph_store import GraphLike, GraphStore
from worldmodel.errors import IncompatibleEpisodes

FORMAT_VERSION = 1
NO_REWRITES = np.zeros((0, 3), np.int32)


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps and T + 1 states.

    Attributes:
      index: number of the episode under its collection's seed.
      actions: int32 [T, 2], the (rule, location) of each step; rule R is NO-OP.
      rewards: float32 [T], percent.
      hashes: [T + 1] graph hashes; the graphs are in the buffer's `graphs`.
      cost_ms: float64 [T + 1], the cost of each state, by which results are judged.
      legal_codes: int32 [sum of legal actions], packed pairs (see `actions.pack`) of all states, one after the other.
      legal_offsets: int64 [T + 2]; state t owns legal_codes[legal_offsets[t]:legal_offsets[t + 1]].
      terminated: whether the last step took NO-OP, or nothing was left to rewrite.
      truncated: whether the step limit ended the episode; this is never learned as a terminal.
      num_locations: how many locations a rule can have. If there are as many as operators in the start graph, they are
        the places of the operators. If there are fewer, one location stands for several operators. It is 0 if locations
        are not places at all.
      everywhere: the location of everywhere-actions; None if the environment has none.
      rewrites: int32 [n, 3], the single rewrites (step, rule, location) of all steps that took everywhere-actions.
      drawn_ms: float64 [T + 1], the cost of each state of which its rewards are made; None if this is `cost_ms`.
    """

    index: int
    actions: np.ndarray
    rewards: np.ndarray
    hashes: tuple[str, ...]
    cost_ms: np.ndarray
    legal_codes: np.ndarray
    legal_offsets: np.ndarray
    terminated: bool
    truncated: bool
    num_locations: int = MAX_LOCATIONS
    everywhere: int | None = None
    rewrites: np.ndarray = field(default_factory=NO_REWRITES.copy)
    drawn_ms: np.ndarray | None = None

    def __post_init__(self) -> None:
        steps, costs = len(self.actions), {len(self.cost_ms) - 1, len(self.seen_ms) - 1}
        lengths = (len(self.rewards), len(self.hashes) - 1, *costs, len(self.legal_offsets) - 2)
        if any(length != steps for length in lengths):
            raise ValueError(
                f"episode {self.index} takes {steps} steps; its rewards, hashes, costs and legal sets are for {lengths}"
            )
        costs_ms = ("cost of state", self.cost_ms), ("drawn cost of state", self.seen_ms)
        for name, numbers in (("reward of step", self.rewards), *costs_ms):
            if not np.isfinite(numbers).all():
                place = int(np.argmin(np.isfinite(numbers)))
                raise ValueError(
                    f"episode {self.index}: the {name} {place} is {numbers[place]}, expected finite numbers"
                )

    @property
    def num_steps(self) -> int:
        return len(self.actions)

    @property
    def seen_ms(self) -> np.ndarray:
        """The cost of each state as the agent saw it: float64 [T + 1]."""
        return self.cost_ms if self.drawn_ms is None else self.drawn_ms

    def legal_actions(self, t: int) -> np.ndarray:
        """Returns the legal (rule, location) pairs of state `t`, without NO-OP: int32 [C, 2]."""
        return unpack(self.codes_at(t))

    def match_counts(self, t: int, num_rules: int) -> np.ndarray:
        """Returns the number of legal rewrites of each rule in state `t`, without everywhere-actions: int [R]."""
        legal = self.legal_actions(t)
        return np.bincount(legal[legal[:, 1] != self.everywhere, 0], minlength=num_rules)

    def kinds(self, num_rules: int) -> np.ndarray:
        """Returns the kinds of the actions that were taken, see `actions.kinds_of`: int32 [T]."""
        return kinds_of(self.actions, num_rules, self.everywhere)

    def rewrites_of_steps(self) -> list[list[tuple[int, int]]]:
        """Returns the single rewrites (rule, location) of each everywhere-action [T]; other steps have empty lists."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.num_steps)]
        for step, rule, location in self.rewrites.tolist():
            found[step].append((rule, location))
        return found

    @property
    def start(self) -> str:
        """The hash of the graph that the episode starts from."""
        return self.hashes[0]

    def codes_at(self, t: int) -> np.ndarray:
        """Returns the packed legal actions of state `t`: int32 [C]."""
        return self.legal_codes[self.legal_offsets[t] : self.legal_offsets[t + 1]]


class EpisodeBuffer(Sequence[Episode]):
    """Episodes in the order of collection; each distinct graph is stored once.

    Attributes:
      rule_names: names of the environment's R rules; rule id R is NO-OP.
      graphs: every graph of every episode, by hash. Buffers made by `split` share it.
    """

    def __init__(self, rule_names: Sequence[str], graphs: GraphStore, episodes: Sequence[Episode] = ()) -> None:
        self.rule_names = tuple(rule_names)
        self.graphs = graphs
        self._episodes = list(episodes)

    @property
    def num_rules(self) -> int:
        return len(self.rule_names)

    @property
    def num_kinds(self) -> int:
        """The number of kinds of actions, see `actions.num_kinds`."""
        found = {episode.everywhere for episode in self} - {None}
        return num_kinds(self.num_rules, next(iter(found), None))

    @property
    def num_transitions(self) -> int:
        return sum(episode.num_steps for episode in self)

    def __len__(self) -> int:
        return len(self._episodes)

    def __getitem__(self, index: Any) -> Any:
        return self._episodes[index]

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._episodes)

    def append(self, episode: Episode) -> None:
        """Adds an episode; its graphs must be in `graphs` already."""
        missing = set(episode.hashes).difference(self.graphs)
        if missing:
            raise ValueError(
                f"episode {episode.index} visits graphs that the buffer does not hold: {sorted(missing)[:3]}"
            )
        self._episodes.append(episode)

    def extend(self, other: EpisodeBuffer) -> None:
        """Adds the episodes and graphs of `other`, for example of a recollection round or of another worker."""
        if other.rule_names != self.rule_names:
            raise ValueError("episodes of different rule sets do not mix; collect again with one rule set")
        self.graphs.update(other.graphs)
        self._episodes.extend(other)

    def states(self) -> frozenset[str]:
        """Returns the hashes of all states that the episodes visit.

        States of held-out episodes are not always new: all episodes of a graph begin in one state, and few rewrites
        lead to few graphs. So accuracy leaves out the states that training has visited.
        """
        return frozenset(graph_hash for episode in self for graph_hash in episode.hashes)

    def share_unseen(self, seen: Collection[str], *, first: int = 0) -> float:
        """Returns the share of visits, from depth `first` on, to states outside `seen`; NaN if there are no visits."""
        visits = [graph_hash not in seen for episode in self for graph_hash in episode.hashes[first:]]
        return sum(visits) / len(visits) if visits else float("nan")

    def used_graphs(self) -> Mapping[str, GraphLike]:
        """Returns the graphs that these episodes visit, in order of first visit."""
        return self.graphs.subset(graph_hash for episode in self for graph_hash in episode.hashes)

    def action_table(self) -> ActionTable:
        """Returns all pairs that are legal in any state of these episodes, which should be of one start graph."""
        codes = [np.unique(episode.legal_codes) for episode in self]
        found = {episode.everywhere for episode in self} - {None}
        if len(found) > 1:
            raise ValueError(f"episodes of one start graph have one location for everywhere-actions, got {found}")
        known = np.concatenate(codes) if codes else np.zeros(0, np.int32)
        return ActionTable.of_codes(known, self.num_rules, next(iter(found), None))

    def by_start(self) -> dict[str, EpisodeBuffer]:
        """Returns the episodes of every start graph, in order of first appearance; they share this buffer's graphs."""
        parts: dict[str, EpisodeBuffer] = {}
        for episode in self:
            part = parts.setdefault(episode.start, EpisodeBuffer(self.rule_names, self.graphs))
            part._episodes.append(episode)
        return parts

    def split(self, held_out: float, seed: int) -> tuple[EpisodeBuffer, EpisodeBuffer]:
        """Splits by episode into (training, held out).

        Args:
          held_out: fraction of the episodes in [0, 1]; the number of episodes is rounded, and at least one if the
            fraction is positive.
          seed: the seed of the draw.
        """
        count = 0 if held_out == 0 else max(1, round(held_out * len(self)))
        drawn = set(np.random.default_rng(seed).permutation(len(self))[:count].tolist())
        parts = ([e for i, e in enumerate(self) if (i in drawn) == side] for side in (False, True))
        training, rest = (EpisodeBuffer(self.rule_names, self.graphs, part) for part in parts)
        return training, rest

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one npz file atomically: at any time either the old file or the whole new one exists."""
        write_arrays(path, self.to_arrays(), compress=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EpisodeBuffer:
        """Reads a file written by `save`.

        Raises:
          IncompatibleEpisodes: if the file has another format, is damaged or does not exist.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls.from_arrays({key: arrays[key] for key in arrays.files}, source=os.fspath(path))
        except IncompatibleEpisodes:
            raise
        except UNREADABLE_ARRAYS as error:
            raise IncompatibleEpisodes(
                f"{os.fspath(path)} cannot be read as episodes ({type(error).__name__}: {error}): it was written by "
                "another version, or is damaged. Collect them anew, in another run directory."
            ) from error

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns everything as flat arrays, for `np.savez`."""
        flat = {
            name: np.concatenate([empty, *(getattr(e, name) for e in self)]) for name, empty in _FLAT_FIELDS.items()
        }
        scalars = {name: np.array([getattr(e, name) for e in self], kind) for name, kind in _SCALAR_FIELDS.items()}
        if any(e.drawn_ms is not None for e in self):
            flat["drawn_ms"] = np.concatenate([e.seen_ms for e in self])
        everywhere = [_NO_LOCATION if e.everywhere is None else e.everywhere for e in self]
        return {
            "format_version": np.array(FORMAT_VERSION),
            "rule_names": np.array(self.rule_names, np.str_),
            "num_steps": np.array([e.num_steps for e in self], np.int64),
            "num_rewrites": np.array([len(e.rewrites) for e in self], np.int64),
            "everywhere": np.array(everywhere, np.int64),
            "hashes": np.array([h for e in self for h in e.hashes], "S64"),
            **flat,
            **scalars,
            **{f"graphs/{key}": value for key, value in self.graphs.to_arrays().items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, source: str = "arrays") -> EpisodeBuffer:
        """Inverts `to_arrays`; `source` names the arrays in errors."""
        version = int(arrays["format_version"]) if "format_version" in arrays else 0
        if version != FORMAT_VERSION:
            raise IncompatibleEpisodes(
                f"{source} has episodes of format {version}, expected {FORMAT_VERSION}. Collect them anew, in another "
                "run directory, or go on with the RLFlow that wrote them."
            )
        stored = {name.removeprefix("graphs/"): array for name, array in arrays.items() if name.startswith("graphs/")}
        rule_names = [str(name) for name in arrays["rule_names"]]
        return cls(rule_names, GraphStore.from_arrays(stored), list(_split_episodes(arrays)))


# The fields of an Episode that are stored end to end, each with an empty array of its kind.
_FLAT_FIELDS: dict[str, np.ndarray] = {
    "actions": np.zeros((0, 2), np.int32),
    "rewards": np.zeros(0, np.float32),
    "cost_ms": np.zeros(0, np.float64),
    "legal_codes": np.zeros(0, np.int32),
    "legal_offsets": np.zeros(0, np.int64),
    "rewrites": NO_REWRITES,
}
_SCALAR_FIELDS: dict[str, Any] = {
    "index": np.int64,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "num_locations": np.int64,
}


_NO_LOCATION = -1
"""Stored instead of the location of everywhere-actions if there are none."""


def _split_episodes(arrays: Mapping[str, np.ndarray]) -> Iterator[Episode]:
    step = state = offset = code = rewrite = 0
    count = len(arrays["num_steps"])
    # Older files hold neither `num_locations` nor anything about everywhere-actions, which their episodes do not have.
    locations = arrays.get("num_locations", np.full(count, MAX_LOCATIONS))
    everywhere = arrays.get("everywhere", np.full(count, _NO_LOCATION)).tolist()
    num_rewrites, rewrites = (
        arrays.get("num_rewrites", np.zeros(count, int)).tolist(),
        arrays.get("rewrites", NO_REWRITES),
    )
    for i, steps in enumerate(arrays["num_steps"].tolist()):
        offsets = arrays["legal_offsets"][offset : offset + steps + 2]
        yield Episode(
            index=int(arrays["index"][i]),
            actions=arrays["actions"][step : step + steps],
            rewards=arrays["rewards"][step : step + steps],
            hashes=tuple(h.decode() for h in arrays["hashes"][state : state + steps + 1]),
            cost_ms=arrays["cost_ms"][state : state + steps + 1],
            legal_codes=arrays["legal_codes"][code : code + offsets[-1]],
            legal_offsets=offsets,
            terminated=bool(arrays["terminated"][i]),
            truncated=bool(arrays["truncated"][i]),
            num_locations=int(locations[i]),
            everywhere=None if everywhere[i] == _NO_LOCATION else everywhere[i],
            rewrites=rewrites[rewrite : rewrite + num_rewrites[i]],
            drawn_ms=arrays["drawn_ms"][state : state + steps + 1] if "drawn_ms" in arrays else None,
        )
        step, state, offset, code = step + steps, state + steps + 1, offset + steps + 2, code + int(offsets[-1])
        rewrite += num_rewrites[i]


class RewriteEnv(Protocol):
    """The interface that collection needs of an environment; `environment.GraphSubstitutionEnv` fulfils it.

    Observations are dicts with "graph" (nodes, edges, edge_links); `info` has "graph_hash" and "cost_ms", if rewards
    are made of another cost also "drawn_cost_ms", and after a step by an everywhere-action "rewrites", its single
    rewrites (rule, location).
    """

    @property
    def rule_names(self) -> Any: ...
    @property
    def num_locations(self) -> int:
        """See `Episode`."""
        ...

    @property
    def everywhere(self) -> bool:
        """Whether the location `num_locations` stands for all places of a rule."""
        ...

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]: ...
    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]: ...
    def legal_actions(self) -> np.ndarray:
        """Returns the legal (rule, location) pairs of the current state without NO-OP: int32 [C, 2]."""
        ...


# (observation, generator) -> [rule, location], or None if the episode is to end
BehaviourPolicy = Callable[[dict[str, Any], np.random.Generator], Any]


def collect(
    env: RewriteEnv,
    policy: BehaviourPolicy | None = None,
    num_episodes: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    on_episode: Callable[[Episode], None] | None = None,
) -> EpisodeBuffer:
    """Plays episodes; episode i depends on (seed, i) only.

    Args:
      env: the real environment.
      policy: called with every observation and the episode's own generator; by default a `RandomAgent`, which takes
        everywhere-actions with `EVERYWHERE_PROBABILITY` if there are any.
      num_episodes: the number of episodes, at least 1.
      seed: the seed of this collection.
      first: the number of the first episode.
      on_episode: called after each episode.
    Raises:
      ValueError: `num_episodes` is less than 1.
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes must be at least 1, got {num_episodes}")
    policy = policy or RandomAgent(seed, everywhere_probability=EVERYWHERE_PROBABILITY if env.everywhere else None)
    buffer: EpisodeBuffer | None = None
    for index in range(first, first + num_episodes):
        recorder = _Recorder(env, index, seed)
        buffer = recorder.empty_buffer() if buffer is None else buffer
        episode = recorder.play(policy, buffer.graphs)
        buffer.append(episode)
        if on_episode is not None:
            on_episode(episode)
    assert buffer is not None  # there is an episode
    return buffer


def replayed(env: RewriteEnv, buffer: EpisodeBuffer) -> EpisodeBuffer:
    """Returns the same episodes as the environment shows and rewards them now, if its prices have changed.

    An episode ends where the environment ends it, and at the latest where it has ended before.
    """
    again: EpisodeBuffer | None = None
    for episode in buffer:
        actions, recorder = iter(episode.actions), _Recorder(env, episode.index, 0)
        again = recorder.empty_buffer() if again is None else again
        again.append(recorder.play(lambda *_, left=actions: next(left, None), again.graphs))
    return buffer if again is None else again


def reset_seed(seed: int, index: int) -> int:
    """Returns the seed with which `collect` resets the environment for an episode.

    Args:
      seed: the seed of the collection.
      index: the number of the episode.
    """
    return int(_seeds(seed, index)[0].generate_state(1)[0])


def _seeds(seed: int, index: int) -> list[np.random.SeedSequence]:
    """Returns the seeds of an episode: of the reset, and of the behaviour policy."""
    return np.random.SeedSequence([seed, index]).spawn(2)


class _Recorder:
    """A player of one episode that records what an `Episode` holds."""

    def __init__(self, env: RewriteEnv, index: int, seed: int) -> None:
        self.env = env
        self.index = index
        self.generator = np.random.default_rng(_seeds(seed, index)[1])
        self.observation, self.info = env.reset(seed=reset_seed(seed, index))

    def empty_buffer(self) -> EpisodeBuffer:
        """Returns an empty buffer for graphs of this environment's widths."""
        graph = self.observation["graph"]
        return EpisodeBuffer(self.env.rule_names, GraphStore(graph.nodes.shape[1], graph.edges.shape[1]))

    def play(self, policy: BehaviourPolicy, graphs: GraphStore) -> Episode:
        actions: list[np.ndarray] = []
        rewards: list[float] = []
        hashes: list[str] = []
        costs: list[float] = []
        drawn: list[float] = []
        legal: list[np.ndarray] = []
        rewrites: list[tuple[int, int, int]] = []
        everywhere = int(self.env.num_locations) if self.env.everywhere else None
        terminated = truncated = False
        while True:
            hashes.append(self.info["graph_hash"])
            costs.append(self.info["cost_ms"])
            drawn.append(self.info.get("drawn_cost_ms", costs[-1]))
            legal.append(np.sort(pack(self.env.legal_actions())))
            graphs.add(hashes[-1], self.observation["graph"])
            if terminated or truncated:
                break
            chosen = policy(self.observation, self.generator)
            if chosen is None:
                truncated = True
                break
            action = np.asarray(chosen, np.int32).reshape(2)
            self.observation, reward, terminated, truncated, self.info = self.env.step(action)
            if everywhere is not None and action[1] == everywhere:
                rewrites += [(len(actions), rule, location) for rule, location in self.info["rewrites"]]
            actions.append(action)
            rewards.append(float(reward))
        return Episode(
            index=self.index,
            actions=np.stack(actions),
            rewards=np.array(rewards, np.float32),
            hashes=tuple(hashes),
            cost_ms=np.array(costs, np.float64),
            legal_codes=np.concatenate(legal),
            legal_offsets=np.concatenate([[0], np.cumsum([len(codes) for codes in legal])]),
            terminated=bool(terminated),
            truncated=bool(truncated),
            num_locations=int(self.env.num_locations),
            everywhere=everywhere,
            rewrites=np.array(rewrites, np.int32).reshape(-1, 3),
            drawn_ms=None if drawn == costs else np.array(drawn, np.float64),
        )


def indexed_by_rank(buffer: EpisodeBuffer) -> EpisodeBuffer:
    """Returns the episodes with actions indexed by rank: location i is the i-th legal one of the rule in that state.

    Everywhere-actions keep their location, which is beyond all ranks.

    The published implementations name rewrites in this way. The meaning of a name then changes from state to state, and
    a mask only shows how many matches every rule has.
    """
    ranked = [_ranked(episode, buffer.num_rules) for episode in buffer]
    return EpisodeBuffer(buffer.rule_names, buffer.graphs, ranked)


def _ranked(episode: Episode, num_rules: int) -> Episode:
    everywhere = episode.everywhere
    legal = np.concatenate([_ranks(episode.codes_at(t), everywhere) for t in range(episode.num_steps + 1)])
    actions = [
        _ranked_action(pair, episode.codes_at(t), everywhere) if pair[0] < num_rules else pair
        for t, pair in enumerate(episode.actions)
    ]
    return replace(episode, actions=np.stack(actions).astype(np.int32), legal_codes=legal, num_locations=0)


def _ranks(codes: np.ndarray, everywhere: int | None) -> np.ndarray:
    """Turns sorted codes of (rule, location) into codes of (rule, rank), which are sorted too."""
    rules, locations = unpack(codes).T
    ranks = np.arange(len(rules)) - np.searchsorted(rules, rules)
    if everywhere is not None:
        ranks = np.where(locations == everywhere, everywhere, ranks)
    return pack(np.stack([rules, ranks], axis=-1))


def _ranked_action(pair: np.ndarray, codes: np.ndarray, everywhere: int | None) -> np.ndarray:
    return unpack(_ranks(codes, everywhere)[codes == pack(pair[np.newaxis])])[0]
