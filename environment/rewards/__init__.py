"""Rewards: named functions of a transition, with parameters, and functions of your own.

For example:

    reward = rewards.find("combined:alpha=0.7,beta=0.3")
    env = environment.make("squeezenet1.1", reward=reward)
"""

from environment.rewards.interface import Reward, RewardError, RewardFunction, Transition, reward_noise
from environment.rewards.registry import find, is_imported, names, register

__all__ = [
    "Reward",
    "RewardError",
    "RewardFunction",
    "Transition",
    "find",
    "is_imported",
    "names",
    "register",
    "reward_noise",
]
