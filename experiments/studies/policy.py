"""The exploit test of one round: how far a policy that was trained in the dream exploits its mistakes.

The policy is sampled, as in training. The controller's memory of the actions that it has taken is not part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.executors.units import Record
from experiments.pipeline.learning.rounds import Learning
from experiments.studies.setting import Effort
from worldmodel.accuracy.baselines import PER_RULE, PER_SITE, ZERO

if TYPE_CHECKING:  # TensorFlow is imported when something is played
    from worldmodel.accuracy.baselines import Trivial
    from worldmodel.accuracy.exploit import ComparedPlan
    from worldmodel.data.actions import ActionTable

FOR_REAL, IN_THE_DREAM = "for real", "in the dream"
OF_PLANS = (ZERO, PER_RULE, PER_SITE)
"""The trivial predictors that predict the return of a whole plan."""


def exploit(learning: Learning, number: int, effort: Effort) -> Record:
    """Plays the policy of a round for real and in the dream; it is sampled, as in training.

    Returns:
      By way of playing the fields of `worldmodel.accuracy.exploit.Comparison`, under "each" the values that some of
      them are means of, and under "trivial_gap" the gaps of trivial predictors, see `trivial_gaps`.
    """
    controller, model = learning.controller(number), learning.model(number).fresh()
    from worldmodel.accuracy.baselines import Trivial
    from worldmodel.accuracy.exploit import compare, dreamed_then_replayed, played_for_real
    from worldmodel.dream.players import player_of

    config, env, player = learning.run.config, learning.loaded.env, player_of(controller)
    trivial = Trivial.of(learning.episodes(number)[0], model)
    with learning.run.bar(f"play the policy of round {number}", 2) as bar:
        seed = learning.run.seed(f"exploit {number}")
        real = played_for_real(
            model,
            env,
            player,
            episodes=effort.policy_episodes,
            seed=seed,
            config=config.dream,
        )
        bar.update(1)
        dreamed = dreamed_then_replayed(
            model,
            learning.root_dream(model),
            env,
            player,
            episodes=effort.policy_episodes,
            horizon=env.max_steps,
            seed=seed,
        )
        bar.update(2)
    return {
        "graph": learning.loaded.name,
        "seed": config.seed,
        "round": number,
        "real_steps": sum(part.num_transitions for part in learning.episodes(number)),
        **{
            way: {
                **dataclasses.asdict(compare(played)),
                "each": _each(played),
                "trivial_gap": trivial_gaps(played, trivial, model.table),
            }
            for way, played in ((FOR_REAL, real), (IN_THE_DREAM, dreamed))
        },
    }


def _each(played: Sequence[ComparedPlan]) -> dict[str, list[float]]:
    """Returns the values that the means of a comparison are the means of."""
    return {
        "dreamed_percent": [each.dreamed_percent[-1] for each in played],
        "real_percent": [each.real_percent[-1] for each in played],
        "gap": [abs(each.gap) for each in played],
        "prefix_gap": [abs(each.gap_of_prefix) for each in played],
        "skipping_gap": [abs(each.dreamed_percent[-1] - each.skipping_percent) for each in played],
    }


def trivial_gaps(played: Sequence[ComparedPlan], trivial: Trivial, table: ActionTable) -> dict[str, float]:
    """Returns the mean |predicted - real| in points, like `Comparison.gap`, of predictors with tables of mean rewards.

    They see no masks, so they cannot tell that a plan comes back to an earlier state, and add up all rewards.
    """
    from worldmodel.accuracy.exploit import points

    rewards = {ZERO: np.zeros(table.num_actions + 1), PER_RULE: trivial.per_rule, PER_SITE: trivial.per_site}
    real = np.array([each.real_percent[-1] for each in played])
    plans = [table.encode(np.array(each.actions, int).reshape(-1, 2)) for each in played]
    predicted = {name: np.array([points(float(each[plan].sum())) for plan in plans]) for name, each in rewards.items()}
    return {name: float(np.mean(np.abs(percent - real))) for name, percent in predicted.items()}
