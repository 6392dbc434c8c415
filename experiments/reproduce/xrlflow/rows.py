"""The graphs of X-RLflow's figures, and the rows.

    taso             TASO's search, with its budget
    xrlflow          our X-RLflow, whose head scores every candidate by itself
    xrlflow flat     the published head; it learns as `xrlflow` does
    ppo pointer      model-free PPO that scores rewrites from the embeddings of the nodes that they replace, after one
                     round of message passing, as X-RLflow has one layer of attention; it has as many episodes, and no
                     everywhere-actions either, and otherwise the settings that suit it
    ppo pointer far  the same with five rounds

The others are rows of `rlflow reproduce controllers`, and their runs are the same. Learning has the preset `demo`.

    xrlflow published  the preset `xrlflow`, its rewards by prices
    xrlflow 1000       `xrlflow` with as many episodes as this preset
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.reproduce.search.controllers import PLAYERS as ALL
from experiments.reproduce.search.plays import Player

GRAPHS = (
    *("inception-v3", "squeezenet1.1", "resnext50", "bert-base", "dalle-mini", "transformer-transducer", "vit-base"),
)
"""The graphs of Figure 4."""
QUICK = ("squeezenet1.1",)
SEEDS = "0,1,2"
AS_MANY = ("ppo_real.updates=30", "ppo_real.batch=16")
"""As many episodes as `xrlflow` has in the preset `demo`."""
POINTER = ("world=real", "policy.head=pointer", "environment.everywhere=false")
"""The settings of PPO's pointer, which rewrites one site at a time."""
PLAYERS: Mapping[str, Player] = {
    "taso": ALL["taso"],
    "xrlflow": ALL["xrlflow"],
    "xrlflow flat": Player("xrlflow", ("xrlflow.head=flat",)),
    "ppo pointer": Player("ppo", (*POINTER, "graph_encoder.rounds=1", *AS_MANY)),
    "ppo pointer far": Player("ppo", (*POINTER, *AS_MANY)),
    "ppo real": ALL["ppo real"],
    "ppo dream": ALL["ppo dream"],
    "mcts": ALL["mcts"],
}
"""The rows by name."""
THOUSAND: Mapping[str, Player] = {
    "taso": ALL["taso"],
    "xrlflow published": Player("xrlflow", preset="xrlflow"),
    "xrlflow 1000": Player("xrlflow", ("xrlflow.updates=100", "xrlflow.batch=10")),
}
"""The rows that learn from as many episodes as the paper's, 1000 in 100 updates, beside TASO's search."""


def players(rows: Sequence[str]) -> dict[str, Player]:
    """Returns the players of some rows, by name."""
    return {row: PLAYERS[row] for row in rows}
