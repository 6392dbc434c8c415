"""Every setting of a run, documented where it is declared. Presets (`presets/*.toml`) and `--set` replace some.

If a roofline prices the graphs, budgets are counts and not seconds by default, so that one seed gives one result on
one machine.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from controller.cmaes.config import CmaesConfig
from controller.mcts.config import MctsConfig
from controller.mpc.config import MpcConfig
from controller.ppo.config import PolicyConfig, PpoConfig
from controller.registry import foreign_names, is_foreign, require_name, require_options, worlds_of
from controller.saturation.config import SaturationConfig
from controller.sb3.config import Sb3Config
from controller.xrlflow.config import XrlflowConfig
from environment import rewards
from environment.policies.random import EVERYWHERE_PROBABILITY
from experiments.config.tree import parse_overrides, replaced
from experiments.errors import UserError, nearest_match
from taso_ext.onnx_io.session import Level
from worldmodel.config import DreamConfig, EncoderConfig, MdnRnnTrainingConfig, WorldModelConfig


def _require(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raises ValueError unless low ≤ value ≤ high; `config.tree.replaced` adds where the value came from."""
    if not low <= value <= high:
        expected = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise ValueError(f"'{name}' must be {expected}, but {value!r} came.")


MEASURED_COSTS = ("measured", "learned", "endtoend")
"""Kinds of cost models that measure on a device."""
OF_CONTROLLERS = ("graph_encoder", "policy", "ppo", "ppo_real", "mixed", "cmaes", "mpc", "mcts", "xrlflow", "sb3")
"""The sections of controllers that learn or plan."""
AUTO = "auto"
"""A device or a cost model that is chosen for this machine."""


@dataclasses.dataclass(frozen=True)
class EnvironmentConfig:
    """The Markov decision process: episodes of rewrites, and their rewards.

    Attributes:
      max_steps: largest number of rewrites in an episode; none: one for every six operators of the graph, at least 30.
      max_locations: largest number of locations of a rule; none: as many as the graph needs.
      everywhere: whether a rule can also be carried out everywhere it applies, as one step of an episode; the presets
        auto, demo and best have it.
      reward: name of the reward function, with parameters if it has any (`combined:alpha=0.7,beta=0.3`,
        `percent:every=10,bonus=0.1`), or a function of your own (`module:function`, which takes an
        `environment.rewards.Transition`).
    """

    max_steps: int | None = None
    max_locations: int | None = None
    everywhere: bool = False
    reward: str = "log_ratio"

    def __post_init__(self) -> None:
        if self.max_steps is not None:
            _require("max_steps", self.max_steps, 1)
        if self.max_locations is not None:
            _require("max_locations", self.max_locations, 1)


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    """The random episodes that the world model learns from.

    Attributes:
      episodes: number of episodes.
      steps: least number of rewrites in all episodes together, which then decides how many episodes there are instead
        of `episodes`. None: `episodes` decides.
      actions: how the world model names rewrites: by their site, or by their rank among the matches of their rule, as
        the published implementations do (`worldmodel.data.episodes`). Policies need "site".
      noop_probability: probability of ending the episode at each step; it is small, so that episodes are deep.
      everywhere_probability: probability that the drawn rule is carried out everywhere, if it has two matches; none: as
        likely as each of its sites. It has no effect without `environment.everywhere`.
      directed: share of the steps in which random play tries what pays, by the prices that the engine predicts, or what
        was seldom legal so far (`environment.policies.directed`).
      held_out: fraction of the episodes that the world model is measured on instead of trained on.
      processes: number of processes that play; the episodes do not depend on it.
    """

    episodes: int = 200
    steps: int | None = None
    actions: Literal["site", "rank"] = "site"
    noop_probability: float = 0.01
    everywhere_probability: float | None = EVERYWHERE_PROBABILITY
    directed: float = 0.0
    held_out: float = 0.1
    processes: int = 1

    def __post_init__(self) -> None:
        _require("episodes", self.episodes, 2)  # one to train on, one held out
        if self.steps is not None:
            _require("steps", self.steps, 1)
        _require("noop_probability", self.noop_probability, 0, 1)
        if self.everywhere_probability is not None:
            _require("everywhere_probability", self.everywhere_probability, 0, 1)
        _require("directed", self.directed, 0, 1)
        _require("held_out", self.held_out, 0, 0.9)
        _require("processes", self.processes, 1, 256)


@dataclasses.dataclass(frozen=True)
class RecollectConfig:
    """Rounds in which the world model also learns from real episodes of the policy, and a new policy is trained.

    Attributes:
      rounds: number of rounds; 0: the world model learns from random play only.
      episodes: number of real episodes of the policy that each round adds to all earlier episodes.
      dreamed: fraction of these episodes in which the policy carries out a plan that it has dreamed, without the
        rewrites that turn out to be illegal; in the others it sees the real states.
      searched: fraction of these episodes that likewise carry out a plan which a search has found in the dream, by beam
        search or by cross-entropy planning: both find mistakes of a dream that the policy has not found.
      omitted: share of the steps in which such an episode takes a rewrite that really pays and that the world model
        considers illegal there, if there is one; only as long as a round's dream offers less than 98 % of what pays.
      emphasis: what `world_model.mdn_rnn_training.mask_emphasis` is raised by, as long as it does.
      uncertain: share of the steps in which such an episode takes a rewrite on whose reward the members of an ensemble
        disagree (`world_model.mdn_rnn.ensemble`); the more they do, the likelier it is.
      steps: gradient steps of the MDN-RNN in each round; it starts from the weights of the round before.
      learning_rate: learning rate at the start of each round.
    """

    rounds: int = 0
    episodes: int = 100
    dreamed: float = 0.5
    searched: float = 0.0
    omitted: float = 0.0
    emphasis: float = 0.0
    uncertain: float = 0.0
    steps: int = 600
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        _require("rounds", self.rounds, 0, 99)
        _require("episodes", self.episodes, 1)
        _require("dreamed", self.dreamed, 0, 1)
        _require("searched", self.searched, 0, 1)
        if self.dreamed + self.searched > 1 + 1e-9:
            raise ValueError(
                f"'dreamed' and 'searched' are shares of the same episodes, but {self.dreamed:g} and {self.searched:g} "
                "came, which are more than all; lower one of them (recollect.searched=0 carries out no searched plans)"
            )
        _require("omitted", self.omitted, 0, 1)
        _require("emphasis", self.emphasis, 0)
        _require("uncertain", self.uncertain, 0, 1)
        _require("steps", self.steps, 1)
        _require("learning_rate", self.learning_rate, 0)


@dataclasses.dataclass(frozen=True)
class MixedConfig:
    """The world `mixed`: short dreams from real states that the policy itself reaches.

    Attributes:
      branch: the largest number of dreamed steps.
      refresh: number of updates between real episodes of the policy.
      episodes: number of real episodes each time.
    """

    branch: int = 10
    refresh: int = 20
    episodes: int = 8

    def __post_init__(self) -> None:
        _require("branch", self.branch, 1)
        _require("refresh", self.refresh, 1)
        _require("episodes", self.episodes, 1)


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """The episodes in the real environment after training.

    Attributes:
      sampled_episodes: number of sampled episodes, part (c) of the report, beside the one deterministic episode.
      sampling_temperature: temperature of the policy in the sampled episodes; 1 is the policy as it was trained.
      climb_seconds: limit of time of a climb by the clock after the episodes, if the clock chooses and the controller
        learns. It begins with the cheapest graphs that the run has found and looks around the fastest one. 0: these
        graphs alone race.
    """

    sampled_episodes: int = 20
    sampling_temperature: float = 1.0
    climb_seconds: float = 0.0

    def __post_init__(self) -> None:
        _require("sampled_episodes", self.sampled_episodes, 0)
        _require("climb_seconds", self.climb_seconds, 0)
        _require("sampling_temperature", self.sampling_temperature, 0.2)  # below it, logits leave the range of float32


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """The settings of the searches.

    Attributes:
      alpha: taso: a graph is searched further if it costs less than this factor times the best (1.05: as published).
      passes: taso: whether whole passes of rules are tried first. One search then goes on from their result and another
        one starts from the model. The three share the limit of time; each has the other limits below to itself.
      width: beam: number of graphs in a level.
      walk: restarts: number of random rewrites before each descent.
      budget: number of graphs to expand, of passes to try, or of episodes to play (best-of-n).
      seconds: limit of time; 0 means none. A run that this limit stops is not repeatable.
      rounds: largest number of searches if kernels are priced by measuring. After each search, the kernels that make
        its gain unsure are timed again, and with the new prices the next search may find another graph. The searches
        share the limit of time.
      retiming_seconds: limit of time for timing kernels again, in each round; 0: they are not timed again. What learns
        in the real environment also times the kernels of its best graph at each checkpoint, and whatever learns those
        of its best episodes after play.
      memory_mb: limit of the memory of the search, in MB.
      threads: number of threads of the search; the result does not depend on it.
    """

    alpha: float = 1.05
    passes: bool = False
    width: int = 16
    walk: int = 10
    budget: int = 1000
    seconds: float = 0.0
    rounds: int = 3
    retiming_seconds: float = 30.0
    memory_mb: int = 512
    threads: int = 1

    def __post_init__(self) -> None:
        _require("alpha", self.alpha, 1)
        _require("width", self.width, 1, 10**6)
        _require("walk", self.walk, 1, 10**6)
        _require("budget", self.budget, 1)
        _require("seconds", self.seconds, 0)
        _require("rounds", self.rounds, 1, 100)
        _require("retiming_seconds", self.retiming_seconds, 0)
        _require("memory_mb", self.memory_mb, 16, 2**20)
        _require("threads", self.threads, 1, 256)


@dataclasses.dataclass(frozen=True)
class VerifyConfig:
    """How outputs are compared with those of the original model, in ONNX Runtime.

    Attributes:
      num_inputs: number of random input sets beside the edge cases.
    """

    num_inputs: int = 4

    def __post_init__(self) -> None:
        _require("num_inputs", self.num_inputs, 2)  # one input set could not show that the outputs react


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True)
class MeasureConfig:
    """The end-to-end measurement.

    Attributes:
      resolution: the measurement ends once half the width of the ratio's interval is below this fraction of the ratio
        (0.01: one percent); none: only when the pairs or the time are used up.
      pairs: largest number of interleaved measurements of both models.
      seconds: limit of time; 0 means none.
      sessions: sessions of each model over which the pairs are spread, because sessions of identical bytes differ a
        little.
      control: whether the model is also measured against itself, which shows what the ratio is worth.
      threads: threads of ONNX Runtime, or `all`: as many as this process may use cores; 1 has the least noise.
      all_cores: whether the result is also measured, for the summary, with as many threads as there are cores, or with
        one if `threads` is already as many.
      level: level of ONNX Runtime's own graph optimisation, for both models.
      predict: whether `--costs measured` predicts the prices of kernels until something depends on them; if not, each
        kernel is timed when it is first met.
    """

    resolution: float | None = 0.01
    pairs: int = 24
    seconds: float = 0.0
    sessions: int = 3
    control: bool = True
    threads: int | Literal["all"] = 1
    all_cores: bool = False
    level: Level = "all"
    predict: bool = True

    def __post_init__(self) -> None:
        if self.resolution is not None:
            _require("resolution", self.resolution, 1e-4, 1)
        _require("pairs", self.pairs, 2)
        _require("seconds", self.seconds, 0)
        _require("sessions", self.sessions, 1)
        _require("threads", self.num_threads, 1)

    @property
    def num_threads(self) -> int:
        """The number of threads that `threads` stands for here."""
        return num_cores() if self.threads == "all" else self.threads


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """All settings of a run.

    Two runs with equal settings on one model and one machine have equal results, unless these depend on measured times.

    Attributes:
      controller: name of the controller, which picks the rewrites; `auto` is `climb`.
      world: where a controller that learns is trained: in the world model, in the real environment, or in short dreams
        from real states (mixed). auto: in the first of the worlds that the controller can learn in.
      options: the options of each controller of another package, by its name.
      graph_encoder: the encoder of policies that see the real graph and not z: those of ppo and mcts in the world
        `real`.
      costs: the cost model that is minimised. `endtoend:<device>` times whole graphs at the steps where the reward
        needs the cost, with the threads, level and resolution of `measure`; controllers that look ahead (greedy and the
        searches) then follow a roofline, and the graphs along the paths that they find are timed. `measured:<device>`
        sums the prices of kernels, with the threads and level of `measure`; a kernel that was never timed has a
        predicted price. `auto` is `measured` on the device, or `endtoend` where kernels cannot be seen; for controllers
        that learn, which would time too many graphs there, `roofline:rtx2070`. The path of a database of such prices,
        which ends in `.sqlite`, replays them and times no kernel; with `:kind=endtoend` it replays whole graphs. With
        `:noise=resampled` after any of these, rewards are made of costs that are drawn from recorded timings. With
        `:pairs=N` after `endtoend:<device>`, each graph is timed exactly N times. With `:timings=N`, at most N graphs
        are timed, in batches, and predicted prices of kernels agree with these timings. If the prices are of the device
        on which the result is measured, the clock has the last word on which graph is exported.
      device: the device on which the result is measured end to end; `auto` is the fastest kind that works here.
      rules: path of a rule file, or `default+partial`, the built-in rules with the optional family; none: the built-in
        rules.
      opset: whether rewrites may raise the model's opset.
      portable: whether rewrites into operators that only ONNX Runtime has are left out.
      max_growth: the largest size of the result's file, as a multiple of that of the model; files of up to
        `pipeline.result.export.SMALL_FILE` bytes are always small enough. Rewrites that need more are left out.
      only, skip: names of rules that alone are used, if there are any, and of rules that are not; * stands for any part
        of a name.
      dims: bindings `name=value` of symbolic dimensions, the sizes at which rewrites are chosen.
      symbolic: whether these dimensions stay symbolic in the result. auto: those do on whose sizes nothing in the
        rewritten graph depends; keep: rewrites that depend on one are left out, and the clean-up does not see the sizes
        either; fix: none does.
      clean: clean-up of the model before the search; every improvement is counted from its result.
      inputs: path of an npz file with inputs to verify and to time with.
      seed: the seed that determines every random draw.
      updates_per_checkpoint: number of updates of a learning controller between checkpoints, from which an interrupted
        training continues; fewer if a training would have less than ten checkpoints.
    """

    controller: str = "ppo"
    world: Literal["auto", "dream", "real", "mixed"] = "auto"
    costs: str = "roofline:rtx2070"
    device: str = "cpu"
    rules: str | None = None
    opset: Literal["raise", "keep"] = "raise"
    portable: bool = False
    max_growth: float = 1.5
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    symbolic: Literal["auto", "keep", "fix"] = "auto"
    clean: Literal["full", "basic", "none"] = "full"
    inputs: str | None = None
    seed: int = 0
    updates_per_checkpoint: int = 10
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    environment: EnvironmentConfig = EnvironmentConfig()
    collect: CollectConfig = CollectConfig()
    world_model: WorldModelConfig = WorldModelConfig()
    dream: DreamConfig = DreamConfig()
    recollect: RecollectConfig = RecollectConfig()
    graph_encoder: EncoderConfig = EncoderConfig()
    policy: PolicyConfig = PolicyConfig()
    ppo: PpoConfig = PpoConfig()
    ppo_real: PpoConfig = PpoConfig()
    mixed: MixedConfig = MixedConfig()
    cmaes: CmaesConfig = CmaesConfig()
    mpc: MpcConfig = MpcConfig()
    sb3: Sb3Config = Sb3Config()
    mcts: MctsConfig = MctsConfig()
    xrlflow: XrlflowConfig = XrlflowConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    search: SearchConfig = SearchConfig()
    saturation: SaturationConfig = SaturationConfig()
    verify: VerifyConfig = VerifyConfig()
    measure: MeasureConfig = MeasureConfig()

    def __post_init__(self) -> None:
        if self.controller != AUTO:
            require_name(self.controller)
            _require_own_name(self.controller)
            _require_world(self.world, self.controller)
        for name, options in self.options.items():
            require_options(name, options)
        if self.controller == "mpc":
            _require_telescoping(self.environment.reward, "a plan of mpc", "choose another controller")
        searches = self.uses_world_model and self.recollect.rounds > 0 and self.recollect.searched > 0
        if self.dream.telescoping and self.uses_world_model:
            remedy = f"set dream.telescoping=false{' and recollect.searched=0' * searches} too"
            _require_telescoping(self.environment.reward, "dream.telescoping", remedy)
        if searches:
            remedy = "set recollect.searched=0 too"
            _require_telescoping(self.environment.reward, "a search in the dream (recollect.searched)", remedy)
        if self.controller in ("ppo", "mcts") and self.uses_world_model:
            _require_no_pointer(self.policy.head)
        for name, share, use in (
            ("dream.pessimism", self.dream.pessimism, "to lower rewards by"),
            ("recollect.uncertain", self.recollect.uncertain, "to explore"),
        ):
            _require_doubt(name, share, use, self.world_model.mdn_rnn.ensemble)
        _require("max_growth", self.max_growth, 1)
        _require("updates_per_checkpoint", self.updates_per_checkpoint, 1)
        _require("seed", self.seed, 0, 2**31 - 1)

    @property
    def measures_costs(self) -> bool:
        """Whether costs are measured during the run, and therefore vary."""
        return self.costs.partition(":")[0] in MEASURED_COSTS

    @property
    def reward_telescopes(self) -> bool:
        """Whether rewards are differences of a cost, so that they add up to an improvement."""
        return rewards.find(self.environment.reward).telescopes

    def refit(self, omits: bool) -> MdnRnnTrainingConfig:
        """Returns how the MDN-RNN is trained in a round of recollection.

        Args:
          omits: whether the dream of the round before offers too few of the rewrites that pay.
        """
        training, rounds = self.world_model.mdn_rnn_training, self.recollect
        optimiser = dataclasses.replace(training.optimiser, learning_rate=rounds.learning_rate)
        emphasis = training.mask_emphasis + omits * rounds.emphasis
        return dataclasses.replace(training, steps=rounds.steps, optimiser=optimiser, mask_emphasis=emphasis)

    def bound_dims(self) -> dict[str, int]:
        """Returns the size of each dimension that `dims` binds."""
        return parse_dims(self.dims)

    @property
    def everywhere_probability(self) -> float | None:
        """How often random play carries out a rule everywhere, see `CollectConfig`; None without such actions."""
        return self.collect.everywhere_probability if self.environment.everywhere else None

    @property
    def learns_in(self) -> str:
        """The world in which the controller learns; empty if it learns nothing."""
        worlds = () if self.controller == AUTO else worlds_of(self.controller)
        if not worlds:
            return ""
        return worlds[0] if self.world == AUTO else self.world

    @property
    def uses_world_model(self) -> bool:
        """Whether the controller needs a world model, which recollection can improve."""
        return self.learns_in in ("dream", "mixed")

    @property
    def of_controller(self) -> Any:
        """The section of the controller's own settings; None if there is none."""
        real = "_real" if self.learns_in == "real" else ""
        name = self.controller.replace("-", "_")
        return getattr(self, f"{name}{real}", getattr(self, name, None))


_SETTINGS = frozenset(field.name for field in dataclasses.fields(RunConfig))


def _require_own_name(controller: str) -> None:
    """Raises ValueError if a controller of another package has the name of a setting, or of a section of settings."""
    setting = controller.replace("-", "_")
    if is_foreign(controller) and setting in _SETTINGS:
        raise ValueError(
            f"the controller '{controller}' of an installed package cannot be used, because its options could not be "
            f"told from the setting '{setting}'; its package has to register it under another name"
        )


def _require_world(world: str, controller: str) -> None:
    """Raises ValueError if the controller learns, but not in this world."""
    worlds = worlds_of(controller)
    if worlds and world not in (AUTO, *worlds):
        raise ValueError(f"'{controller}' learns in the world {' or '.join(worlds)}, but world={world} came")


def _require_telescoping(reward: str, relying: str, remedy: str) -> None:
    """Raises ValueError if a reward does not telescope, or is unknown, on which something relies."""
    if not rewards.find(reward).telescopes:
        known = ", ".join(name for name in rewards.names() if rewards.find(name).telescopes)
        raise ValueError(
            f"the reward '{reward}' does not add up to zero around a loop, or nobody can know whether it does, which "
            f"{relying} takes for granted; {remedy} (it holds for {known})."
        )


def _require_doubt(name: str, value: float, use: str, members: int) -> None:
    """Raises ValueError if a setting that lives on an ensemble's disagreement is used without an ensemble."""
    if value > 0 and members < 2:
        raise ValueError(
            f"{name} is {value:g}, but a world model of one member has no disagreement {use}; set "
            "world_model.mdn_rnn.ensemble=3 too (--ensemble 3), or leave it at 0"
        )


def _require_no_pointer(head: str) -> None:
    """Raises ValueError if a policy that is trained in a dream should read nodes."""
    if head == "pointer":
        raise ValueError(
            "policy.head is 'pointer', which scores rewrites by the embeddings of the nodes that they replace, and a "
            "dream has no nodes; set --world real too, or policy.head=hierarchical"
        )


def stored_config(stored: Mapping[str, Any], source: str, *, reward: object = None) -> RunConfig:
    """Returns the settings that the file of another run holds.

    Args:
      stored: the contents of the file.
      source: the name of the file, for messages.
      reward: the reward that the command itself names, if any.
    Raises:
      UserError: a setting is unknown or bad, or the reward is a function of a Python module that the command does not
        name. A file may not choose which modules this program imports.
    """
    section = stored.get("environment")
    chosen = section.get("reward") if isinstance(section, Mapping) else None
    if isinstance(chosen, str) and chosen != reward and rewards.is_imported(chosen):
        raise UserError(
            f"{source} names the function '{chosen}' of a Python module as the reward. A file may not choose what is "
            f"imported: if you trust this function, add --set environment.reward={chosen}"
        )
    of_world_model = stored.get("world_model")
    if "graph_encoder" not in stored and isinstance(of_world_model, Mapping):  # in older versions they were the same
        stored = {**stored, "graph_encoder": of_world_model.get("encoder", {})}
    try:
        return replaced(RunConfig(), stored, source)
    except UserError as error:
        raise UserError(
            f"{error} If another version of RLFlow has written this file, use that version, or repeat the run's "
            "command with this one."
        ) from error


def preset_names() -> list[str]:
    """Returns the sorted names of the presets that come with the package."""
    files = resources.files("experiments.config").joinpath("presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load_config(preset: str, options: Mapping[str, Any], assignments: Sequence[str] = ()) -> RunConfig:
    """Returns the default settings, changed by a preset, then by command line options, then by `--set` arguments.

    Args:
      preset: name of the preset.
      options: values of the command line, nested as `experiments.config.tree.replaced` takes them.
      assignments: `--set` arguments, such as `a.b=c`.
    Raises:
      UserError: an unknown preset or key, or a bad value.
    """
    if preset not in preset_names():
        raise UserError(f"There is no preset '{preset}'. {nearest_match(preset, preset_names())}")
    config = replaced(_preset(preset), options, "the command line")
    config = replaced(config, overrides(assignments), "--set")
    config.bound_dims()
    return config


def overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """Returns the values of `--set` arguments; a section that is named after a foreign controller holds its options.

    A setting stays one whatever is installed: a controller of its name is refused when it is asked for.

    Raises:
      UserError: see `parse_overrides`.
    """
    tree = parse_overrides(assignments)
    foreign = {name: tree.pop(name) for name in (foreign_names() & tree.keys()) - _SETTINGS}
    return {**tree, "options": {**tree.get("options", {}), **foreign}} if foreign else tree


def _preset(name: str) -> RunConfig:
    """Returns the settings of a preset: its changes to the preset that it extends, or else to the defaults."""
    values = tomllib.loads(resources.files("experiments.config").joinpath("presets", f"{name}.toml").read_text())
    base = values.pop("extends", None)
    return replaced(RunConfig() if base is None else _preset(base), values, f"preset {name}")


def parse_dims(bindings: Sequence[str]) -> dict[str, int]:
    """Returns the sizes of symbolic dimensions from `name=value` texts.

    Raises:
      UserError: a text has another form, its value is no positive integer, or two texts bind one dimension.
    """
    sizes: dict[str, int] = {}
    for name, size in map(_parse_dim, bindings):
        if sizes.setdefault(name, size) != size:
            raise UserError(f"--dim binds '{name}' to {sizes[name]} and to {size}: give one size for each dimension.")
    return sizes


def _parse_dim(binding: str) -> tuple[str, int]:
    name, equals, value = binding.partition("=")
    if not equals or not name or not value.isdecimal() or int(value) < 1:
        raise UserError(
            f"--dim expects name=value with a positive integer, for example --dim batch=1, but got '{binding}'."
        )
    return name, int(value)
