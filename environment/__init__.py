"""The Markov decision process of graph substitution, and what surrounds it: zoo, costs, rewards, verification, timing.

    from environment import GraphSubstitutionEnv
    env = GraphSubstitutionEnv("squeezenet1.1")

Importing this registers `rlflow/GraphSubstitution-v0` with Gymnasium. Nothing here imports TensorFlow.
"""

import gymnasium

from environment.env import GraphSubstitutionEnv

__all__ = ["GraphSubstitutionEnv"]

gymnasium.register("rlflow/GraphSubstitution-v0", entry_point="environment.env:GraphSubstitutionEnv")
