"""The request of an `rlflow optimise` or `rlflow train` command, checked before any work."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from controller.registry import worlds_of
from experiments.config.effect import readers_of, reads, same_run, unread
from experiments.config.flags import flag_of, given_settings
from experiments.config.run import AUTO, MEASURED_COSTS, OF_CONTROLLERS, RunConfig, load_config
from experiments.config.tree import as_mapping
from experiments.errors import UserError
from experiments.output_file import require_not_read, require_writable, require_writable_directory
from experiments.runs.directory import RunDirectory
from taso_ext.onnx_io.model_file import data_file
from taso_ext.onnx_io.reading import external_files


@dataclasses.dataclass(frozen=True)
class Request:
    """The request of one command.

    Attributes:
      model: path of an ONNX file, or zoo name.
      output: the file to write, which has been checked to be writable; None if nothing is exported.
      config: all settings.
      run_directory: the directory of the run; None means one under `runs/`, named after the model and the settings.
      arguments: the command line, for the manifest.
      trained: run directory of the controller that plays; None if a controller is trained.
      restart: whether to remove what an earlier command has left in the run directory.
      costs_are_auto: whether the command leaves the cost model to the program.
      unread: settings of `--set` that the run does not read, as one list of settings for several controllers has them.
    """

    model: str
    output: Path | None
    config: RunConfig
    run_directory: Path | None
    arguments: tuple[str, ...]
    trained: Path | None = None
    restart: bool = False
    costs_are_auto: bool = False
    unread: tuple[str, ...] = ()


def one_by_one(options: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """Yields the options of each model of `rlflow optimise`: several models are written into a folder, by their names.

    Raises:
      UserError: OUT is a file, two models have one name, or a run directory is named for several models.
    """
    if len(options.models) == 1:
        yield argparse.Namespace(**{**vars(options), "model": options.models[0]})
        return
    names = [f"{Path(model).stem if model.endswith('.onnx') else model}.onnx" for model in options.models]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"Two models would be written to {options.output / name}. Optimise one of them by itself.")
    if options.run_dir is not None:
        raise UserError("--run-dir is for one model, but several came. Leave it out: each has a directory of its own.")
    if options.output.exists() and not options.output.is_dir():
        raise UserError(f"{options.output} is a file, but several models came. Name a folder to write them into.")
    for model, name in zip(options.models, names, strict=True):
        yield argparse.Namespace(**{**vars(options), "model": model, "output": options.output / name})


def parse_request(options: argparse.Namespace) -> Request:
    """Checks the options of the command line and returns the request.

    Raises:
      UserError: the command cannot work; raised before any work is done.
    """
    trained: Path | None = getattr(options, "trained", None)
    given = given_settings(options)
    if not options.preset and given.get("controller") == AUTO:  # the default preset chooses
        del given["controller"]
    if trained is None:
        config = load_config(options.preset or _default_preset(options, given), given, options.set)
    else:
        from experiments.pipeline.learning.trained import playing_config

        config = playing_config(trained, options.preset or "best", given, options.set)
    if given.get("recollect") and config.recollect.rounds and not config.uses_world_model:
        controller = f"{config.controller}{' --world real' * (config.learns_in == 'real')}"
        raise UserError(
            f"--recollect {config.recollect.rounds} is for a controller that is trained in a world model, which "
            f"--controller {controller} is not. Leave it out, or use --controller ppo --world dream."
        )
    costs_are_auto, config = config.costs == AUTO, resolved(config)
    for setting, value in given.get("search", {}).items():
        if not reads(config, setting):
            flag, readers = flag_of(f"search.{setting}").name, ", ".join(readers_of(setting))
            raise UserError(
                f"{flag} {value} is for {readers}, but the controller is '{config.controller}', which does not read "
                f"it. Leave it out."
            )
    output: Path | None = getattr(options, "output", None)
    if output is not None:
        require_writable(output, force=options.force)
        require_writable(data_file(output), force=True)
        _require_not_read(output, Path(options.model))
    require_writable_directory(options.run_dir or Path("runs"))
    if options.run_dir is not None:
        _require_free(options.run_dir, config, restart=options.restart)
    arguments = tuple(getattr(options, "arguments", ()))
    return Request(
        options.model,
        output,
        config,
        options.run_dir,
        arguments,
        trained,
        options.restart,
        costs_are_auto,
        unread(options.set, [config]),
    )


def _require_free(directory: Path, config: RunConfig, *, restart: bool) -> None:
    """Checks, before anything is loaded, that a run of these settings can be begun in a directory, or goes on there.

    Raises:
      UserError: it holds something else, or a run with other settings.
    """
    RunDirectory.require_none_or_run(directory)
    if restart or not RunDirectory.holds_run(directory):
        return
    begun = RunDirectory(directory, resumed=True)
    stored = begun.read_json("config.json")
    if isinstance(stored, dict) and stored:  # its fingerprint is compared when the model is loaded
        begun.require_config({**as_mapping(config), "fingerprint": stored.get("fingerprint")}, same_run)


OF_LEARNING = {"world", "environment", "collect", "world_model", "dream", "recollect", "evaluate", *OF_CONTROLLERS}
"""Settings, and sections of settings, that say how a controller learns and plays."""


def _default_preset(options: argparse.Namespace, given: Mapping[str, Any]) -> str:
    """Returns the preset of a command that names none.

    `rlflow optimise` chooses by the clock of this machine, unless the command names a controller, says how one is to
    learn, or names costs that are not those of this machine.
    """
    named = given.keys() | {each.partition("=")[0].partition(".")[0] for each in options.set}
    elsewhere = given.get("costs", AUTO).partition(":")[0] not in (AUTO, *MEASURED_COSTS)
    is_told = "controller" in named or OF_LEARNING & named or elsewhere
    return "best" if is_told or getattr(options, "output", None) is None else "auto"


def settings_of(options: argparse.Namespace) -> RunConfig:
    """Returns the settings of a command that needs no preset, with what `auto` stands for here."""
    return resolved(load_config("best", given_settings(options), options.set))


def resolved(config: RunConfig) -> RunConfig:
    """Returns the settings with the controller, the device and the costs that `auto` stands for on this machine.

    `endtoend:auto` and the like are costs of the device.
    """
    controller = "climb" if config.controller == AUTO else config.controller
    kind, *rest = config.costs.split(":")
    of_device = kind in MEASURED_COSTS and rest[:1] == [AUTO]
    if AUTO not in (config.device, config.costs) and not of_device:
        return dataclasses.replace(config, controller=controller)
    from environment.runtimes.onnx_runtime import best_device, kernel_devices

    device = best_device() if config.device == AUTO else config.device
    costs = config.costs
    if costs == AUTO:
        if device in kernel_devices():
            costs = f"measured:{device}"
        else:  # whole graphs are timed, which takes too long for the episodes that a policy learns from
            costs = "roofline:rtx2070" if worlds_of(controller) else f"endtoend:{device}"
    elif of_device:
        costs = ":".join([kind, device, *rest[1:]])
    return dataclasses.replace(config, controller=controller, device=device, costs=costs)


def _require_not_read(output: Path, model: Path) -> None:
    """Checks that neither OUT nor its data file is a file that the model is read from.

    Raises:
      UserError: one of them is.
    """
    written = [path for path in (output, data_file(output)) if path.exists()]
    if written and model.is_file():
        require_not_read(written, (model, *external_files(model)), str(model))
