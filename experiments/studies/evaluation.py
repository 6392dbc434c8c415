"""What a world model predicts of held-out episodes of random and of greedy play, beside the trivial predictors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from environment import GraphSubstitutionEnv
from environment.policies.greedy import GreedyAgent
from environment.policies.random import RandomAgent
from experiments.reproduce.units import Record
from experiments.runs.progress import ProgressDisplay
from experiments.runs.seeds import seed_for
from experiments.studies.rounds import Rounds, noting
from experiments.studies.setting import Effort
from worldmodel.data.episodes import BehaviourPolicy, EpisodeBuffer, collect
from worldmodel.data.splits import share_unseen, states_of

if TYPE_CHECKING:  # TensorFlow is imported when a model is judged
    from worldmodel.accuracy.baselines import Trivial
    from worldmodel.accuracy.figures import Figure
    from worldmodel.accuracy.probes import Probes
    from worldmodel.world_model import WorldModel

RANDOM, GREEDY = "random", "greedy"


def judge(rounds: Rounds, number: int, effort: Effort, progress: ProgressDisplay) -> Record:
    """Figures of a round's world model; that of round 0 knows random play only.

    Returns:
      "figures": a list of {play, figure, step, value, low, high, windows, trivial}; None stands for what does not
      exist. "spent": see `Rounds.spent`. "best_percent": of the best graph met on the way. "held_out": by play, see
      `held_out_facts`. "intervals": see `fitted_intervals`.
    """
    model = rounds.model(number)
    training, validation = rounds.episodes(number)
    env = rounds.environment(effort.max_steps)
    played = {play: held_out_play(rounds, env, play, effort, progress) for play in (RANDOM, GREEDY)}
    with progress.stage(f"{rounds.setting.graph} seed {rounds.seed}: judge {number}", len(played)) as bar:
        figures: list[Record] = []
        intervals = fitted_intervals(model, training, validation, effort)
        yardsticks = Yardsticks.of(model, training)
        for done, (play, held_out) in enumerate(played.items()):
            found = held_out_figures(model, yardsticks, held_out, intervals["factor"], effort)
            figures += [{"play": play, **as_record(figure)} for figure in found]
            bar.update(done + 1)
    return {
        "graph": rounds.setting.graph,
        "seed": rounds.seed,
        "round": number,
        "real_steps": training.num_transitions + validation.num_transitions,
        "states": len(states_of(training)),
        "encoder_states": model.statistics.encoder_states,
        "spent": rounds.spent(number),
        "actions": model.num_actions,
        "best_percent": max(best_percent(buffer) for buffer in (training, *played.values())),
        "held_out": {play: held_out_facts(model, training, held_out, effort) for play, held_out in played.items()},
        "intervals": intervals,
        "figures": figures,
    }


def held_out_facts(model: WorldModel, training: EpisodeBuffer, held_out: EpisodeBuffer, effort: Effort) -> Record:
    """What one kind of play has that training had not.

    Returns:
      "unseen": share of visits, from the depth that windows start at, to states that training did not meet. "unknown":
      share of legal rewrites that the model's table does not hold; "cut": share of episodes that take such a rewrite,
      and are judged up to there.
    """
    data = model.sequences(held_out)
    unseen = share_unseen(held_out, states_of(training), first=effort.first)
    facts = {"unseen": unseen, "unknown": data.unknown_share, "cut": data.cut_share}
    return {key: _finite(share) for key, share in facts.items()}


def best_percent(buffer: EpisodeBuffer) -> float:
    """Improvement of the best graph that any episode met, in percent of the start graph's cost."""
    return max(100.0 * (1.0 - float(episode.cost_ms.min() / episode.cost_ms[0])) for episode in buffer)


def as_record(figure: Figure) -> Record:
    """A figure as JSON."""
    estimate = figure.model
    numbers = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {
        "figure": figure.name,
        "step": figure.step,
        "windows": figure.windows,
        **{key: _finite(number) for key, number in numbers.items()},
        "trivial": {key: _finite(number) for key, number in figure.trivial.items()},
    }


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def held_out_play(
    rounds: Rounds, env: GraphSubstitutionEnv, play: str, effort: Effort, progress: ProgressDisplay
) -> EpisodeBuffer:
    """Episodes of one kind of play that nothing is trained on."""
    random = RandomAgent(noop_probability=rounds.setting.config.collect.noop_probability)
    policy: BehaviourPolicy = random if play == RANDOM else GreedyAgent(env)
    with progress.stage(f"{rounds.setting.graph} seed {rounds.seed}: {play} play", effort.episodes) as bar:
        seed = seed_for(rounds.seed, f"held-out {play}")
        return rounds.named(collect(env, policy, effort.episodes, seed, on_episode=noting(bar)))


def fitted_intervals(model: WorldModel, training: EpisodeBuffer, validation: EpisodeBuffer, effort: Effort) -> Record:
    """What makes intervals of one step hold what they say, on validation episodes.

    Returns:
      "factor": of all σ; None where the model predicts no mixtures. "windows": that it is fitted on. "as_judged":
      whether they begin where those that are judged do, at the same depths (errors are smaller the further from the
      start) and in states that training did not meet. Where validation has fewer than `effort.at_least` of these, all
      of its windows are taken.
    """
    from worldmodel.accuracy.latents import fit_intervals
    from worldmodel.accuracy.open_loop import cut_windows, find_windows

    if model.mdn_rnn.config.dynamics != "mdn":
        return {"factor": None, "windows": 0, "as_judged": True}
    first, last = effort.first, effort.max_steps - 1
    found = find_windows(model, validation, steps=1, first=first, last=last, stride=1, seen=states_of(training))
    as_judged = found is not None and len(found.episode) >= effort.at_least
    windows = found if found is not None and as_judged else cut_windows(model, validation, steps=1, stride=1)
    return {"factor": fit_intervals(model, windows), "windows": len(windows.episode), "as_judged": as_judged}


class Yardsticks(NamedTuple):
    """What figures of a model are told by, made of its training data.

    Attributes:
      trivial: the trivial predictors.
      probes: the frozen heads.
      seen: hashes of the states that training met.
    """

    trivial: Trivial
    probes: Probes
    seen: frozenset[str]

    @classmethod
    def of(cls, model: WorldModel, training: EpisodeBuffer) -> Yardsticks:
        from worldmodel.accuracy.baselines import Trivial
        from worldmodel.accuracy.probes import Probes

        return cls(Trivial.of(training, model), Probes.of(model, training), states_of(training))


def held_out_figures(
    model: WorldModel, yardsticks: Yardsticks, held_out: EpisodeBuffer, factor: float | None, effort: Effort
) -> Iterator[Figure]:
    """All figures of one kind of play that there are: none where training has met every state, none after more steps
    than enough windows have, none of intervals without a `factor`, none of temperatures that change nothing.

    Args:
      yardsticks: of the data that the model was trained on.
      factor: of the intervals, fitted on other episodes.
    """
    from worldmodel.accuracy.latents import latent_figures, read_figures, uncertainty_figures
    from worldmodel.accuracy.open_loop import longest_open_loop
    from worldmodel.accuracy.rewards_and_masks import mask_figures, reward_figures, terminal_figures, total_figures
    from worldmodel.accuracy.temperature import temperature_figures

    trivial, probes, seen = yardsticks
    rules, resamples = model.table.rules[:-1], effort.resamples
    ones = longest_open_loop(model, held_out, (1,), first=effort.first, stride=1, seen=seen)
    if ones is None:
        return
    yield from reward_figures(ones, trivial, resamples=resamples)
    yield from terminal_figures(ones, 1, resamples=resamples)
    if factor is not None:
        yield from uncertainty_figures(model, ones.real, factor, resamples=resamples)
    played = longest_open_loop(
        model, held_out, effort.steps, first=effort.first, stride=effort.stride, seen=seen, at_least=effort.at_least
    )
    for step in _reached(effort.steps, 0 if played is None else played.real.steps):
        assert played is not None  # some steps were reached
        yield from latent_figures(played, trivial, step, resamples=resamples)
        yield from mask_figures(played, trivial, rules, step, resamples=resamples)
        yield from read_figures(played, trivial, probes, held_out, step, resamples=resamples)
        if step > 1:
            yield from total_figures(played, trivial, step, resamples=resamples)
    if played is not None and played.real.steps > 1 and model.mdn_rnn.config.dynamics != "deterministic":
        yield from temperature_figures(model, played.real, resamples=resamples)


def _reached(steps: Sequence[int], most: int) -> list[int]:
    return [step for step in steps if step <= most]
