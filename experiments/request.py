"""What one `rlflow optimise` command asks for, checked as far as it can be without reading the model."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.config.run import RunConfig, load_config
from experiments.errors import UserError
from experiments.output_file import require_writable, require_writable_directory


@dataclasses.dataclass(frozen=True)
class Request:
    """
    Attributes:
      model: path or zoo name.
      output: the file to write; that it may be written has been checked.
      config: all settings.
      run_directory: where to leave the run; None: named after model and settings under `runs/`.
      arguments: the command line, for the manifest.
    """

    model: str
    output: Path
    config: RunConfig
    run_directory: Path | None
    arguments: tuple[str, ...]


def parse_request(options: argparse.Namespace, arguments: Sequence[str]) -> Request:
    """Checks the options of the command line.

    Raises:
      UserError: anything that cannot work, before any work is done.
    """
    config = load_config(options.preset or "best", _config_values(options), options.set)
    if options.recollect and not config.uses_world_model:
        controller = f"{config.controller}{' --world real' * (config.controller == 'ppo')}"
        raise UserError(
            f"--recollect {options.recollect} is for a controller that is trained in a world model, which --controller "
            f"{controller} is not. Leave it out, or use --controller ppo --world dream."
        )
    output: Path = options.output
    if output.exists() and Path(options.model).exists() and output.samefile(options.model):
        raise UserError(f"{output} is the model itself, which is never overwritten. Name another file with -o.")
    require_writable(output, force=options.force)
    require_writable_directory(options.run_dir or Path("runs"))
    return Request(options.model, output, config, options.run_dir, tuple(arguments))


def _config_values(options: argparse.Namespace) -> dict[str, Any]:
    """The options that were given, as values of a `RunConfig`."""
    names = ("controller", "world", "costs", "device", "rules", "opset", "portable", "clean", "inputs", "seed")
    values = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.temperature is not None:
        values["dream"] = {"temperature": options.temperature}
    if options.recollect is not None:
        values["recollect"] = {"rounds": options.recollect}
    values["world_model"] = _world_model_values(options)
    values["dims"] = sorted(options.dim)
    search = ("alpha", "width", "walk", "budget", "seconds", "memory_mb", "threads")
    values["search"] = {name: getattr(options, name) for name in search if getattr(options, name) is not None}
    return values


DISCRETE = {"latent": 512, "categories": 16}
"""Of the encoder, where `--dynamics discrete` is all that was said."""


def _world_model_values(options: argparse.Namespace) -> dict[str, Any]:
    names = ("dynamics", "reward_head", "ensemble")
    values: dict[str, Any] = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return {"mdn_rnn": values} | ({"encoder": DISCRETE} if options.dynamics == "discrete" else {})
