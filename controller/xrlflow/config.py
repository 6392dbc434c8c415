"""Settings of X-RLflow, as published. This module imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Literal

from controller.ppo.config import PpoConfig, require_sizes


@dataclasses.dataclass(frozen=True)
class XrlflowConfig(PpoConfig):
    """The settings of `xrlflow`: those of PPO, published but for the scaled rewards, and those of the network.

    Source: He et al. 2023, "X-RLflow: Graph Reinforcement Learning for Neural Network Subgraphs Transformation",
    section 4 and appendix A: 1000 episodes in updates of 10, minibatches of 16 steps, 4 epochs.

    Attributes:
      head: `pointer` scores every candidate by itself, so that its weights fit every graph and any number of
        candidates; `flat`, as published, reads the embeddings of `slots` candidates one after the other, so that a
        candidate means something else at another place.
      slots: number of candidates that `flat` reads, the present graph included; those beyond it cannot be chosen.
      log_extents: whether edges show the logarithms of the extents of their tensors; the published ones show extents
        over 4096, beside which those of small networks vanish.
      log_cost: whether nodes also show the logarithm of what their operator costs by itself.
      noop: whether a policy may stay with the present graph, NO-OP, while there is a candidate. Where the best graph of
        an episode counts it has no use for it.
      pool: what the update of a graph reads of its nodes: their `sum`, as published, or their `mean`, in which what a
        rewrite changes is divided by the number of nodes.
      width: size of the embedding of a node.
      layers: number of graph-attention layers.
      embedding: size of the embedding of a graph.
      torso: hidden sizes of the networks behind the embeddings.
    """

    updates: int = 100
    batch: int = 10
    minibatch: int | None = 16
    discount: float = 0.99
    rule_entropy: tuple[float, float] = (0.01, 0.01)
    learning_rate: float = 5e-4
    last_learning_rate: float = 5e-4
    head: Literal["pointer", "flat"] = "pointer"
    slots: int = 500
    log_extents: bool = True
    log_cost: bool = False
    noop: bool = True
    pool: Literal["mean", "sum"] = "sum"
    width: int = 64
    layers: int = 5
    embedding: int = 32
    torso: tuple[int, ...] = (256, 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes("torso", *self.torso)
        for name in ("slots", "width", "layers", "embedding"):
            require_sizes(name, getattr(self, name))
        if self.slots < 2:
            raise ValueError(f"slots is {self.slots}; it must be at least 2, one of which is the present graph's.")

    @property
    def reach(self) -> int:
        """The number of edges over which a difference between two graphs changes embeddings of nodes."""
        return self.layers

    @property
    def most_candidates(self) -> int:
        """The number of candidates that the head can choose from, the present graph not counted."""
        return self.slots - 1 if self.head == "flat" else 2**31 - 1
