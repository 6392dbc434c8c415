"""`xrlflow` learns, keeps the contract of controllers, and does not have the faults of the published code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from controller import make
from controller.evaluation import play_episode, replay_record
from controller.interface import StoredControllerError
from controller.policies.categorical import Categorical
from controller.ppo.learner import generalised_advantages
from controller.worlds.candidate_view import CandidateObservation, CandidateView
from controller.worlds.real import RealWorld
from controller.xrlflow.config import XrlflowConfig
from controller.xrlflow.controller import XrlflowController
from controller.xrlflow.policy import CandidatePolicy
from environment import GraphSubstitutionEnv
from taso_ext.errors import ModelWarning
from tests.controller.exhaustive import best_improvement
from tests.controller.joined import joined
from tests.controller.ppo.test_known_optima import CLOSE, TWENTY, fires, found_from, products
from worldmodel.data.trajectory import Trajectory

SMALL = XrlflowConfig(
    updates=2,
    batch=4,
    epochs=1,
    minibatch=8,
    width=8,
    layers=2,
    embedding=8,
    torso=(16,),
    slots=40,
    reward_scaling=True,
)
LEARNING = dataclasses.replace(
    SMALL,
    updates=50,
    batch=8,
    epochs=4,
    minibatch=None,
    minibatches=1,
    discount=0.97,
    learning_rate=1e-2,
    last_learning_rate=2e-4,
    goal="best",
    reward_share=1.0,
    noop=False,
    rule_entropy=(0.02, 0.002),
    width=16,
    embedding=16,
    torso=(32,),
)


def env_of(name: str = "squeezenet1.1-tiny", **more: object) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(name, costs="roofline:rtx2070", max_steps=4, strict=True, **more)


def policy_of(head: str) -> tuple[GraphSubstitutionEnv, CandidatePolicy]:
    env = env_of()
    return env, CandidatePolicy(env, dataclasses.replace(SMALL, head=head), seed=0)  # type: ignore[arg-type]


def permuted(seen: CandidateObservation, order: np.ndarray) -> CandidateObservation:
    """Returns the observation of one state with its candidates (from number 1 on) in another order."""
    return seen._replace(
        kind=seen.kind.with_flat_values(seen.kind.flat_values.numpy()[order]),
        candidates=seen.candidates.with_flat_values(seen.candidates.flat_values.numpy()[order]),
    )


@pytest.mark.parametrize(("head", "same"), [("pointer", True), ("flat", False)])
def test_only_the_pointer_does_not_depend_on_the_order_of_candidates(head: str, same: bool) -> None:
    env, policy = policy_of(head)
    seen, _ = policy.view(env).reset(seed=0)
    number = int(seen.candidates.row_lengths()[0])
    order = np.append(0, 1 + np.random.default_rng(0).permutation(number - 1))
    for weight in policy.trainable_variables:  # the last layer's are so small that nearly all probabilities are equal
        weight.assign(weight + 0.1 * tf.random.stateless_normal(weight.shape, [0, 1]))
    distribution, value = policy.distribution_and_value(seen)
    other, other_value = policy.distribution_and_value(permuted(seen, order))
    before, after = distribution.all_log_probs().numpy()[0, order], other.all_log_probs().numpy()[0, :number]
    assert np.allclose(before, after, atol=1e-5) == same
    assert np.allclose(value, other_value, atol=1e-5) == same


@pytest.mark.parametrize("head", ["pointer", "flat"])
def test_no_row_of_a_batch_differs_from_alone(head: str) -> None:
    env, policy = policy_of(head)
    view = policy.view(env)
    first, _ = view.reset(seed=0)
    second, *_ = view.step(2)
    batch = joined([first, second, first, second, first])
    distribution, value = policy.distribution_and_value(batch)
    for row, seen in enumerate([first, second, first, second, first]):
        alone, alone_value = policy.distribution_and_value(seen)
        width = alone.all_log_probs().shape[1]
        np.testing.assert_allclose(distribution.all_log_probs()[row, :width], alone.all_log_probs()[0], atol=1e-5)
        np.testing.assert_allclose(value[row], alone_value[0], atol=1e-5)


@pytest.mark.parametrize("head", ["pointer", "flat"])
def test_noop_can_be_left_out_where_there_is_a_candidate(head: str) -> None:
    env = env_of()
    policy = CandidatePolicy(env, dataclasses.replace(SMALL, head=head, noop=False), seed=0)  # type: ignore[arg-type]
    seen, _ = policy.view(env).reset(seed=0)
    alone = CandidateView(env, reach=SMALL.reach, most=0).reset(seed=0)[0]  # nothing but the present graph
    probabilities = np.exp(policy.distribution_and_value(joined([seen, alone]))[0].all_log_probs())
    number = int(seen.candidates.row_lengths()[0])
    assert probabilities[0, 0] == 0.0 and (probabilities[0, 1:number] > 0).all()
    assert probabilities[1, 0] == pytest.approx(1.0)


@pytest.mark.filterwarnings("ignore:.*cannot be chosen:taso_ext.errors.ModelWarning")
def test_equal_graphs_with_their_candidates_in_other_orders_are_two_states() -> None:
    """The location of a rewrite depends on what was done before."""
    env = GraphSubstitutionEnv("nasrnn-tiny", costs="roofline:rtx2070", max_steps=4)
    policy = CandidatePolicy(env, SMALL, seed=0)
    rows, hashes = [], set()
    left, right = (env.rule_names.index(f"merge-matmuls-sharing-{side}") for side in ("lhs", "rhs"))
    for order in ([(left, 27), (right, 1)], [(right, 1), (left, 27)]):
        view = policy.view(env)
        seen, _ = view.reset(seed=0)
        for rule, location in order:
            wanted = rule * env.num_places + location
            seen, *_ = view.step(seen.candidates[0].numpy().tolist().index(wanted))
        rows.append(seen)
        hashes.add(env.state.hash)
    assert len(hashes) == 1 and (rows[0].candidates[0].numpy() != rows[1].candidates[0].numpy()).any()
    for weight in policy.trainable_variables:
        weight.assign(weight + 0.1 * tf.random.stateless_normal(weight.shape, [0, 1]))
    together = policy.distribution_and_value(joined(rows))[0].all_log_probs()
    for row, seen in enumerate(rows):
        alone = policy.distribution_and_value(seen)[0].all_log_probs()[0]
        np.testing.assert_allclose(together[row], alone, atol=1e-5)


def test_a_masked_choice_is_never_drawn_and_the_most_likely_one_is_the_mode() -> None:
    logits = tf.constant([[0.0, 2.0, 9.0], [1.0, 0.5, 0.0]])
    distribution = Categorical(logits, tf.constant([[True, True, False], [True, True, True]]))
    drawn = np.stack([distribution.sample(tf.constant([0, seed])) for seed in range(400)])
    assert drawn[:, 0].max() == 1
    shares = np.bincount(drawn[:, 1], minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, np.exp(distribution.all_log_probs()[1]), atol=0.07)
    assert distribution.mode().numpy().tolist() == [1, 0]
    probabilities = np.exp(distribution.all_log_probs())
    expected = -(probabilities * np.log(np.maximum(probabilities, 1e-30))).sum(axis=1)
    np.testing.assert_allclose(distribution.entropies()[0], expected, rtol=1e-5)
    assert not distribution.entropies()[1].numpy().any()
    cold = distribution.at_temperature(0.05)
    assert float(cold.log_prob(tf.constant([1, 0]))[1]) > -1e-3


def rollout_of(controller: XrlflowController) -> Trajectory:
    return RealWorld(env_of).rollout(controller.policy, batch=6, horizon=3, seed=1)


@pytest.mark.parametrize("head", ["pointer", pytest.param("flat", marks=pytest.mark.full)])
def test_it_trains_plays_and_is_restored(head: str, tmp_path: Path) -> None:
    env, config = env_of(), dataclasses.replace(SMALL, head=head)  # type: ignore[arg-type]
    controller, metrics = make("xrlflow", env=env, config=config, seed=0), []
    controller.train(RealWorld(env_of), on_progress=lambda done, total, values: metrics.append(values))
    assert len(metrics) == 2 and max(each["first_ratio_error"] for each in metrics) < 1e-4
    record = play_episode(env, controller, seed=0, deterministic=True)
    replay_record(env, record)
    controller.save(tmp_path / "controller")
    again = make("xrlflow", env=env, config=config, seed=1)
    again.load(tmp_path / "controller")
    assert play_episode(env, again, seed=0, deterministic=True) == record


def test_the_weights_of_the_pointer_fit_other_graphs(tmp_path: Path) -> None:
    XrlflowController.build(env=env_of(), config=SMALL, seed=0).save(tmp_path / "pointer")
    other = XrlflowController.build(env=env_of("bert-base-tiny"), config=SMALL, seed=1)
    other.load(tmp_path / "pointer")
    wider = XrlflowController.build(env=env_of(), config=dataclasses.replace(SMALL, width=16), seed=0)
    with pytest.raises(StoredControllerError):
        wider.load(tmp_path / "pointer")


def test_dropped_candidates_are_told() -> None:
    few, metrics = dataclasses.replace(SMALL, head="flat", slots=3, updates=1), []
    with pytest.warns(ModelWarning, match=r"3 of the 5 rewrites of the start graph .* xrlflow\.slots makes more"):
        controller = XrlflowController.build(env=env_of(), config=few, seed=0)
    controller.train(RealWorld(env_of), on_progress=lambda done, total, values: metrics.append(values))
    assert metrics[0]["dropped"] > 0


def test_rewrites_without_a_location_are_told() -> None:
    def narrow() -> GraphSubstitutionEnv:
        return env_of("bert-base-tiny", max_locations=2)

    once, metrics = dataclasses.replace(SMALL, updates=1), []
    with pytest.warns(ModelWarning, match=r"environment\.max_locations makes more places"):
        controller = XrlflowController.build(env=narrow(), config=once, seed=0)
    controller.train(RealWorld(narrow), on_progress=lambda done, total, values: metrics.append(values))
    assert metrics[0]["dropped"] > 0


def test_the_last_step_of_a_truncated_row_has_the_value_of_what_follows() -> None:
    """The published code has none there: the advantage of the last step of a buffer is wrong."""
    played = rollout_of(XrlflowController.build(env=env_of(), config=SMALL, seed=0))
    lengths, ended = played.alive.numpy().sum(axis=0), played.terminal.numpy().any(axis=0)
    assert not ended.all()
    behind = played.value.numpy()[lengths, np.arange(len(lengths))]
    np.testing.assert_array_equal(behind == 0.0, ended)
    row = int(np.flatnonzero(~ended)[0])
    advantages = generalised_advantages(
        played.reward, played.value, played.terminal, played.alive, discount=0.9, trace_decay=0.95
    )
    last = lengths[row] - 1
    expected = played.reward[last, row] + 0.9 * played.value[last + 1, row] - played.value[last, row]
    assert float(advantages[last, row]) == pytest.approx(float(expected), rel=1e-5)


def test_nothing_flows_from_behind_the_end_of_an_episode() -> None:
    """The published code adds up over the border between two episodes of its buffer."""
    played = rollout_of(XrlflowController.build(env=env_of(), config=SMALL, seed=0))
    alive, lengths = played.alive.numpy(), played.alive.numpy().sum(axis=0)
    ended = np.flatnonzero(played.terminal.numpy().any(axis=0) & (lengths < len(alive)))
    assert len(ended), "an episode is shorter than the buffer"

    def advantages(reward: tf.Tensor, value: np.ndarray) -> np.ndarray:
        fields = value, played.terminal, played.alive
        found: np.ndarray = generalised_advantages(reward, *fields, discount=0.9, trace_decay=0.95).numpy()
        return found

    value = played.value.numpy()
    behind = np.arange(len(value))[:, np.newaxis] >= lengths  # the next episode's, in a buffer of one row
    other = np.where(behind & played.terminal.numpy().any(axis=0), 50.0, value).astype(np.float32)
    before, after = advantages(played.reward, value), advantages(played.reward, other)
    np.testing.assert_array_equal(before[:, ended], after[:, ended])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"slots": 1}, "slots is 1; it must be at least 2"),
        ({"slots": 1 << 40}, "slots is 1099511627776; it must be at least 1 and at most 65,536"),
        ({"width": 0}, "width is 0; it must be at least 1"),
        ({"layers": 0}, "layers is 0; it must be at least 1"),
        ({"minibatch": 0}, "minibatch is 0; it counts something and must be at least 1"),
        ({"torso": (8, -3)}, "torso is -3; it must be at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must be a number of at least 0"),
        ({"value_weight": -1.0}, "value_weight is -1.0; it must be a number of at least 0"),
        ({"rule_entropy": (0.01, -1.0)}, "rule_entropy is -1.0; it must be a number of at least 0"),
        ({"gradient_norm": -1.0}, "gradient_norm is -1.0; it must be above 0"),
    ],
)
def test_a_bad_setting_is_one_clear_error(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        XrlflowConfig(**change)


WITH_NOOP = {
    "best graph": dataclasses.replace(LEARNING, noop=True),
    "last graph": dataclasses.replace(LEARNING, noop=True, goal="last", reward_share=0.0),
    "published head": dataclasses.replace(LEARNING, noop=True, goal="last", reward_share=0.0, head="flat"),
}
"""Where NO-OP may end an episode, which costs nothing, while each of the first three rewrites of `products` costs."""


FIRST, *OTHERS = WITH_NOOP


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)])
def test_it_learns_an_optimum(name: str) -> None:
    env, optimum = products(), best_improvement(products())
    controller = XrlflowController.build(env=env, config=WITH_NOOP[name], seed=0)

    def improvements() -> list[float]:
        return [play_episode(env, controller, seed=seed).improvement for seed in range(10)]

    assert np.mean(improvements()) < optimum / 2, "most episodes of an untrained policy stop before the last rewrite"
    controller.train(RealWorld(products), seed=0)
    assert np.mean(improvements()) >= optimum - CLOSE


@pytest.mark.full
@pytest.mark.parametrize(
    ("make_env", "config"), [(fires, LEARNING), *((products, each) for each in WITH_NOOP.values())]
)
def test_it_finds_the_optimum(
    make_env: Callable[[], GraphSubstitutionEnv], config: XrlflowConfig, tmp_path: Path
) -> None:
    env = make_env()

    def controller(seed: int) -> XrlflowController:
        return XrlflowController.build(env=env, config=config, seed=seed)

    assert np.mean(found_from(TWENTY, controller, RealWorld(make_env), env, tmp_path)) >= 0.95
