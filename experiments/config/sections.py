"""The sections of a run's settings that are of this package; those of world models and controllers are in theirs."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Literal

from environment.policies.random import EVERYWHERE_PROBABILITY
from taso_ext.onnx_io.session import Level


def require_between(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raises ValueError unless low ≤ value ≤ high; `config.tree.replaced` adds where the value came from."""
    if not low <= value <= high:
        expected = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise ValueError(f"'{name}' must be {expected}, but {value!r} came.")


@dataclasses.dataclass(frozen=True)
class EnvironmentConfig:
    """The Markov decision process: episodes of rewrites, and their rewards.

    Attributes:
      max_steps: largest number of steps of an episode; none: the largest of 30, one for every six operators of the
        graph, and half as many again as steepest descent takes.
      max_locations: largest number of locations of a rule; none: as many as the graph needs.
      everywhere: whether a rule can also be carried out everywhere it applies, as one step of an episode; the presets
        auto, demo and best have it.
      reward: name of the reward function, with parameters if it has any (`combined:alpha=0.7,beta=0.3`,
        `percent:every=10,bonus=0.1`), or a function of your own (`module:function`, which takes an
        `environment.rewards.Transition`).
    """

    max_steps: int | None = None
    max_locations: int | None = None
    everywhere: bool = False
    reward: str = "log_ratio"

    def __post_init__(self) -> None:
        if self.max_steps is not None:
            require_between("max_steps", self.max_steps, 1)
        if self.max_locations is not None:
            require_between("max_locations", self.max_locations, 1)


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    """The random episodes that the world model learns from.

    Attributes:
      episodes: number of episodes.
      steps: least number of rewrites in all episodes together, which then decides how many episodes there are instead
        of `episodes`. None: `episodes` decides.
      actions: how the world model names rewrites: by their site, or by their rank among the matches of their rule, as
        the published implementations do (`worldmodel.data.episodes`). Policies need "site".
      noop_probability: probability of ending the episode at each step; it is small, so that episodes are deep.
      everywhere_probability: probability that the drawn rule is carried out everywhere, if it has two matches; none: as
        likely as each of its sites. It has no effect without `environment.everywhere`.
      directed: share of the steps in which random play tries what pays, by the prices that the engine predicts, or what
        was seldom legal so far (`environment.policies.directed`).
      held_out: fraction of the episodes that the world model is measured on instead of trained on.
      processes: number of processes that play; the episodes do not depend on it.
    """

    episodes: int = 200
    steps: int | None = None
    actions: Literal["site", "rank"] = "site"
    noop_probability: float = 0.01
    everywhere_probability: float | None = EVERYWHERE_PROBABILITY
    directed: float = 0.0
    held_out: float = 0.1
    processes: int = 1

    def __post_init__(self) -> None:
        require_between("episodes", self.episodes, 2)  # one to train on, one held out
        if self.steps is not None:
            require_between("steps", self.steps, 1)
        require_between("noop_probability", self.noop_probability, 0, 1)
        if self.everywhere_probability is not None:
            require_between("everywhere_probability", self.everywhere_probability, 0, 1)
        require_between("directed", self.directed, 0, 1)
        require_between("held_out", self.held_out, 0, 0.9)
        require_between("processes", self.processes, 1, 256)


@dataclasses.dataclass(frozen=True)
class RecollectConfig:
    """Rounds in which the world model also learns from real episodes of the policy, and a new policy is trained.

    Attributes:
      rounds: number of rounds; 0: the world model learns from random play only.
      more: number of rounds that may be added, one after another, as long as the policy's last dream is not to be
        trusted: its plans are over 3 points from what they really save, or it offers less than 98 % of the rewrites
        that really pay along them.
      episodes: number of real episodes of the policy that each round adds to all earlier episodes.
      dreamed: fraction of these episodes in which the policy carries out a plan that it has dreamed, without the
        rewrites that turn out to be illegal; in the others it sees the real states.
      searched: fraction of these episodes that likewise carry out a plan which a search has found in the dream, by beam
        search or by cross-entropy planning: both find mistakes of a dream that the policy has not found.
      omitted: share of the steps in which such an episode takes a rewrite that really pays and that the world model
        considers illegal there, if there is one; only as long as a round's dream offers less than 98 % of what pays.
      emphasis: what `world_model.mdn_rnn_training.mask_emphasis` is raised by, as long as it does.
      uncertain: share of the steps in which such an episode takes a rewrite on whose reward the members of an ensemble
        disagree (`world_model.mdn_rnn.ensemble`); the more they do, the likelier it is.
      steps: gradient steps of the MDN-RNN in each round; it starts from the weights of the round before.
      learning_rate: learning rate at the start of each round.
    """

    rounds: int = 0
    more: int = 0
    episodes: int = 100
    dreamed: float = 0.5
    searched: float = 0.0
    omitted: float = 0.0
    emphasis: float = 0.0
    uncertain: float = 0.0
    steps: int = 600
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require_between("rounds", self.rounds, 0, 99)
        require_between("more", self.more, 0, 99)
        require_between("episodes", self.episodes, 1)
        require_between("dreamed", self.dreamed, 0, 1)
        require_between("searched", self.searched, 0, 1)
        if self.dreamed + self.searched > 1 + 1e-9:
            raise ValueError(
                f"'dreamed' and 'searched' are shares of the same episodes, but {self.dreamed:g} and {self.searched:g} "
                "came, which are more than all; lower one of them (recollect.searched=0 carries out no searched plans)"
            )
        require_between("omitted", self.omitted, 0, 1)
        require_between("emphasis", self.emphasis, 0)
        require_between("uncertain", self.uncertain, 0, 1)
        require_between("steps", self.steps, 1)
        require_between("learning_rate", self.learning_rate, 0)

    @property
    def most(self) -> int:
        """The largest number of rounds; without any, none is added."""
        return self.rounds + self.more if self.rounds else 0


@dataclasses.dataclass(frozen=True)
class MixedConfig:
    """The world `mixed`: short dreams from real states that the policy itself reaches.

    Attributes:
      branch: the largest number of dreamed steps.
      refresh: number of updates between real episodes of the policy.
      episodes: number of real episodes each time.
    """

    branch: int = 10
    refresh: int = 20
    episodes: int = 8

    def __post_init__(self) -> None:
        require_between("branch", self.branch, 1)
        require_between("refresh", self.refresh, 1)
        require_between("episodes", self.episodes, 1)


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """The episodes in the real environment after training.

    Attributes:
      sampled_episodes: number of sampled episodes, part (c) of the report, beside the one deterministic episode.
      sampling_temperature: temperature of the policy in the sampled episodes; 1 is the policy as it was trained.
      climb_seconds: limit of time of a climb by the clock after the episodes, if the clock chooses and the controller
        learns. It begins with the cheapest graphs that the run has found and looks around the fastest one. 0: these
        graphs alone race.
    """

    sampled_episodes: int = 20
    sampling_temperature: float = 1.0
    climb_seconds: float = 0.0

    def __post_init__(self) -> None:
        require_between("sampled_episodes", self.sampled_episodes, 0)
        require_between("climb_seconds", self.climb_seconds, 0)
        require_between("sampling_temperature", self.sampling_temperature, 0.2)  # logits stay in the range of float32


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """The settings of the searches.

    Attributes:
      alpha: taso: a graph is searched further if it costs less than this factor times the best (1.05: as published).
      passes: taso: whether whole passes of rules are tried first. One search then goes on from their result and another
        one starts from the model. The three share the limit of time; each has the other limits below to itself.
      width: beam: number of graphs in a level.
      walk: restarts: number of random rewrites before each descent.
      budget: number of graphs to expand, of passes to try, or of episodes to play (best-of-n).
      seconds: limit of time; 0 means none. A run that this limit stops is not repeatable.
      rounds: largest number of searches if kernels are priced by measuring. After each search, the kernels that make
        its gain unsure are timed again, and with the new prices the next search may find another graph. The searches
        share the limit of time.
      retiming_seconds: limit of time for timing kernels again, in each round; 0: they are not timed again. What learns
        in the real environment also times the kernels of its best graph at each checkpoint, and whatever learns those
        of its best episodes after play.
      memory_mb: limit of the memory of the search, in MB.
      threads: number of threads of the search; the result does not depend on it.
    """

    alpha: float = 1.05
    passes: bool = False
    width: int = 16
    walk: int = 10
    budget: int = 1000
    seconds: float = 0.0
    rounds: int = 3
    retiming_seconds: float = 30.0
    memory_mb: int = 512
    threads: int = 1

    def __post_init__(self) -> None:
        require_between("alpha", self.alpha, 1)
        require_between("width", self.width, 1, 10**6)
        require_between("walk", self.walk, 1, 10**6)
        require_between("budget", self.budget, 1, 10**12)
        require_between("seconds", self.seconds, 0)
        require_between("rounds", self.rounds, 1, 100)
        require_between("retiming_seconds", self.retiming_seconds, 0)
        require_between("memory_mb", self.memory_mb, 16, 2**20)
        require_between("threads", self.threads, 1, 256)


@dataclasses.dataclass(frozen=True)
class VerifyConfig:
    """How outputs are compared with those of the original model, in ONNX Runtime.

    Attributes:
      num_inputs: number of random input sets beside the edge cases.
    """

    num_inputs: int = 4

    def __post_init__(self) -> None:
        require_between("num_inputs", self.num_inputs, 2, 1000)  # one input set could not show that the outputs react


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True)
class MeasureConfig:
    """The end-to-end measurement.

    Attributes:
      resolution: the measurement ends once half the width of the ratio's interval is below this fraction of the ratio
        (0.01: one percent); none: only when the pairs or the time are used up.
      pairs: largest number of interleaved measurements of both models.
      seconds: limit of time; 0 means none.
      sessions: sessions of each model over which the pairs are spread, because sessions of identical bytes differ a
        little.
      control: whether the model is also measured against itself, which shows what the ratio is worth.
      threads: threads of ONNX Runtime, or `all`: as many as this process may use cores; 1 has the least noise.
      all_cores: whether the result is also measured, for the summary, with as many threads as there are cores, or with
        one if `threads` is already as many.
      level: level of ONNX Runtime's own graph optimisation, for both models.
      predict: whether `--costs measured` predicts the prices of kernels until something depends on them; if not, each
        kernel is timed when it is first met.
    """

    resolution: float | None = 0.01
    pairs: int = 24
    seconds: float = 0.0
    sessions: int = 3
    control: bool = True
    threads: int | Literal["all"] = 1
    all_cores: bool = False
    level: Level = "all"
    predict: bool = True

    def __post_init__(self) -> None:
        if self.resolution is not None:
            require_between("resolution", self.resolution, 1e-4, 1)
        require_between("pairs", self.pairs, 2)
        require_between("seconds", self.seconds, 0)
        require_between("sessions", self.sessions, 1)
        require_between("threads", self.num_threads, 1)

    @property
    def num_threads(self) -> int:
        """The number of threads that `threads` stands for here."""
        return num_cores() if self.threads == "all" else self.threads
