"""What the program asks of a controller of another package reaches that controller, and its faults are named."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.evaluation import play_episode
from controller.foreign import BrokenControllerError, Foreign
from controller.interface import Controller
from environment import GraphSubstitutionEnv
from environment.rewards import RewardError


class Theirs(Controller):
    name, worlds = "theirs", ("dream",)
    max_steps, total, num_updates, limit_s, trains, saves = 9, 8, 7, 6.5, True, True

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        return observation.wanted

    @property
    def policy(self) -> Any:
        return self.choose  # a bound method: an equal object each time, and never the same

    def choose(self, observation: Any, seed: Any) -> Any:
        return observation.chosen


@pytest.fixture
def foreign() -> Foreign:
    return Foreign(Theirs(), BrokenControllerError)


def of_a_dream(wanted: Any) -> Any:
    """An observation in which the actions 0 and 2 of 3 are legal."""
    mask = np.array([[True, False, True]])
    return SimpleNamespace(action_mask=SimpleNamespace(numpy=lambda: mask), wanted=wanted)


def test_all_figures_of_the_interface_are_its_own(foreign: Foreign) -> None:
    figures = {name for name, part in vars(Controller).items() if isinstance(part, property)} - {"policy"}
    assert {"num_updates", "limit_s"} <= figures
    assert all(getattr(foreign, name) == getattr(Theirs, name) for name in figures)


@pytest.mark.parametrize("wanted", [2, np.int64(2), np.array(2), 2.0])
def test_a_legal_action_of_a_dream_is_its_number(wanted: Any, foreign: Foreign) -> None:
    foreign.begin_episode(object(), seed=0)
    assert foreign.act(of_a_dream(wanted), deterministic=True) == 2


@pytest.mark.parametrize("wanted", [1, 3, -1, 10**6, None, "NO-OP", np.array([0, 2]), float("inf")])
def test_any_other_action_of_a_dream_is_its_fault(wanted: Any, foreign: Foreign) -> None:
    foreign.begin_episode(object(), seed=0)
    with pytest.raises(BrokenControllerError, match="takes the action"):
        foreign.act(of_a_dream(wanted), deterministic=True)


def test_its_policy_is_the_same_from_call_to_call_so_that_rollouts_are_traced_once(foreign: Foreign) -> None:
    assert foreign.policy == foreign.policy and hash(foreign.policy) == hash(foreign.policy)
    assert foreign.policy != Foreign(Theirs(), BrokenControllerError).policy


def test_what_a_policy_chooses_is_passed_on(foreign: Foreign) -> None:
    chosen = np.array([2, 0], np.int32), np.zeros(2, np.float32), np.ones(2, np.float32)
    for part, expected in zip(foreign.policy(of_two_rows(chosen), seed=0), chosen, strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize(
    "chosen",
    [
        None,
        (np.zeros(2, np.int32), np.zeros(2, np.float32)),
        (np.zeros(2, np.int64), np.zeros(2, np.float32), np.zeros(2, np.float32)),
        (np.zeros(2, np.int32), np.zeros(3, np.float32), np.zeros(2, np.float32)),
        (np.zeros(2, np.int32), "likely", np.zeros(2, np.float32)),
    ],
)
def test_what_no_policy_returns_is_its_fault(chosen: Any, foreign: Foreign) -> None:
    with pytest.raises(BrokenControllerError, match=r"returns .* in policy\(\), but \(action int32 \[B\], .* expected"):
        foreign.policy(of_two_rows(chosen), seed=0)


def of_two_rows(chosen: Any) -> Any:
    import tensorflow as tf

    return SimpleNamespace(action_mask=tf.ones([2, 3], tf.bool), chosen=chosen)


def having(**parts: Any) -> Foreign:
    """Returns a controller with other parts than `Theirs` has."""
    return Foreign(type("Having", (Theirs,), parts)(), BrokenControllerError)


class Cruel:
    """An object that nothing can be done with."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # by these pytest asks what it is
            raise AttributeError(name)
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(("total", value, "a whole number of at least 0") for value in ("many", None, 2.5, -1, [3], Cruel())),
        *(("num_updates", value, "a whole number of at least 0") for value in ("7", float("nan"))),
        *(("max_steps", value, "None or a whole number of at least 1") for value in (0, 1.5, "9", Cruel())),
        *(("limit_s", value, "a number of at least 0") for value in ("1 h", None, float("nan"), -1.0)),
        *(("trains", value, "True or False") for value in (np.zeros(2),)),
        ("policy", "best", "None or a function"),
    ],
)
def test_a_figure_of_another_kind_is_its_fault(name: str, value: Any, expected: str) -> None:
    with pytest.raises(BrokenControllerError, match=rf"has the {name} .*, but {expected} was expected"):
        getattr(having(**{name: value}), name)


@pytest.mark.parametrize(("name", "value"), [("name", 3), ("worlds", 3), ("clocked", np.zeros(2))])
def test_what_it_says_of_itself_is_checked_when_it_is_made(name: str, value: Any) -> None:
    with pytest.raises(BrokenControllerError, match=rf"has the {name} .* was expected"):
        having(**{name: value})


def raises(error: BaseException) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        raise error

    return method


METHODS: dict[str, Callable[[Foreign], Any]] = {
    "act()": lambda foreign: foreign.act(None, deterministic=True),
    "train()": lambda foreign: foreign.train(None),
    "view()": lambda foreign: foreign.view(None),
    "begin_episode()": lambda foreign: foreign.begin_episode(None, seed=0),
    "save()": lambda foreign: foreign.save("file"),
    "load()": lambda foreign: foreign.load("file"),
    "total": lambda foreign: foreign.total,
    "saves": lambda foreign: foreign.saves,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", [SystemExit("bye"), LookupError("bye"), MemoryError("bye")])
def test_whatever_it_raises_is_its_fault(method: str, error: BaseException) -> None:
    part = raises(error)
    foreign = having(**{method.removesuffix("()"): part if method.endswith("()") else property(part)})
    with pytest.raises(BrokenControllerError) as raised:
        METHODS[method](foreign)
    assert str(raised.value) == f"raises {type(error).__name__} in {method}: bye"


@pytest.mark.parametrize("method", METHODS)
def test_an_interruption_passes(method: str) -> None:
    part = raises(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        METHODS[method](having(**{method.removesuffix("()"): part if method.endswith("()") else property(part)}))


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_error_without_words_has_none() -> None:
    with pytest.raises(BrokenControllerError, match=r"raises Wordless in act\(\): without a message"):
        having(act=raises(Wordless())).act(None, deterministic=True)


@pytest.mark.parametrize(
    "given",
    [
        (1,),
        (1, 2, None),
        (1, 2, [0.5]),
        (1, 2, {"return": "high"}),
        (1, 2, {3: 0.5}),
        ("first", 2, {}),
        (1.5, 2, {}),
        (1, None, {}),
        (1, 2, Cruel()),
    ],
)
def test_a_wrong_report_of_progress_is_its_fault(given: tuple[Any, ...]) -> None:
    reported: list[Any] = []
    foreign = having(train=lambda self, world, *, seed, on_progress: on_progress(*given))
    fault = r"calls on_progress\(.*\) in train\(\), but on_progress\(done, total, metrics\) .* was expected"
    with pytest.raises(BrokenControllerError, match=fault):
        foreign.train(None, on_progress=lambda *arguments: reported.append(arguments))
    assert not reported


def test_progress_is_reported_as_it_is() -> None:
    reported: list[Any] = []
    metrics = {"return": np.float32(0.5), "steps": 3, "loss": float("nan")}
    foreign = having(train=lambda self, world, *, seed, on_progress: on_progress(np.int64(1), 2, metrics))
    foreign.train(None, on_progress=lambda *arguments: reported.append(arguments))
    assert reported == [(1, 2, metrics)]


def stumbles(self: Any, world: Any, *, seed: int, on_progress: Any) -> None:
    try:
        on_progress(1, 2, {})
    except Exception as error:
        raise RuntimeError("I stumbled") from error


def carries_on(self: Any, world: Any, *, seed: int, on_progress: Any) -> None:
    with contextlib.suppress(Exception):
        on_progress(1, 2, {})
    on_progress(2)


@pytest.mark.parametrize(("train", "ours"), [(stumbles, True), (carries_on, False)])
def test_what_a_report_raises_is_ours_and_what_comes_of_nothing_else_is_theirs(train: Any, ours: bool) -> None:
    full = OSError(28, "No space left on device")
    with pytest.raises(OSError if ours else BrokenControllerError) as raised:
        having(train=train).train(None, on_progress=raises(full))
    assert (raised.value is full) == ours


class Seeing(Theirs):
    """Plays the real environment through a view of its own, which does as a function says."""

    max_steps = 2  # type: ignore[assignment]

    def __init__(self, env: Any, **methods: Callable[..., Any]) -> None:
        found = {"reset": env.reset, "step": env.step, **methods}
        self._view = SimpleNamespace(**found)

    def view(self, env: Any) -> Any:
        return self._view

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        rule = int(observation["rule_mask"].argmax())
        return [rule, int(observation["location_mask"][rule].argmax())]


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv("squeezenet1.1-tiny")


def played(env: Any, controller: Controller) -> Any:
    return play_episode(env, Foreign(controller, BrokenControllerError), seed=0)


@pytest.mark.parametrize("found", [None, 3, SimpleNamespace(reset=None, step=print), Cruel()])
def test_a_view_that_is_no_environment_is_its_fault(found: Any, env: GraphSubstitutionEnv) -> None:
    fault = r"returns .* in view\(\), but an environment with Gymnasium's reset and step was expected"
    with pytest.raises(BrokenControllerError, match=fault):
        having(view=lambda self, env: found).view(env)


def test_a_view_with_a_way_of_its_own_plays_as_the_environment(env: GraphSubstitutionEnv) -> None:
    def numbered(action: Any) -> Any:
        observation, reward, terminated, truncated, info = env.step(action)
        return [observation, np.float64(reward), np.bool_(terminated), truncated, {**info, "action": action}]

    record = played(env, Seeing(env, step=numbered))
    assert record.num_steps == 2 and record.truncated and record.graph_hash
    assert env.replay(record.actions).hash == env.state.hash
    assert record == played(env, Seeing(env))


RESETS: list[tuple[Callable[..., Any], str]] = [
    (lambda *_: None, r"None in reset\(\) of its view, but \(observation, info\)"),
    (lambda observation, _: observation, r"{.* in reset\(\) of its view, but \(observation, info\)"),
    (lambda *begun: (*begun, 3), r"3 values in reset\(\) of its view, but \(observation, info\)"),
    (lambda observation, _: (observation, None), r"the info None in reset\(\)"),
    (lambda observation, _: (observation, {"cost_ms": "little"}), r"the info\['cost_ms'\] 'little' in reset\(\)"),
    (lambda observation, _: (observation, {}), r"the info\['cost_ms'\] None in reset\(\)"),
]


@pytest.mark.parametrize(("begun", "fault"), RESETS)
def test_a_reset_of_another_form_is_its_fault(begun: Any, fault: str, env: GraphSubstitutionEnv) -> None:
    with pytest.raises(BrokenControllerError, match=rf"returns {fault}.* was expected"):
        played(env, Seeing(env, reset=lambda **arguments: begun(*env.reset(**arguments))))


OUTCOMES: list[tuple[Callable[..., Any], str]] = [
    (lambda *_: None, "None"),
    (lambda *outcome: outcome[:4], "4 values"),
    (lambda observation, reward, *rest: (observation, None, *rest), "the reward None"),
    (lambda observation, reward, *rest: (observation, float("nan"), *rest), "the reward nan"),
    (lambda observation, reward, terminated, *rest: (observation, reward, None, *rest), "the terminated None"),
    (lambda *outcome: (*outcome[:3], "no", outcome[4]), "the truncated 'no'"),
    (lambda *outcome: (*outcome[:4], None), "the info None"),
    (lambda *outcome: (*outcome[:4], {"cost_ms": 3}), r"the info\['rule_name'\] None"),
    (lambda *outcome: (*outcome[:4], {**outcome[4], "cost_ms": None}), r"the info\['cost_ms'\] None"),
    (lambda *outcome: (*outcome[:4], {**outcome[4], "cost_noise": "much"}), r"the info\['cost_noise'\] 'much'"),
    (lambda *outcome: (*outcome[:4], {**outcome[4], "rewrites": [3]}), r"the info\['rewrites'\] \[3\]"),
    (lambda *outcome: (*outcome[:4], {**outcome[4], "action": 7}), r"the info\['action'\] 7"),
]


@pytest.mark.parametrize(("outcome", "fault"), OUTCOMES)
def test_a_step_of_another_form_is_its_fault(outcome: Any, fault: str, env: GraphSubstitutionEnv) -> None:
    said = rf"returns {fault} in step\(\) of its view at the action \[.*\], but .* was expected"
    with pytest.raises(BrokenControllerError, match=said):
        played(env, Seeing(env, step=lambda action: outcome(*env.step(action))))


@pytest.mark.parametrize("rewrites", [[(3, 1)], [(2, 1), (2, 2)], [(2, 3), (3, 3)]])
def test_a_view_that_reports_another_action_than_it_took_is_at_fault(rewrites: Any, env: GraphSubstitutionEnv) -> None:
    def step(action: Any) -> Any:
        *outcome, info = env.step(action)
        return *outcome, {**info, "action": [2, 1], "rewrites": rewrites}

    fault = r"returns the info\['action'\] \[2, 1\] in step.*, but the rewrites of that step are"
    with pytest.raises(BrokenControllerError, match=fault):
        played(env, Seeing(env, step=step))


def test_a_view_that_took_another_action_than_it_says_is_at_fault(env: GraphSubstitutionEnv) -> None:
    def step(action: Any) -> Any:
        *outcome, info = env.step(env.legal_actions()[-1])
        return *outcome, {**info, "action": action, "rewrites": ()}

    fault = r"by which \[\(\d+, \d+\)\] was taken, but the real environment has taken something else"
    with pytest.raises(BrokenControllerError, match=fault):
        played(env, Seeing(env, step=step))


@pytest.mark.parametrize("lie", [{"cost_ms": 1e-3}, {"graph_hash": "the best"}])
@pytest.mark.parametrize("method", ["reset", "step"])
def test_a_view_that_misstates_the_environment_is_at_fault(
    method: str, lie: dict[str, Any], env: GraphSubstitutionEnv
) -> None:
    def lying(*arguments: Any, **named: Any) -> Any:
        *outcome, info = getattr(env, method)(*arguments, **named)
        return *outcome, {**info, **lie}

    fault = rf"returns the info\['cost_ms'\] .* in {method}\(\) of its view.*, but the real environment has"
    with pytest.raises(BrokenControllerError, match=fault):
        played(env, Seeing(env, **{method: lying}))


def test_a_view_may_take_a_rule_everywhere() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny")
    env.reset()
    rule = int(env.state.everywhere_mask().argmax())

    class Everywhere(Seeing):
        def act(self, observation: Any, *, deterministic: bool) -> Any:
            return [rule, env.num_locations]

    record = played(env, Everywhere(env))
    assert record.everywhere == (record.num_actions(1), record.num_actions(2) - record.num_actions(1))


@pytest.mark.parametrize("error", [RuntimeError("bye"), ZeroDivisionError("bye"), SystemExit("bye")])
@pytest.mark.parametrize("method", ["reset", "step"])
def test_whatever_its_view_raises_is_its_fault(method: str, error: BaseException, env: GraphSubstitutionEnv) -> None:
    with pytest.raises(
        BrokenControllerError, match=rf"raises {type(error).__name__} in {method}\(\) of its view.*: bye"
    ):
        played(env, Seeing(env, **{method: raises(error)}))


def test_a_view_without_options_is_at_fault_only_if_there_are_some(env: GraphSubstitutionEnv) -> None:
    def reset(*, seed: int) -> Any:
        return env.reset(seed=seed)

    foreign = Foreign(Seeing(env, reset=reset), BrokenControllerError).view(env)
    assert foreign.reset(seed=0)[1]["cost_ms"] > 0
    with pytest.raises(BrokenControllerError, match=r"raises TypeError in reset\(\) of its view: .*'options'"):
        played(env, Seeing(env, reset=reset))


def test_an_interruption_of_a_view_passes(env: GraphSubstitutionEnv) -> None:
    with pytest.raises(KeyboardInterrupt):
        played(env, Seeing(env, step=raises(KeyboardInterrupt())))


def test_what_the_environment_reports_of_itself_is_not_their_fault() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", reward=lambda transition: float("nan"))
    with pytest.raises(RewardError):
        played(env, Seeing(env))
