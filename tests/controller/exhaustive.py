"""The optimum of small graphs, by looking at every graph that rewrites lead to."""

from __future__ import annotations

from environment import GraphSubstitutionEnv


def best_improvement(env: GraphSubstitutionEnv, most_states: int = 10_000) -> float:
    """Returns the largest improvement, as a fraction of the start cost, within the `max_steps` of an environment.

    Raises:
      ValueError: there are more states than `most_states`.
    """
    env.reset()
    start = env.state.copy()
    costs_ms, level = {start.hash: start.cost.ms}, [start]
    for _ in range(env.max_steps):
        reached = []
        for state in level:
            for rule, location in state.legal_actions():
                following = state.copy()
                following.step(int(rule), int(location))
                if following.hash not in costs_ms:
                    costs_ms[following.hash] = following.cost.ms
                    reached.append(following)
        level = reached
        if len(costs_ms) > most_states:
            raise ValueError(f"more than {most_states} states; take a smaller graph or fewer steps")
    return 1.0 - min(costs_ms.values()) / start.cost.ms
