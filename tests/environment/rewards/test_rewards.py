"""Rewards are what their formulas say, whatever the parameters; texts are understood or refused with a reason."""

from __future__ import annotations

import itertools
import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environment import GraphSubstitutionEnv, rewards
from environment.costs.interface import MeasuredCost, Priced
from environment.rewards import Reward, RewardError, Transition

POSITIVE = st.floats(1e-3, 1e3)
COSTS = st.builds(MeasuredCost, POSITIVE, POSITIVE, POSITIVE, st.integers(1, 99))
TRANSITIONS = st.builds(Transition, COSTS, COSTS, COSTS, COSTS, st.integers(1, 50), st.booleans())
WEIGHTS = st.floats(-10.0, 10.0)


def cost(ms: float, memory_bytes: float = 1.0) -> MeasuredCost:
    return MeasuredCost(ms, 1.0, memory_bytes, 1)


def priced(ms: float, noise: float, name: str = "") -> Priced:
    """Returns the price of a measured graph; prices with one `name` share their measurement."""
    return Priced(cost(ms), {name or f"{ms} {noise}": noise * ms})


def transition(*ms: float, step: int = 1, done: bool = False) -> Transition:
    """Returns a transition of the costs initial, before, after, last measured, in milliseconds."""
    return Transition(*(cost(each) for each in ms), step, done)


@given(TRANSITIONS, WEIGHTS, WEIGHTS)
@settings(deadline=None)
def test_formulas(t: Transition, alpha: float, beta: float) -> None:
    rt = {name: 100 * getattr(t, name).ms / t.initial.ms for name in ("before", "after", "last_measured")}
    saved = 100 * (t.before.memory_bytes - t.after.memory_bytes) / t.initial.memory_bytes
    expected = {
        "log_ratio": 100 * math.log(rt["before"] / rt["after"]),
        "incremental": rt["before"] - rt["after"],
        "combined": 0.8 * (rt["before"] - rt["after"]) + 0.2 * saved,
        f"combined:alpha={alpha!r},beta={beta!r}": alpha * (rt["before"] - rt["after"]) + beta * saved,
        "new_runtime": -rt["after"],
        "final": 100 - rt["after"] if t.done else 0.0,
        "percent": rt["last_measured"] - rt["after"] if t.done or t.step % 5 == 0 else 0.1,
        "percent:every=3,bonus=0.5": rt["last_measured"] - rt["after"] if t.done or t.step % 3 == 0 else 0.5,
    }
    assert {name.partition(":")[0] for name in expected} == set(rewards.names())
    scale = max(abs(value) for value in rt.values())
    for name, value in expected.items():
        assert rewards.find(name).earned(t, "rule") == pytest.approx(value, rel=1e-9, abs=1e-9 * scale)


@given(WEIGHTS, WEIGHTS, st.integers(1, 20), WEIGHTS, TRANSITIONS)
@settings(deadline=None)
def test_text_and_keywords_mean_the_same(alpha: float, beta: float, every: int, bonus: float, t: Transition) -> None:
    for text, keywords in (
        (f"combined:alpha={alpha!r},beta={beta!r}", {"alpha": alpha, "beta": beta}),
        (f"combined: beta = {beta!r}", {"beta": beta}),
        (f"percent:every={every},bonus={bonus!r}", {"every": every, "bonus": bonus}),
    ):
        written, given = rewards.find(text), rewards.find(text.partition(":")[0], **keywords)
        assert written.name == given.name and written.every == given.every
        assert written.earned(t, "") == given.earned(t, "")
        assert rewards.find(written.name).earned(t, "") == given.earned(t, ""), "the name is the text"


@pytest.mark.parametrize(
    ("text", "keywords", "expected"),
    [
        ("logratio", {}, "did you mean 'log_ratio'"),
        ("combind:alpha=1", {}, "did you mean 'combined'"),
        ("combined:alpa=1", {}, "did you mean 'alpha'"),
        ("combined:gamma=1", {}, "takes alpha, beta"),
        ("incremental:alpha=1", {}, "takes no parameters"),
        ("combined:alpha=much", {}, "alpha must be a finite number, got 'much'"),
        ("combined:alpha=nan", {}, "finite"),
        ("combined:beta=inf", {}, "finite"),
        ("combined:alpha=1,alpha=2", {}, "once"),
        ("combined:alpha", {}, "key=value"),
        ("combined:alpha=1,", {}, "key=value"),
        ("combined:", {}, "nothing follows"),
        ("combined:alpha=1", {"alpha": 1.0}, "came twice"),
        ("combined", {"alpha": "much"}, "finite number"),
        ("combined", {"alpha": None}, "finite number"),
        ("percent:every=0", {}, "at least 1, got 0"),
        ("percent:every=-3", {}, "at least 1, got -3"),
        ("percent:every=2.5", {}, "every must be a whole number, got '2.5'"),
        ("percent", {"every": 2.0}, "whole number"),
        ("percent", {"every": True}, "whole number"),
        ("no_such_module:reward", {}, "Python module 'no_such_module'"),
        ("math:rewrd", {}, "no function 'rewrd'"),
        ("math:pi", {}, "no function from a Transition"),
        ("math:sqrt", {"alpha": 1.0}, "no parameters"),
        (".math:sqrt", {}, "cannot be imported"),
        ("", {}, "no reward"),
        (3, {}, "expected a reward"),
    ],
)
def test_what_cannot_be_understood_is_explained(text: Any, keywords: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as raised:
        rewards.find(text, **keywords)
    assert "\n" not in str(raised.value)


def test_a_broken_module_of_a_users_own_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_rewards.py").write_text("def f(t:\n")
    (tmp_path / "needy_rewards.py").write_text("import a_module_that_is_not_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, expected in (("broken_rewards", "SyntaxError"), ("needy_rewards", "a_module_that_is_not_here")):
        with pytest.raises(ValueError, match=f"'{name}' of a reward cannot be imported.*{expected}"):
            rewards.find(f"{name}:f")


def test_a_users_function_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("some_rewards")
    module.saved = lambda t: t.before.ms - t.after.ms  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_rewards", module)
    found = rewards.find("some_rewards:saved")
    assert found.earned(transition(4, 3, 1, 3), "") == 2 and found.name == "some_rewards:saved"
    assert not found.telescopes, "nobody can know"


def test_a_reward_can_be_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards.registry, "_REGISTERED", {})
    mine = Reward("launches", lambda t: float(t.before.kernel_launches - t.after.kernel_launches))
    rewards.register(mine)
    assert rewards.find("launches") is mine and "launches" in rewards.names()
    for taken in (mine, Reward("final", mine.function)):
        with pytest.raises(ValueError, match="already"):
            rewards.register(taken)
    with pytest.raises(ValueError, match="colon"):
        rewards.register(Reward("my:launches", mine.function))
    with pytest.raises(ValueError, match="takes no parameters"):
        rewards.find("launches:alpha=1")


def test_what_is_measured_when() -> None:
    steps = range(1, 13)
    measured = {
        name: [step for step in steps if rewards.find(name).measures(step, step == 12)] for name in rewards.names()
    }
    assert measured.pop("percent") == [5, 10, 12]
    assert measured.pop("final") == [12]
    assert all(each == list(steps) for each in measured.values())
    with pytest.raises(ValueError, match="every=0"):
        Reward("mine", lambda t: 0.0, every=0)


@given(st.lists(POSITIVE, min_size=1, max_size=6), POSITIVE)
@settings(deadline=None)
def test_those_that_telescope_pay_nothing_for_a_loop(path: list[float], start: float) -> None:
    """A loop leads from a graph through others and back."""
    loop = [start, *path, start]
    for name in (*rewards.names(), "percent:every=1"):
        reward = rewards.find(name)
        pairs = enumerate(itertools.pairwise(loop), 1)
        total = sum(reward.earned(transition(start, a, b, a, step=step), "") for step, (a, b) in pairs)
        assert not reward.telescopes or total == pytest.approx(0, abs=1e-9 * 100 * max(loop) / start * len(loop))
    assert {name for name in rewards.names() if rewards.find(name).telescopes} == {
        "log_ratio",
        "incremental",
        "combined",
    }


class TestBadRewards:
    """A user's reward that returns no number is an error of one paragraph with all that is needed to find the cause."""

    @pytest.mark.parametrize(
        "value", [math.nan, math.inf, -np.float32(np.inf), None, "3", 1j, np.zeros(2), np.zeros(()), 10**400]
    )
    def test_no_number(self, value: Any) -> None:
        with pytest.raises(RewardError) as raised:
            Reward("mine", lambda t: value).earned(transition(4, 3.5, 2.25, 3, step=7), "merge-convs")
        text = str(raised.value)
        assert all(part in text for part in ("'mine'", "step 7", "'merge-convs'", "4 ms", "3.5 ms", "2.25 ms", "3 ms"))
        assert "\n" not in text and len(text) < 600

    @pytest.mark.parametrize("value", [3, True, np.float32(3), np.int64(3)])
    def test_every_kind_of_number(self, value: Any) -> None:
        earned = Reward("mine", lambda t: value).earned(transition(1, 1, 1, 1), "")
        assert earned == float(value) and type(earned) is float

    def test_an_error_of_its_own(self) -> None:
        with pytest.raises(RewardError, match=r"'mine' raised ZeroDivisionError: .* at step 1 .*'fuse'") as raised:
            Reward("mine", lambda t: 1 / (t.step - 1)).earned(transition(1, 1, 1, 1), "fuse")
        assert isinstance(raised.value.__cause__, ZeroDivisionError)

    def test_the_environment_raises_it(self) -> None:
        def mine(t: Transition) -> float:
            return math.nan if t.step == 2 else 0.0

        env = GraphSubstitutionEnv("squeezenet1.1-tiny", reward=mine)
        env.reset(seed=0)
        env.step(env.legal_actions()[0])
        rule, location = env.legal_actions()[0]
        with pytest.raises(RewardError, match=rf"mine.* returned nan at step 2 .*{env.rule_names[rule]}"):
            env.step([rule, location])


class TestNoise:
    """How sure a reward is follows from how sure the costs are."""

    @staticmethod
    def noise(reward: str, start_ms: float, **prices: Priced) -> float:
        costs = {"initial": cost(start_ms)} | {name: each.cost for name, each in prices.items()}
        return rewards.reward_noise(rewards.find(reward), Transition(**costs, step=5, done=False), prices, "")

    @given(POSITIVE, POSITIVE, POSITIVE, st.floats(1e-6, 0.1), st.floats(1e-6, 0.1))
    @settings(deadline=None)
    def test_differences_add_up_like_independent_errors(
        self, start: float, before: float, after: float, first: float, second: float
    ) -> None:
        old, new = priced(before, first, "old"), priced(after, second, "new")
        found = self.noise("incremental", start, before=old, after=new, last_measured=old)
        assert found == pytest.approx(100 * math.hypot(before * first, after * second) / start, rel=1e-6)
        logarithmic = self.noise("log_ratio", start, before=old, after=new, last_measured=old)
        assert logarithmic == pytest.approx(100 * math.hypot(math.atanh(first), math.atanh(second)), rel=1e-6)

    def test_one_measurement_cancels(self) -> None:
        same, exact = priced(3.0, 0.05), Priced(cost(4.0))
        assert self.noise("incremental", 4.0, before=same, after=same, last_measured=same) == pytest.approx(0)
        assert self.noise("incremental", 4.0, before=exact, after=exact, last_measured=exact) == 0
        assert self.noise("combined:alpha=0,beta=1", 4.0, before=same, after=same, last_measured=same) == 0

    def test_a_hopeless_clock_still_gives_a_number(self) -> None:
        wild, exact = priced(3.0, 7.0), Priced(cost(4.0))
        assert 0 < self.noise("log_ratio", 4.0, before=exact, after=wild, last_measured=exact) < math.inf

    @given(st.dictionaries(st.sampled_from("abcdef"), st.floats(1e-6, 0.01), min_size=1), POSITIVE)
    @settings(deadline=None)
    def test_graphs_that_rest_on_the_same_measurements_do_not_differ(self, parts: dict[str, float], ms: float) -> None:
        """The reward of a rewrite that changes nothing measured has no noise, although each graph alone is unsure."""
        errors = {name: part * ms for name, part in parts.items()}
        before, after = (Priced(cost(ms), dict(errors)) for _ in range(2))
        for reward in ("incremental", "log_ratio", "combined", "percent"):
            found = self.noise(reward, ms, initial=before, before=before, after=after, last_measured=before)
            assert found == pytest.approx(0, abs=1e-9)
        alone = self.noise("new_runtime", ms, before=before, after=after, last_measured=before)
        assert alone == pytest.approx(100 * before.noise, rel=1e-3)

    def test_what_differs_between_two_graphs_counts(self) -> None:
        """If a kernel runs ten times before and nine times after, only the error of one run counts."""
        before = Priced(cost(100.0), {"kernel": 10 * 0.3, "other": 5.0})
        after = Priced(cost(99.0), {"kernel": 9 * 0.3, "other": 5.0})
        found = self.noise("incremental", 100.0, before=before, after=after, last_measured=before)
        assert found == pytest.approx(0.3)

    def test_the_unit_errs_too(self) -> None:
        """The unit is a percentage of a start graph that was itself measured; in the ratio, shared errors cancel."""
        start, half = Priced(cost(10.0), {"kernel": 0.2}), Priced(cost(5.0), {"kernel": 0.1})
        sure = self.noise("new_runtime", 10.0, initial=start, before=start, after=half, last_measured=start)
        assert sure == pytest.approx(0, abs=1e-9)
        exact = Priced(half.cost)
        alone = self.noise("new_runtime", 10.0, initial=start, before=start, after=exact, last_measured=start)
        assert alone == pytest.approx(100 * 0.5 * 0.02, rel=1e-3)

    def test_the_noise_of_a_price_is_that_of_its_measurements(self) -> None:
        assert Priced(cost(10.0), {"a": 0.3, "b": 0.4}).noise == pytest.approx(0.05)
        assert Priced(cost(10.0)).noise == Priced(cost(0.0)).noise == 0

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.floats(0.0, 1e-4)), min_size=1))
    def test_the_noise_of_a_ratio_is_that_of_its_derivatives(self, kernels: list[tuple[int, int, float]]) -> None:
        """Each kernel takes 1 ms and errs alone; what is left of its error is what it moves the ratio by."""
        totals = np.array([[100.0 + before, 80.0 + after] for before, after, _ in kernels]).sum(axis=0)
        moved = [
            (totals[1] + after * error) / (totals[0] + before * error) - totals[1] / totals[0]
            for before, after, error in kernels
        ]
        errors = [{str(i): row[side] * row[2] for i, row in enumerate(kernels)} for side in (0, 1)]
        first, other = (Priced(cost(total), each) for total, each in zip(totals.tolist(), errors, strict=True))
        assert other.ratio_noise(first) == pytest.approx(math.hypot(*moved), rel=1e-3, abs=1e-12)
        assert first.ratio_noise(first) == 0 == Priced(first.cost).ratio_noise(Priced(first.cost))


def test_the_published_penalty_for_illegal_actions() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", reward="percent")
    env.reset(seed=0)
    _, reward, *_, info = env.step([0, env.num_places])
    assert (reward, info["rule_name"], info["reward_noise"]) == (-100.0, "invalid", 0.0)
