"""What a judged world model is trained on, and how much of it is judged."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from experiments.config.run import RunConfig
from taso_ext import RuleSet

PROGRAM = 11
"""Goes up with every change of how models are trained, so that units of before are not taken for new ones."""
POLICY_PROGRAM = 6
"""The same of policies, and of what is recollected with them."""
FIGURES = 7
"""The same of what models are judged by."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is collected to judge by.

    Attributes:
      episodes: held-out episodes of each kind of play.
      max_steps: of these.
      first, stride: depths at which windows start.
      steps: numbers of steps after which open-loop predictions are judged.
      at_least: windows that are enough for the longest of these.
      policy_episodes: of the policy, in reality and in the dream.
      resamples: of intervals.
      budget: graphs of the search for the best known result.
    """

    episodes: int = 300
    max_steps: int = 40
    first: int = 5
    stride: int = 10
    steps: tuple[int, ...] = (1, 5, 10, 20)
    at_least: int = 100
    policy_episodes: int = 30
    resamples: int = 200
    budget: int = 2000

    def furthest(self, most: int) -> int:
        """The largest of `steps` that is at most `most`, or the least that there is."""
        return max((step for step in self.steps if step <= most), default=min(self.steps))


WITHOUT_EFFECT = {"recollect": ("rounds",), "collect": ("processes",)}
"""Settings that say how much is done and by whom, and change nothing of what is: rounds can be added to."""
Actions = Literal["site", "rank"]


@dataclasses.dataclass(frozen=True)
class Setting:
    """One way to train a world model of one graph.

    Attributes:
      graph: name in the zoo.
      config: how episodes are collected, the model and the policy trained; the rest of it is not used.
      real_steps: how many are collected at least; `config.collect.episodes` of them by default.
      actions: how rewrites are named, see `worldmodel.data.by_rank`. Policies need "site".
    """

    graph: str
    config: RunConfig
    real_steps: int | None = None
    actions: Actions = "site"

    def record(self) -> dict[str, Any]:
        """All that training depends on, but for the seed, as JSON."""
        sections = self._sections("dream", "policy", "ppo", "recollect")
        return self.model_record() | {"policy_program": POLICY_PROGRAM} | sections

    def model_record(self) -> dict[str, Any]:
        """All that the world model of random play depends on, but for the seed, as JSON."""
        return {
            "graph": self.graph,
            "program": PROGRAM,
            "costs": self.config.costs,
            "real_steps": self.real_steps,
            "actions": self.actions,
            "rules": RuleSet.default().fingerprint,
            **self._sections("environment", "collect", "world_model"),
        }

    def _sections(self, *names: str) -> dict[str, Any]:
        sections = {name: dataclasses.asdict(getattr(self.config, name)) for name in names}
        for name, keys in WITHOUT_EFFECT.items():
            for key in keys if name in sections else ():
                del sections[name][key]
        return sections
