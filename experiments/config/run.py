"""All settings of a run, and where they come from: defaults, presets (`presets/*.toml`), options and `--set`.

If a roofline prices the graphs, budgets are counts and not seconds by default, so that one seed gives one result on
one machine.
"""

from __future__ import annotations

import dataclasses
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
from experiments.config.sections import (
    CollectConfig,
    EnvironmentConfig,
    EvaluateConfig,
    MeasureConfig,
    MixedConfig,
    RecollectConfig,
    SearchConfig,
    VerifyConfig,
    require_between,
)
from experiments.config.tree import parse_overrides, replaced
from experiments.errors import UserError, nearest_match
from worldmodel.config import DreamConfig, EncoderConfig, MdnRnnTrainingConfig, WorldModelConfig

MEASURED_COSTS = ("measured", "learned", "endtoend")
"""Kinds of cost models that measure on a device."""
OF_CONTROLLERS = ("graph_encoder", "policy", "ppo", "ppo_real", "mixed", "cmaes", "mpc", "mcts", "xrlflow", "sb3")
"""The sections of controllers that learn or plan."""
AUTO = "auto"
"""A device or a cost model that is chosen for this machine."""


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
        require_between("max_growth", self.max_growth, 1)
        require_between("updates_per_checkpoint", self.updates_per_checkpoint, 1)
        require_between("seed", self.seed, 0, 2**31 - 1)

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
    others = tree.keys() - _SETTINGS
    foreign = {name: tree.pop(name) for name in others & foreign_names()} if others else {}
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
