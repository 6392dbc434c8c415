"""Rewards: named functions of a transition, with parameters, and those of a user's own."""

from environment.rewards.interface import Reward, RewardError, RewardFunction, Transition, reward_noise
from environment.rewards.registry import find, names, register

__all__ = [
    "Reward",
    "RewardError",
    "RewardFunction",
    "Transition",
    "find",
    "names",
    "register",
    "reward_noise",
]
