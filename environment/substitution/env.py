"""The substitution game as a Gymnasium environment: a state is a graph, an action is (rule, location).

This module may use the engine, rewards, cost models and the zoo; it knows nothing of learning.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
import onnx
from gymnasium import spaces

from environment import rewards, zoo
from environment.costs import registry as cost_models
from environment.costs.interface import Cost, Costs, Priced, counted_ms, drawing
from environment.costs.limits import UnpricedWarning
from environment.counting import count
from environment.substitution import features
from environment.substitution.length import COUNTED_BY, usual_steps
from environment.substitution.options import require_options, require_steps
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State, UnpricedError, Waypoints
from taso_ext.rule_sets import load_rule_set

Rewrite = tuple[int, int]
"""A single rewrite: (rule, location)."""
WAYPOINT = "waypoint"
"""The name, in logs, of a step to a waypoint."""
GraphSource = str | os.PathLike[str] | onnx.ModelProto | OnnxModel


class Snapshot(NamedTuple):
    """A moment of an episode, to which `GraphSubstitutionEnv.restore` returns; the fields are the environment's own."""

    state: State
    price: Priced
    seen: Priced
    seen_start: Priced
    last_measured: Priced
    draws: Mapping[str, Priced]
    noise_seed: int
    fresh: bool
    best_cost_ms: float
    steps: int
    limit: int | None


class GraphSubstitutionEnv(gymnasium.Env[dict[str, Any], npt.NDArray[np.int64]]):
    """An environment that rewrites one model; an episode starts from the model's cleaned graph.

        env = GraphSubstitutionEnv("squeezenet1.1")
        observation, info = env.reset(seed=0)
        observation, reward, terminated, truncated, info = env.step([rule, location])

    With R rules and L locations an observation holds `graph` (N nodes, E edges; columns in
    `environment.substitution.features`), `globals` float32 [2] (ln(cost / start cost), steps / max_steps), `rule_mask`
    int8 [R + 1] (NO-OP, at index R, is always legal) and `location_mask` int8 [R, L + 1]. A rewrite that a step does
    not touch keeps its location. If the reward measures every N > 1 steps, `globals` is float32 [4], with two more
    columns: (steps mod N) / N, and ln(last cost that the reward saw / start cost).

    The location L stands for *everywhere*. The action [rule, L] is legal if the rule has two or more matches. It
    carries out the matches that stand when the step begins, in the order of their locations. It leaves out those whose
    operators were taken away meanwhile, and follows no new ones. All this is one step of the episode. With
    `everywhere=False` there are no such actions, and `location_mask` is [R, L].

    The action [R + 1, k] goes to the k-th of the `waypoints`: graphs that compute what the start graph does although no
    single rewrites lead to them, such as those of equality saturation. No mask shows these actions, and they are not in
    the action space: they are for the log of what has found the waypoint, and not for an agent to choose.

    `info` holds `cost_ms`, `flops`, `memory_bytes`, `kernel_launches`, `rule_name`, `graph_hash`, `best_cost_ms`,
    `truncated_matches` (matches beyond L, which have no location), `rewrites` (the single rewrites (rule, location) of
    the step, which lead to the same state in an environment without everywhere-actions), after `reset` also
    `rules_fingerprint` (of the rule set, to which the numbers of actions belong), and, for cost models that measure:

    - `cost_is_fresh`: whether the four costs are those of this graph. Graphs are measured only at the start and when
      the reward needs it; otherwise the four costs, and the cost in `globals`, are those of the last measured graph.
      Analytic costs are always fresh. `best_cost_ms` counts fresh costs only;
    - `cost_noise`: half the width of the 95 % interval of `cost_ms`, as a fraction of it;
    - `ratio_noise`: half the width of the 95 % interval of `cost_ms` over that of the start graph. Measurements that
      both rest on cancel out, so that it is mostly smaller than `cost_noise`;
    - `drawn_cost_ms`: the run time that rewards and `globals` are made of. It is `cost_ms`, unless the cost model has
      `noise=resampled`;
    - `reward_noise`: half the width of the 95 % interval of the reward, in the reward's own unit (percent for all
      built-in rewards). Measurements that two graphs share hardly blur the difference between them. It is 0 for
      analytic costs, constant bonuses, illegal actions and `reset`.

    Under a cost model with `noise=resampled` an agent sees what a clock might have shown. Rewards and `globals` are
    made of drawn costs; all other costs, `best_cost_ms` too, are the frozen ones, by which results are judged. Within
    an episode each graph has one draw, which depends on the seed of `reset` and on the step at which the graph is met
    first. Rewards that are differences of costs therefore telescope in the drawn costs, exactly: their sum depends only
    on the draws of the first and the last graph, and a loop of rewrites earns nothing.

    The costs of rewrites in `candidates()` and in searches are predictions of the engine's own model, `cost_model`;
    they can be compared only with `state.cost`.

    An episode terminates by NO-OP or when no rewrite is left, and is truncated after `max_steps`. Under measured costs
    a rewrite to a graph without a price truncates it too: the graph was never recorded, or is too large to be run. Such
    a rewrite is not made, `rule_name` is `unpriced`, and the first one comes with an `UnpricedWarning`. If the last
    step is an illegal action, the reward of the episode's end (for `final` and `percent` the saving that is still due)
    is added to its penalty, and the cost is measured as at every end.

    Args:
      graph: zoo name, path of an ONNX file, ModelProto, or a loaded OnnxModel. `reset(options={"graph": ...})` changes
        to another graph; L stays.
      costs: name of a cost model (`environment.costs.names()`), or a cost model (`environment.costs.Costs`).
        Environments with the same object share its measurements.
      reward: a text (`environment.rewards.find`: "percent", "combined:alpha=0.7,beta=0.3", "module:function"), a
        `Reward`, or a function from a `Transition` to a number.
      rules: a RuleSet, the path of a rule file, or None for the shipped rules.
      max_steps: steps after which an episode is truncated; None: `environment.substitution.length.usual_steps` of each
        graph.
      max_locations: L; None takes the number of the graph's run-time operators.
      everywhere: whether there are everywhere-actions.
      clean, dims: see `OnnxModel.load`; not used for an OnnxModel.
      strict: an illegal action raises ValueError, and a rewrite to a graph without a price UnpricedError. Otherwise an
        illegal action changes nothing, and its reward is the penalty `invalid_reward`.
    Raises:
      ModelError: the model cannot be used.
      ZooError, ValueError: a name is unknown.
      UnavailableError: the device that measures costs is not here.
      UnpricedError: recorded costs have no price for the start graph.
      RewardError: from `step`, if the reward is not a finite number.
    """

    def __init__(
        self,
        graph: GraphSource,
        *,
        costs: str | Costs | CostModel = "roofline:rtx2070",
        reward: str | rewards.Reward | rewards.RewardFunction = "log_ratio",
        rules: RuleSet | str | os.PathLike[str] | None = None,
        max_steps: int | None = None,
        max_locations: int | None = None,
        everywhere: bool = True,
        clean: str = "full",
        dims: Mapping[str, int] | None = None,
        strict: bool = False,
        invalid_reward: float = -100.0,
    ) -> None:
        if max_steps is not None:
            require_steps(max_steps)
        if max_locations is not None and max_locations < 1:
            raise ValueError(f"max_locations must be at least 1, got {max_locations}")
        self.costs = cost_models.find(costs)
        self.reward = rewards.find(reward)
        self.rules = _load_rules(rules)
        self.rule_names: tuple[str, ...] = tuple(self.rules.names)
        self.num_rules = len(self.rules)
        self._max_steps, self.strict, self.invalid_reward = max_steps, strict, invalid_reward
        self.everywhere = everywhere
        self._clean, self._dims = clean, dict(dims or {})
        self._max_locations = max_locations or 0
        self._has_warned, self._noise_seed = False, 0
        self._load(graph)
        self.num_locations = self._start.num_locations
        self._begin()
        self.action_space = spaces.MultiDiscrete(np.array([self.num_rules + 1, self.num_places]))
        self.observation_space = _observation_space(self.num_rules, self.num_places, sparse=self.reward.period > 0)

    def _load(self, graph: GraphSource) -> None:
        model = _load_model(graph, self._clean, self._dims)
        prices = self.costs.of(model)
        start = State(model.graph, self.rules, prices.native, self._max_locations, model.waypoints)
        self._start_price = prices.price(start)  # may fail, and then nothing has changed
        self.model, self._prices, self._start = model, prices, start
        self._drawing = drawing(prices)
        self._usual_steps: int | None = None

    @property
    def max_steps(self) -> int:
        """Steps after which an episode of the present graph is truncated."""
        if self._max_steps is not None:
            return self._max_steps
        if self._usual_steps is None:
            self._usual_steps = usual_steps(self.unmeasured_start())
        return self._usual_steps

    @property
    def _limit(self) -> int:
        """Steps after which this episode is truncated."""
        return self.max_steps if self._limit_given is None else self._limit_given

    @property
    def num_places(self) -> int:
        """Number of values of an action's second part: L, and one more if there are everywhere-actions."""
        return self.num_locations + self.everywhere

    @property
    def waypoints(self) -> Waypoints:
        """The waypoints of the present model; a graph may be added at any time."""
        return self.model.waypoints

    @property
    def waypoint_rule(self) -> int:
        """R + 1, the first part of an action that goes to a waypoint."""
        return self._start.waypoint_rule

    @property
    def cost_model(self) -> CostModel:
        """The engine's cost model, which predicts the costs of rewrites and gives `state.cost`."""
        return self._prices.native

    @property
    def log_cost_rewards(self) -> bool:
        """Whether every reward is 100 · ln(cost before / after) of costs that are sums of all nodes' observed times.

        Nodes show frozen times. Of costs that are drawn, this holds apart from their noise.
        """
        return self.reward.is_log_ratio and getattr(self._prices, "sums_nodes", False)

    @property
    def draws_costs(self) -> bool:
        """Whether rewards are made of drawn costs (`noise=resampled`)."""
        return self._drawing is not None

    @property
    def steps(self) -> int:
        """Number of steps of the episode so far."""
        return self._steps

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The single rewrites of the last step, in their order; none if it has changed no graph."""
        return self._rewrites

    @property
    def cost(self) -> Cost:
        """Cost that the last `info` shows; never a drawn one."""
        return self._price.cost

    @property
    def initial_cost(self) -> Cost:
        """Cost of the start graph; never a drawn one."""
        return self._start_price.cost

    def _begin(self, max_steps: int | None = None) -> None:
        self.state = self._start.copy()
        self._steps, self._limit_given = 0, max_steps
        self._draws: dict[str, Priced] = {}
        self._price = self._start_price
        self._seen = self._seen_start = self._last_measured = self._as_seen(self._price)
        self._fresh = True
        self._rewrites: tuple[Rewrite, ...] = ()
        self._best_cost_ms = self.initial_cost.ms

    def _as_seen(self, price: Priced) -> Priced:
        """Returns the cost of which the rewards of the present state are made: its price, or the draw of its graph."""
        if self._drawing is None:
            return price
        if self.state.hash not in self._draws:
            rng = np.random.default_rng([self._noise_seed, self._steps])
            self._draws[self.state.hash] = self._drawing.draw(self.state, rng)
        return self._draws[self.state.hash]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts an episode.

        Args:
          options: `graph` changes to another model for this and later episodes; `max_steps`, if not None, limits this
            episode.
        Raises:
          ValueError: `max_steps` is no whole number of at least 1, or there is no such option.
        """
        super().reset(seed=seed)
        settings = require_options(options, "graph", "max_steps")
        if "graph" in settings:
            self._max_locations = self.num_locations  # the spaces are fixed: matches beyond L are counted, not shown
            self._load(settings["graph"])
        if self._drawing is not None:
            self._noise_seed = int(self.np_random.integers(1 << 63))
        self._begin(settings.get("max_steps"))
        return self._observation(), self._info("") | {"rules_fingerprint": self.rules.fingerprint}

    def step(
        self, action: Sequence[int] | npt.NDArray[np.int64]
    ) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes the action [rule, location]; rule R is NO-OP with any location, and R + 1 goes to a waypoint."""
        rule, location = (int(part) for part in action)
        self._rewrites = ()
        if rule == self.num_rules:
            count(real_steps=1)
            return self._finish_step("no-op", terminated=True)
        if not (self.strict or self._is_legal(rule, location)):
            return self._refuse()
        try:
            self._rewrites = self._advance(rule, location)
        except UnpricedError as error:
            if self.strict:
                raise
            self._warn_once(error)
            return self._finish_step("unpriced", terminated=False, stranded=True)
        name = WAYPOINT if rule == self.waypoint_rule else self.rule_names[rule]
        return self._finish_step(name, terminated=not len(self.state.legal_actions()))

    def _is_everywhere(self, rule: int, location: int) -> bool:
        return self.everywhere and location == self.num_locations and rule != self.waypoint_rule

    def _is_legal(self, rule: int, location: int) -> bool:
        if not self._is_everywhere(rule, location):
            return self.state.is_legal(rule, location)
        return 0 <= rule < self.num_rules and bool(self.state.everywhere_mask()[rule])

    def _advance(self, rule: int, location: int) -> tuple[Rewrite, ...]:
        """Moves on by an action and returns its single rewrites; UnpricedError leaves the state as it is."""
        if not getattr(self._prices, "may_lack_prices", False):
            return self._carry_out(self.state, rule, location)
        reached = self.state.copy()
        rewrites = self._carry_out(reached, rule, location)
        self._prices.price(reached)
        self.state = reached
        return rewrites

    def _carry_out(self, state: State, rule: int, location: int) -> tuple[Rewrite, ...]:
        """Moves a state on by an action and returns its single rewrites; raises ValueError if it is not legal."""
        if not self._is_everywhere(rule, location):
            state.step(rule, location)
            return ((rule, location),)
        return tuple((rule, int(place)) for place in state.step_everywhere(rule))

    def _warn_once(self, error: UnpricedError) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = f"A rewrite was left alone and ended its episode, as others may: {error} This is said once."
            warnings.warn(text, UnpricedWarning, stacklevel=3)

    def _refuse(self) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Gives the penalty of an illegal action and leaves the graph unchanged."""
        count(real_steps=1)
        if self._steps + 1 < self._limit:
            self._steps += 1
            return self._observation(), self.invalid_reward, False, False, self._info("invalid")
        observation, due, terminated, truncated, info = self._finish_step("invalid", terminated=False)
        return observation, self.invalid_reward + float(due), terminated, truncated, info

    def _finish_step(
        self, rule_name: str, terminated: bool, stranded: bool = False
    ) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Counts the step, prices the state, computes the reward and ends the episode if it is over.

        Args:
          stranded: whether the episode cannot go on because the next graph has no price.
        """
        self._steps += 1
        truncated = not terminated and (stranded or self._steps >= self._limit)
        done = terminated or truncated
        before, measures = self._seen, self.reward.measures(self._steps, done)
        self._fresh = measures or self._prices.is_free
        if self._fresh:
            self._price = self._prices.price(self.state)
            self._seen = self._as_seen(self._price)
            count(cost_evaluations=1)
            self._best_cost_ms = min(self._best_cost_ms, self._price.cost.ms)
        reward, noise = self._earned(before, rule_name, done)
        if measures:
            self._last_measured = self._seen
        return self._observation(), reward, terminated, truncated, self._info(rule_name, noise)

    def _earned(self, before: Priced, rule_name: str, done: bool) -> tuple[float, float]:
        """Returns the reward of this step and its noise."""
        first, after, last = self._seen_start, self._seen, self._last_measured
        transition = rewards.Transition(first.cost, before.cost, after.cost, last.cost, self._steps, done)
        prices = {"initial": first, "before": before, "after": after, "last_measured": last}
        reward = self.reward.earned(transition, rule_name)
        return reward, rewards.reward_noise(self.reward, transition, prices, rule_name)

    def legal_actions(self) -> npt.NDArray[np.int32]:
        """Returns all legal (rule, location) pairs [C, 2] except NO-OP, in ascending order."""
        actions = self.state.legal_actions()
        if not self.everywhere:
            return actions
        rules = np.flatnonzero(self.state.everywhere_mask())
        pairs = np.stack([rules, np.full_like(rules, self.num_locations)], axis=1).astype(np.int32)
        return _in_order(np.concatenate([actions, pairs]))[0]

    def rewritten_nodes(self) -> npt.NDArray[np.int32]:
        """Returns the nodes that each of `legal_actions` rewrites, as pairs [n, 2] in ascending order.

        A pair is the position of an action and the row of a node in the observed graph. An everywhere-action rewrites
        the nodes of all matches of its rule. Nodes that are computed from weights alone are not observed.
        """
        pairs, rules = self.state.matched_nodes(), np.flatnonzero(self.state.everywhere_mask())
        if not (self.everywhere and len(rules)):
            return pairs
        actions = self.state.legal_actions()
        of_rules = np.stack([actions[pairs[:, 0], 0], pairs[:, 1]], axis=1)
        keys = np.unique(_keys(of_rules[self.state.everywhere_mask()[of_rules[:, 0]]]))
        of_rules = np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1).astype(np.int32)
        of_rules[:, 0] = len(actions) + np.searchsorted(rules, of_rules[:, 0])
        everywhere = np.stack([rules, np.full_like(rules, self.num_locations)], axis=1).astype(np.int32)
        places = np.argsort(_in_order(np.concatenate([actions, everywhere]))[1])
        both = np.concatenate([pairs, of_rules])
        return _in_order(np.stack([places[both[:, 0]], both[:, 1]], axis=1).astype(np.int32))[0]

    def candidates(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Returns (rule [C], location [C], cost_ms [C]): the predicted cost after each of `legal_actions`.

        `cost_model` predicts these costs and `state.cost`, so that they can be compared whatever `costs` measures.
        """
        rules, locations, costs_ms = self.state.candidates()
        if not self.everywhere:
            return rules, locations, costs_ms
        more_rules, more_locations, more_ms = self.state.everywhere_candidates()
        columns = np.concatenate([rules, more_rules]), np.concatenate([locations, more_locations])
        pairs, order = _in_order(np.stack(columns, axis=1))
        return pairs[:, 0], pairs[:, 1], np.concatenate([costs_ms, more_ms])[order]

    def start_state(self) -> State:
        """Returns the engine's state in which episodes begin, as a copy."""
        return self._start.copy()

    def unmeasured_start(self) -> State:
        """Returns the state in which episodes begin with prices by a roofline, so that no step from it measures any."""
        costs = CostModel.roofline(COUNTED_BY)
        return State(self.model.graph, self.rules, costs, self.num_locations, self.model.waypoints)

    def after(self, state: State, rule: int, location: int) -> State:
        """Returns the engine's state after an action that is legal in another state; the episode is not touched.

        Raises:
          ValueError: the action is not legal there.
        """
        reached = state.copy()
        self._carry_out(reached, rule, location)
        return reached

    def snapshot(self) -> Snapshot:
        """Returns the present moment of the episode; a copy of the state shares its memory until it steps."""
        return Snapshot(
            state=self.state.copy(),
            price=self._price,
            seen=self._seen,
            seen_start=self._seen_start,
            last_measured=self._last_measured,
            draws=dict(self._draws),
            noise_seed=self._noise_seed,
            fresh=self._fresh,
            best_cost_ms=self._best_cost_ms,
            steps=self._steps,
            limit=self._limit_given,
        )

    def restore(self, moment: Snapshot) -> None:
        """Returns to a moment of this or an earlier episode of the same model, at once and as often as one likes."""
        self.state, self._rewrites = moment.state.copy(), ()
        self._price, self._last_measured, self._fresh = moment.price, moment.last_measured, moment.fresh
        self._seen, self._seen_start = moment.seen, moment.seen_start
        self._draws, self._noise_seed = dict(moment.draws), moment.noise_seed
        self._best_cost_ms, self._steps, self._limit_given = moment.best_cost_ms, moment.steps, moment.limit

    def replay(self, actions: Sequence[Sequence[int]]) -> Graph:
        """Returns the graph to which a list of (rule, location) leads from the start; the episode is not touched.

        Raises:
          ValueError: an action is not legal; the message names the first.
        """
        return self._replayed(actions).graph

    def known_price(self, actions: Sequence[Sequence[int]] = ()) -> Priced | None:
        """Returns the frozen price of the graph to which actions lead; None if it would have to be measured.

        Raises:
          ValueError: see `replay`.
        """
        return self._prices.price(self._replayed(actions)) if self._prices.is_free else None

    def _replayed(self, actions: Sequence[Sequence[int]]) -> State:
        state = self._start.copy()
        for position, (rule, location) in enumerate(actions):
            try:
                self._carry_out(state, int(rule), int(location))
            except ValueError as error:
                raise ValueError(f"action {position} of the log cannot be replayed: {error}") from error
        return state

    def _observation(self) -> dict[str, Any]:
        nodes, edges, links = self.state.features()
        return {
            "graph": spaces.GraphInstance(nodes, edges, links),
            "globals": np.array(self._globals(), np.float32),
            "rule_mask": np.append(self.state.rule_mask(), True).astype(np.int8),
            "location_mask": self._location_mask().astype(np.int8),
        }

    def _location_mask(self) -> npt.NDArray[np.bool_]:
        mask = self.state.location_mask()
        return np.column_stack([mask, self.state.everywhere_mask()]) if self.everywhere else mask

    def _globals(self) -> list[float]:
        """Returns the columns that `environment.substitution.features` names."""
        always = [self._log_ratio(self._seen), self._steps / self._limit]
        period = self.reward.period
        if not period:
            return always
        return [*always, self._steps % period / period, self._log_ratio(self._last_measured)]

    def _log_ratio(self, priced: Priced) -> float:
        start_ms, ms = self._seen_start.cost.ms, priced.cost.ms
        return math.log(counted_ms(ms, start_ms) / start_ms) if start_ms > 0 else 0.0

    def _info(self, rule_name: str, reward_noise: float = 0.0) -> dict[str, Any]:
        cost = self._price.cost
        return {
            "cost_ms": cost.ms,
            "flops": cost.flops,
            "memory_bytes": cost.memory_bytes,
            "kernel_launches": cost.kernel_launches,
            "cost_is_fresh": self._fresh,
            "cost_noise": self._price.noise,
            "ratio_noise": self._price.ratio_noise(self._start_price),
            "drawn_cost_ms": self._seen.cost.ms,
            "reward_noise": reward_noise,
            "rule_name": rule_name,
            "rewrites": self._rewrites,
            "graph_hash": self.state.hash,
            "best_cost_ms": self._best_cost_ms,
            "truncated_matches": self.state.truncated_matches,
        }


def _load_rules(rules: RuleSet | str | os.PathLike[str] | None) -> RuleSet:
    return rules if isinstance(rules, RuleSet) else load_rule_set(None if rules is None else os.fspath(rules))


def _load_model(graph: GraphSource, clean: str, dims: Mapping[str, int]) -> OnnxModel:
    if isinstance(graph, OnnxModel):
        return graph
    is_name = isinstance(graph, str) and not graph.endswith(".onnx") and not Path(graph).exists()
    return OnnxModel.load(zoo.build(graph) if is_name else graph, clean=clean, dims=dims)  # type: ignore[arg-type]


def _in_order(pairs: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Returns pairs [n, 2] of numbers that are not negative in ascending order, and the place of each before."""
    order = np.argsort(_keys(pairs), kind="stable")
    return pairs[order], order


def _keys(pairs: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Returns a number for each pair, in the order of the pairs."""
    keys: npt.NDArray[np.int64] = pairs[:, 0].astype(np.int64) << 32 | pairs[:, 1]
    return keys


def _observation_space(num_rules: int, num_places: int, sparse: bool) -> spaces.Dict:
    # Categories share the array with the other features, so the largest id bounds the box.
    node = spaces.Box(0.0, float(features.NUM_OPERATORS), (len(features.NODE_FEATURES),), np.float32)
    num_globals = len(features.GLOBAL_FEATURES) + sparse * len(features.SPARSE_GLOBAL_FEATURES)
    # e^50: no cost ratio gets there.
    global_bounds = np.array([[-50, 0, 0, -50], [50, 1, 1, 50]], np.float32)[:, :num_globals]
    edge = spaces.Box(0.0, float(features.NUM_DTYPES), (len(features.EDGE_FEATURES),), np.float32)
    return spaces.Dict(
        {
            "graph": spaces.Graph(node, edge),
            "globals": spaces.Box(*global_bounds, dtype=np.float32),
            "rule_mask": spaces.MultiBinary(num_rules + 1),
            "location_mask": spaces.MultiBinary([num_rules, num_places]),
        }
    )
