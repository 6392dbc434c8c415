"""Evaluation of world models on held-out episodes of random and of greedy play, beside the trivial predictors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from environment import GraphSubstitutionEnv, zoo
from environment.policies.greedy import GreedyAgent
from environment.policies.random import RandomAgent
from experiments.executors.units import Record
from experiments.pipeline.learning.collect import named
from experiments.pipeline.learning.rounds import Learning
from experiments.pipeline.learning.world_model import ENCODER, MDN_RNN
from experiments.runs.directory import finite
from experiments.runs.progress import Bar
from experiments.runs.run import of_round
from experiments.runs.signals import raise_if_received
from experiments.studies.setting import Effort, Target
from worldmodel.data.episodes import BehaviourPolicy, Episode, EpisodeBuffer, collect

if TYPE_CHECKING:  # TensorFlow is imported when a model is evaluated
    from worldmodel.accuracy.baselines import Trivial
    from worldmodel.accuracy.figures import Figure
    from worldmodel.accuracy.probes import Probes
    from worldmodel.world_model import WorldModel

RANDOM, GREEDY = "random", "greedy"


def evaluate_model(learning: Learning, number: int, effort: Effort) -> Record:
    """Evaluates the world model of a round; the model of round 0 knows random play only.

    Returns:
      "figures": a list of {play, figure, step, value, low, high, windows, trivial}; None stands for a number that does
      not exist. "spent": the time and memory of training, see `RunDirectory.spent`; for round 0 they include the
      collection of random play. "best_percent": the improvement of the best graph that any episode met. "held_out": by
      play, see `held_out_facts`. "intervals": see `fitted_intervals`.
    """
    model = learning.model(number).fresh()
    training, validation = learning.episodes(number)
    env = learning.loaded.environment(effort.max_steps)
    played = {play: held_out_play(learning, env, play, effort) for play in (RANDOM, GREEDY)}
    spent = (
        learning.run.directory.spent(of_round(MDN_RNN, number))
        if number
        else learning.first.directory.spent("collect", ENCODER, MDN_RNN)
    )
    with learning.run.bar(f"evaluate round {number}", len(played)) as bar:
        figures: list[Record] = []
        intervals = fitted_intervals(model, training, validation, effort)
        predictors = Predictors.of(model, training)
        for done, (play, held_out) in enumerate(played.items()):
            found = [
                *held_out_figures(model, predictors, held_out, intervals["factor"], effort),
                *omission_figures(learning, model, predictors, env, held_out, effort),
            ]
            figures += [{"play": play, **as_record(figure)} for figure in found]
            bar.update(done + 1)
    return {
        "graph": learning.loaded.name,
        "seed": learning.run.config.seed,
        "round": number,
        "real_steps": training.num_transitions + validation.num_transitions,
        "states": len(training.states()),
        "encoder_states": model.statistics.encoder_states,
        "spent": spent,
        "actions": model.num_actions,
        "best_percent": max(best_percent(buffer) for buffer in (training, *played.values())),
        "held_out": {play: held_out_facts(model, training, held_out, effort) for play, held_out in played.items()},
        "intervals": intervals,
        "figures": figures,
    }


def evaluate_transfer(learning: Learning, target: Target, effort: Effort) -> Record:
    """Evaluates the world model of round 0 on another graph than its own.

    Random play of the other graph shows which rewrites it has. The trivial predictors and the frozen heads, which the
    model is compared with, are made from that play; the model itself learns nothing from it.

    Returns:
      See `evaluate_model`; "graph" is the other graph.
    """
    model, config = learning.model(0).fresh(), learning.run.config
    intervals = fitted_intervals(model, *learning.episodes(0), effort)
    env = GraphSubstitutionEnv(
        zoo.build(target.name, **target.changes),
        costs=config.costs,
        reward=config.environment.reward,
        max_steps=effort.max_steps,
        max_locations=config.environment.max_locations,
        everywhere=config.environment.everywhere,
    )
    with learning.run.bar(f"random play of {target.label}", effort.episodes) as bar:
        agent = RandomAgent(0, config.collect.noop_probability, config.everywhere_probability)
        seed = learning.run.seed("meet")
        met = named(config, collect(env, agent, effort.episodes, seed, on_episode=reporting(bar)))
    from worldmodel.from_episodes import adapt

    adapted = adapt(model, met)
    predictors = Predictors.of(adapted, met)
    played = {play: held_out_play(learning, env, play, effort) for play in (RANDOM, GREEDY)}
    return {
        "graph": target.label,
        "trained_on": learning.loaded.name,
        "seed": config.seed,
        "round": 0,
        "actions": adapted.num_actions,
        "held_out": {play: held_out_facts(adapted, met, held_out, effort) for play, held_out in played.items()},
        "intervals": intervals,
        "figures": [
            {"play": play, **as_record(figure)}
            for play, held_out in played.items()
            for figure in held_out_figures(adapted, predictors, held_out, intervals["factor"], effort)
        ],
    }


def held_out_facts(model: WorldModel, training: EpisodeBuffer, held_out: EpisodeBuffer, effort: Effort) -> Record:
    """Measures how much of one kind of play the training data did not have.

    Returns:
      "unseen": share of visits, from the depth that windows start at, to states that training did not meet. "unknown":
      share of legal rewrites that the model's table does not hold. "cut": share of episodes that take such a rewrite,
      and are evaluated up to it.
    """
    data = model.episode_data(held_out)
    unseen = held_out.share_unseen(training.states(), first=effort.first)
    facts = {"unseen": unseen, "unknown": data.unknown_share, "cut": data.cut_share}
    return {key: finite(share) for key, share in facts.items()}


def best_percent(buffer: EpisodeBuffer) -> float:
    """Returns the improvement of the best graph that any episode met, in percent of the start graph's cost."""
    return max(100.0 * (1.0 - float(episode.cost_ms.min() / episode.cost_ms[0])) for episode in buffer)


def as_record(figure: Figure) -> Record:
    """Returns a figure as JSON values."""
    estimate = figure.model
    numbers = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {
        "figure": figure.name,
        "step": figure.step,
        "windows": figure.windows,
        **{key: finite(number) for key, number in numbers.items()},
        "trivial": {key: finite(number) for key, number in figure.trivial.items()},
    }


def held_out_play(learning: Learning, env: GraphSubstitutionEnv, play: str, effort: Effort) -> EpisodeBuffer:
    """Returns episodes of one kind of play that nothing is trained on."""
    config = learning.run.config
    random = RandomAgent(0, config.collect.noop_probability, config.everywhere_probability)
    policy: BehaviourPolicy = random if play == RANDOM else GreedyAgent(env)
    with learning.run.bar(f"{play} play", effort.episodes) as bar:
        seed = learning.run.seed(f"held-out {play}")
        return named(config, collect(env, policy, effort.episodes, seed, on_episode=reporting(bar)))


def reporting(bar: Bar) -> Callable[[Episode], None]:
    """Returns a callback that shows every episode on the bar; an interruption takes effect in it."""

    def report(episode: Episode) -> None:
        raise_if_received()
        bar.update(episode.index + 1)

    return report


def fitted_intervals(model: WorldModel, training: EpisodeBuffer, validation: EpisodeBuffer, effort: Effort) -> Record:
    """Fits the factor with which intervals of one step have their nominal coverage, on validation episodes.

    Returns:
      "factor": the factor of all σ; None if the model predicts no mixtures. "windows": how many windows it is fitted
      on. "as_judged": whether these windows begin like the evaluated ones, at the same depths (errors are smaller
      further from the start) and in states that training did not meet. If validation has fewer than `effort.at_least`
      such windows, all of its windows are used.
    """
    from worldmodel.accuracy.latents import fit_intervals
    from worldmodel.accuracy.open_loop import cut_windows, find_windows

    if model.mdn_rnn.config.dynamics != "mdn":
        return {"factor": None, "windows": 0, "as_judged": True}
    first, last = effort.first, effort.max_steps - 1
    found = find_windows(model, validation, steps=1, first=first, last=last, stride=1, seen=training.states())
    as_judged = found is not None and len(found.episode) >= effort.at_least
    windows = found if found is not None and as_judged else cut_windows(model, validation, steps=1, stride=1)
    return {"factor": fit_intervals(model, windows), "windows": len(windows.episode), "as_judged": as_judged}


class Predictors(NamedTuple):
    """What a model's figures are compared with, made from its training data.

    Attributes:
      trivial: the trivial predictors.
      probes: the frozen heads.
      seen: hashes of the states that training met.
    """

    trivial: Trivial
    probes: Probes
    seen: frozenset[str]

    @classmethod
    def of(cls, model: WorldModel, training: EpisodeBuffer) -> Predictors:
        from worldmodel.accuracy.baselines import Trivial
        from worldmodel.accuracy.probes import Probes

        return cls(Trivial.of(training, model), Probes.of(model, training), training.states())


def held_out_figures(
    model: WorldModel, predictors: Predictors, held_out: EpisodeBuffer, factor: float | None, effort: Effort
) -> Iterator[Figure]:
    """Yields all figures of one kind of play that exist.

    No figures exist if training has met every state, for more steps than enough windows have, for intervals without a
    `factor`, and for temperatures that change nothing.

    Args:
      predictors: made from the data that the model was trained on.
      factor: the factor of the intervals, fitted on other episodes.
    """
    from worldmodel.accuracy.latents import latent_figures, read_figures, uncertainty_figures
    from worldmodel.accuracy.open_loop import longest_open_loop, temperature_figures
    from worldmodel.accuracy.rewards_and_masks import mask_figures, reward_figures, terminal_figures, total_figures

    trivial, probes, seen = predictors
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


def omission_figures(
    learning: Learning,
    model: WorldModel,
    predictors: Predictors,
    env: GraphSubstitutionEnv,
    held_out: EpisodeBuffer,
    effort: Effort,
) -> Iterator[Figure]:
    """Yields the figures of the rewrites that really pay, at the probability from which the dream calls them legal.

    No figures exist if actions are named by rank, since such episodes cannot be replayed, or if there are no windows.

    Args:
      predictors: see `held_out_figures`.
      env: the environment of the held-out episodes.
    """
    from worldmodel.accuracy.omissions import paying_along, paying_figures
    from worldmodel.accuracy.open_loop import longest_windows, play

    config = learning.run.config
    windows = longest_windows(
        model, held_out, effort.steps, first=effort.first, stride=effort.stride, seen=predictors.seen,
        at_least=effort.at_least,
    )  # fmt: skip
    if config.collect.actions != "site" or windows is None:
        return
    played = play(model, windows, legal_from=config.dream.legal_from)
    steps = _reached(effort.steps, windows.steps)
    for step, paying in paying_along(env, held_out, windows, steps).items():
        yield from paying_figures(played, predictors.trivial, paying, model.table, step, resamples=effort.resamples)


def _reached(steps: Sequence[int], most: int) -> list[int]:
    return [step for step in steps if step <= most]
