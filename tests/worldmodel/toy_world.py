"""A rewriting problem small enough to know everything about, behind the interface of the real environment.

A state is a string over {0, 1, 2}; cell i is site i. Rules: "raise" turns a 0 into 1, "fuse" turns 1 1 into 2 and
removes the right-hand cell, "swap" turns 1 0 into 0 1 for nothing. Every cell that is left is a node of the graph,
in a chain. Episodes end when nothing applies. Costs, legal actions and the graph are functions of the string alone.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from environment import rewards
from worldmodel.config import (
    DreamConfig,
    EncoderConfig,
    EncoderTrainingConfig,
    MdnRnnConfig,
    MdnRnnTrainingConfig,
    WorldModelConfig,
)
from worldmodel.data.actions import ActionTable
from worldmodel.data.trajectory import LatentObservation
from worldmodel.signature import FeatureSpec, Signature
from worldmodel.world_model import WorldModel

RULE_NAMES = ("raise", "fuse", "swap")
FEATURES = FeatureSpec(("operator", "size", "first"), ("dtype", "length"), num_operators=4, num_dtypes=2)
SIGNATURE = Signature(RULE_NAMES, FEATURES)
SMALL = WorldModelConfig(
    EncoderConfig(latent=8, hidden=16, edge_hidden=4, rounds=2),
    EncoderTrainingConfig(steps=60, batch=8, calibration=64, consistency_hidden=32),
    MdnRnnConfig(
        **dict.fromkeys(("hidden", "head_hidden", "latent_hidden"), 48),
        mixtures=3,
        neighbours=16,
        neighbour_hidden=32,
        potential=False,  # dreams pay what the reward head says
    ),
    MdnRnnTrainingConfig(steps=250, batch=16),
)
QUICK = dataclasses.replace(
    SMALL,
    encoder=dataclasses.replace(SMALL.encoder, rounds=1),
    encoder_training=dataclasses.replace(SMALL.encoder_training, steps=3, checkpoint_every=2),
    mdn_rnn_training=dataclasses.replace(SMALL.mdn_rnn_training, steps=3, checkpoint_every=2, batch=6),
)
"""Hardly trained: for what does not depend on what was learned."""
LENIENT = DreamConfig(legal_from=0.5)
"""For models that are trained for a short time: a stricter dream lacks most rewrites."""
CELL_COST_MS = {0: 1.0, 1: 0.8, 2: 0.9}
GONE = -1


class ToyGraph(NamedTuple):
    nodes: np.ndarray
    edges: np.ndarray
    edge_links: np.ndarray


class ToyEnv:
    """Strings of `length` cells under the three rules; `max_steps` truncates."""

    rule_names = RULE_NAMES
    reward = rewards.find("log_ratio")

    def __init__(self, length: int = 6, max_steps: int = 20, start: tuple[int, ...] | None = None) -> None:
        self.start = np.array(start) if start is not None else np.arange(length) % 2
        self.num_locations, self.everywhere = len(self.start), False
        self.max_steps = max_steps
        self.cells = self.start.copy()
        self.steps, self.limit = 0, max_steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.cells, self.steps = self.start.copy(), 0
        self.limit = (options or {}).get("max_steps") or self.max_steps
        return self.observe()

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        rule, site = (int(part) for part in action)
        before = self.cost_ms()
        if rule < len(RULE_NAMES):
            if (rule, site) not in {tuple(pair) for pair in self.legal_actions().tolist()}:
                raise ValueError(f"illegal action {rule, site}")
            self.rewrite(rule, site)
        self.steps += 1
        terminated = rule == len(RULE_NAMES) or not len(self.legal_actions())
        truncated = not terminated and self.steps >= self.limit
        observation, info = self.observe()
        return observation, 100.0 * float(np.log(before / self.cost_ms())), terminated, truncated, info

    def rewrite(self, rule: int, site: int) -> None:
        right = self.right_of(site)
        if rule == 0:
            self.cells[site] = 1
        elif rule == 1:
            self.cells[site], self.cells[right] = 2, GONE
        else:
            self.cells[site], self.cells[right] = 0, 1

    def right_of(self, site: int) -> int | None:
        left = np.flatnonzero(self.cells[site + 1 :] != GONE)
        return int(site + 1 + left[0]) if left.size else None

    def legal_actions(self) -> np.ndarray:
        pairs = [(0, site) for site in np.flatnonzero(self.cells == 0)]
        for site in np.flatnonzero(self.cells == 1):
            right = self.right_of(int(site))
            if right is not None and self.cells[right] in (0, 1):
                pairs.append((1 if self.cells[right] == 1 else 2, site))
        return np.array(pairs, np.int32).reshape(-1, 2)

    @property
    def num_rules(self) -> int:
        return len(RULE_NAMES)

    @property
    def state(self) -> Any:
        return SimpleNamespace(cost=SimpleNamespace(ms=self.cost_ms()))

    def candidates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cost after each legal rewrite."""
        legal, cells, costs = self.legal_actions(), self.cells.copy(), []
        for rule, site in legal.tolist():
            self.rewrite(rule, site)
            costs.append(self.cost_ms())
            self.cells = cells.copy()
        return legal[:, 0], legal[:, 1], np.array(costs, float)

    def cost_ms(self) -> float:
        return 1.0 + sum(CELL_COST_MS[int(cell)] for cell in self.cells if cell != GONE)

    def graph(self) -> ToyGraph:
        left = np.flatnonzero(self.cells != GONE)
        values = self.cells[left]
        nodes = np.stack([values + 1, values / 2.0, np.arange(len(left)) == 0], axis=1).astype(np.float32)
        links = np.stack([np.arange(len(left) - 1), np.arange(1, len(left))], axis=1)
        edges = np.stack([np.zeros(len(links)), np.diff(left) / 2.0], axis=1).astype(np.float32)
        return ToyGraph(nodes, edges, links)

    def observe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        info = {"graph_hash": "s" + "".join(str(cell % 10) for cell in self.cells), "cost_ms": self.cost_ms()}
        return {"graph": self.graph(), "legal": self.legal_actions()}, info


def uniform_policy(noop_probability: float = 0.0) -> Any:
    """Random legal actions, NO-OP with the given probability."""

    def policy(observation: dict[str, Any], generator: np.random.Generator) -> np.ndarray:
        if generator.random() < noop_probability:
            return np.array([len(RULE_NAMES), 0])
        return generator.choice(observation["legal"])

    return policy


class UniformPolicy:
    """Uniform over the legal actions, NO-OP included with the given logit; the value is the number of legal ones."""

    def __init__(self, noop_logit: float = 0.0) -> None:
        self.noop_logit = noop_logit

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        mask = observation.action_mask
        bonus = tf.pad(tf.zeros_like(mask[:, :-1], tf.float32), [[0, 0], [0, 1]], constant_values=self.noop_logit)
        logits = tf.nn.log_softmax(tf.where(mask, bonus, -1e9))
        action = tf.random.stateless_categorical(logits, 1, seed, dtype=tf.int32)[:, 0]
        log_prob = tf.gather(logits, action, batch_dims=1)
        return action, log_prob, tf.reduce_sum(tf.cast(mask, tf.float32), axis=-1)


def knowing_half(world_model: WorldModel) -> WorldModel:
    """The same model with every other action of its only start graph unknown to it."""
    graph = world_model.start_graph()
    size = graph.table.num_actions
    kept = np.append(np.arange(0, size, 2), size)
    neighbours, rewards = (type(each)(*(rows[kept] for rows in each)) for each in (graph.neighbours, graph.rewards))
    half = dataclasses.replace(
        graph,
        table=ActionTable(graph.table.codes[::2], len(RULE_NAMES)),
        nodes=graph.nodes[kept],
        neighbours=neighbours._replace(slots=np.full_like(neighbours.slots, len(kept) - 1)),
        rewards=rewards,
    )
    return world_model.with_start_graphs([half])
