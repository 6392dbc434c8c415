"""The commands and the Python code of documentation pages, and the same commands at a scale that takes seconds.

A page's commands are the lines of its `sh` blocks, and of its indented blocks that begin with a program.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from controller.registry import worlds_of
from environment import zoo
from experiments.cli import build_parser
from experiments.reproduce.search.plays import SMALL
from experiments.request import one_by_one, parse_request
from tests.integration.tiny_run import TINY

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""The pages whose commands run."""
PACKAGES = ("controller", "environment", "experiments", "taso_ext", "worldmodel")
ROOMS = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "tests/fuzz/README.md",
    *sorted(page for name in PACKAGES for page in (ROOT / name).rglob("README.md") if "results" not in page.parts),
]
"""Further pages of the site with commands. What they optimise is run; the rest is checked to be known, and tests of the
packages run it: it records prices and finds rules."""
RECORDED = "FILE.sqlite"
"""The recorded prices that pages name."""

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
PROGRAM = re.compile(r"(\.venv/bin/)?(rlflow|make|pip|python3?) ")
SYMBOLIC = (
    '<ir_version: 8, opset_import: ["" : 17]> symbolic '
    "(float[batch, sequence, 8] x) => (float[batch, sequence, 8] y) { r = Relu(x)\n y = Relu(r) }"
)


class Command(NamedTuple):
    """A command of a page."""

    page: Path
    text: str

    @property
    def words(self) -> list[str]:
        """The words of the command without its comment; programs of the virtual environment by their names."""
        program, *others = shlex.split(self.text, comments=True)
        return [program.removeprefix(".venv/bin/"), *others]


def blocks(page: Path, kind: str) -> list[str]:
    """Returns the code blocks of a kind, "sh" or "python", in the order of the page."""
    text = page.read_text(encoding="utf-8")
    found = [code for language, code in FENCED.findall(text) if language == kind]
    if kind == "sh":
        indented = (match.replace("\n    ", "\n")[4:] for match in INDENTED.findall(FENCED.sub("", text)))
        found += [block for block in indented if PROGRAM.match(block)]
    return found


def commands(page: Path) -> list[Command]:
    """Returns the commands of a page in their order."""
    lines = (line for block in blocks(page, "sh") for line in block.splitlines())
    return [Command(page, line) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def at_smoke_scale(words: Sequence[str]) -> list[str]:
    """Returns the arguments of an `rlflow` command with the same names and options that takes seconds.

    Networks of the zoo become tiny, files and run directories that a page only mentions become such as are here, and
    training, timing and sweeps become short. The current directory must be one for the test alone.
    """
    subcommand, *others = (_small(word) for word in words[1:])
    if subcommand in ("optimise", "train"):
        return [subcommand, *_short_run(subcommand, others)]
    if subcommand == "reproduce":
        return [subcommand, *others, *([] if "--scale" in others else ["--scale", "smoke"])]
    if subcommand == "place":
        costs = ["--costs", "roofline:xeon", "--pairs", "2", "--force"] if "--devices" in others else []
        return [subcommand, *others, *costs, "--budget", "50"]
    if subcommand == "sweep" and others[0] != "show":
        return [subcommand, *(_few_values(word) for word in others), *_set(TINY)]
    if subcommand in ("zoo", "gradients") and "-o" in others:
        return [subcommand, *others, "--force"]
    return [subcommand, *others, *(_set(["measure.pairs=2"]) if subcommand == "check" else [])]


def _small(word: str) -> str:
    if re.fullmatch(r"runs/sweeps/.+-[0-9a-f]{8}", word):
        return str(newest("runs/sweeps/*"))
    if word in ("runs/RUN", "RUN"):
        return str(newest("runs/*/result.json").parent)
    if re.fullmatch(r"runs/[^/]+-[0-9a-f]{8}", word):  # pages name runs that have trained a controller
        return str(newest("runs/*/checkpoints/controller*").parents[1])
    if word.endswith((".onnx", ".npz")) and not Path(word).exists():
        _write(Path(word))
    return zoo.tiny(word) if zoo.contains(word) else word


def newest(pattern: str) -> Path:
    """Returns the newest file or folder of a pattern."""
    return max(Path().glob(pattern), key=lambda path: path.stat().st_mtime)


def _write(path: Path) -> None:
    """Writes a model, or inputs of one. The name says which: what a command is to write it then replaces."""
    model = zoo.build("bert-base-tiny" if "bert" in path.name else "squeezenet1.1-tiny")
    if path.suffix == ".onnx":
        onnx.save(model, path)
        return
    shape = [dimension.dim_value for dimension in model.graph.input[0].type.tensor_type.shape.dim]
    inputs: dict[str, Any] = {model.graph.input[0].name: np.ones(shape, np.float32)}
    np.savez(path, **inputs)


def _short_run(subcommand: str, others: list[str]) -> list[str]:
    if "--dim" in others:  # which only a model with symbolic dimensions has
        onnx.save(onnx.parser.parse_model(SYMBOLIC), "symbolic.onnx")
        others[0] = "symbolic.onnx"
    others += ["--force"] if subcommand == "optimise" and "--force" not in others else []
    if "--from" in others:
        return [*others, *_set(["measure.pairs=2", "evaluate.sampled_episodes=2", "collect.episodes=20"])]
    (options, *_) = one_by_one(build_parser().parse_args([subcommand, *others])) if subcommand == "optimise" else [None]
    config = parse_request(options or build_parser().parse_args([subcommand, *others])).config
    if config.controller == "climb":
        return [*others, "--time", "2", *_set(["measure.pairs=2", "measure.sessions=1"])]
    costs = [] if "--costs" in others else ["--costs", "roofline:rtx2070"]
    small = [setting for setting in SMALL if setting.startswith((f"{config.controller}.", "recollect."))]
    return [*others, *costs, *_set([*TINY, *small] if worlds_of(config.controller) else ["measure.pairs=2"])]


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _few_values(word: str) -> str:
    """Returns an axis of a sweep with two of its listed values, or with the first of a range."""
    name, is_axis, values = word.partition("=")
    if not is_axis or name == "costs":
        return word
    listed = values.split(",")
    return f"{name}={','.join(dict.fromkeys((listed[0], listed[len(listed) // 2]))).partition('..')[0]}"
