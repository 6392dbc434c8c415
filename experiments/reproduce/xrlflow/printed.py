"""Figures that the paper prints. Nothing here is measured by this project.

[X] He, Parizotto, Yoneki 2023, "X-RLflow: Graph Reinforcement Learning for Neural Network Subgraphs Transformation"
"""

from __future__ import annotations

from collections.abc import Mapping

DISCREPANCY: Mapping[str, float] = {
    "dalle-mini": 5.2,
    "inception-v3": 10.1,
    "bert-base": 7.8,
    "squeezenet1.1": 7.1,
    "resnext50": 24.0,
    "transformer-transducer": 9.9,
}
"""Table 1: difference between TASO's cost model and the end-to-end time [%]."""

CANDIDATES: Mapping[str, int] = {
    "inception-v3": 50,
    "squeezenet1.1": 20,
    "resnext50": 13,
    "bert-base": 26,
    "dalle-mini": 20,
    "transformer-transducer": 25,
    "vit-base": 32,
}
"""Table 3: candidates in a step, rounded, by TASO's rules."""

SETTINGS: Mapping[str, object] = {
    "xrlflow.learning_rate": 5e-4,
    "xrlflow.value_weight": 0.5,
    "xrlflow.rule_entropy": (0.01, 0.01),
    "xrlflow.discount": 0.99,
    "xrlflow.trace_decay": 0.95,
    "xrlflow.clip": 0.2,
    "xrlflow.target_divergence": 0.05,
    "xrlflow.gradient_norm": 0.5,
    "xrlflow.epochs": 4,
    "xrlflow.minibatch": 16,
    "xrlflow.batch": 10,
    "xrlflow.updates": 100,
    "xrlflow.layers": 5,
    "xrlflow.width": 64,
    "xrlflow.embedding": 32,
    "xrlflow.torso": (256, 64),
    "xrlflow.slots": 500,
    "xrlflow.head": "flat",
    "xrlflow.goal": "last",
    "xrlflow.noop": True,
    "xrlflow.pool": "sum",
    "xrlflow.log_extents": False,
    "xrlflow.reward_scaling": False,
    "environment.max_steps": 100,
    "environment.reward": "percent:every=5,bonus=0.1",
}
"""Table 4, section 3 and the published code, by the names of our settings: 1000 episodes are 100 updates of 10."""
