"""The Markov decision process of graph substitution, and what surrounds it: zoo, costs, rewards, verification, timing.

    from environment import GraphSubstitutionEnv
    env = GraphSubstitutionEnv("squeezenet1.1")

`Padded(env)` gives observations of a fixed size, `Candidates(env)` a list of rewrites to pick from.

Importing this registers `rlflow/GraphSubstitution-v0` with Gymnasium. Nothing here imports TensorFlow.
"""

import gymnasium

from environment.substitution.candidates import Candidates
from environment.substitution.env import GraphSubstitutionEnv
from environment.substitution.padded import Padded

__all__ = ["Candidates", "GraphSubstitutionEnv", "Padded"]

gymnasium.register("rlflow/GraphSubstitution-v0", entry_point="environment.substitution.env:GraphSubstitutionEnv")
