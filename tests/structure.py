"""Shows how the code is built, from its imports, and how many files three journeys pass: `python -m tests.structure`.

Prints tables and asserts nothing. `--static` leaves the journeys out; `--files` lists the files that each one passes.

Figures from imports count every import of an own module: at the top of a file, inside functions and under
TYPE_CHECKING, and names of modules in strings, since the command line imports its parts by name. Imports in tests do
not count.

A journey runs on a tiny model under `sys.setprofile`, in all threads of this process. It passes a file when a function
of that file is called. Code that runs because a module is imported does not count, and neither do generated methods of
dataclasses and named tuples. A link is a pair of files of which one calls the other.

The entry points of the journeys are the functions `model_journey`, `episode_journey` and `dream_journey` below;
whoever renames what they call has to update them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import os
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["taso_ext", "environment", "worldmodel", "controller", "experiments"]
SHORT, LONG = 50, 400
GRAPH = "squeezenet1.1-tiny"
COMMAND = "python -m tests.structure --out experiments/results/structure/table.md"


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--static", action="store_true", help="only what is read from the files")
    parser.add_argument("--files", action="store_true", help="list the files of each journey")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    lines = [*_packages(), "", *_figures(_modules())]
    if not asked.static:
        lines += ["", *_journeys(with_files=asked.files)]
    print("\n".join(lines))
    if asked.out:
        from taso_ext.files import write_text

        write_text(asked.out, "\n".join(["# How the code is built", "", f"`{COMMAND}`", "", *lines]) + "\n")


def _packages() -> Iterator[str]:
    yield from ("| part | files | lines | of code | mean lines |", "|---|---:|---:|---:|---:|")
    parts = {name: list((ROOT / name).rglob("*.py")) for name in PACKAGES}
    parts["all packages"] = [path for paths in parts.values() for path in paths]
    parts["taso_ext/src (C++)"] = [p for p in (ROOT / "taso_ext" / "src").rglob("*") if p.suffix in (".cpp", ".hpp")]
    parts["tests"] = list((ROOT / "tests").rglob("*.py"))
    for name, paths in parts.items():
        lines = sum(map(_num_lines, paths))
        code = sum(map(_num_code_lines, paths)) if all(path.suffix == ".py" for path in paths) else ""
        yield f"| {name} | {len(paths)} | {lines} | {code} | {lines / max(1, len(paths)):.0f} |"


def _num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _num_code_lines(path: Path) -> int:
    """Returns the lines that are neither empty nor comments nor docstrings."""
    text = path.read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {n for token in tokens if token.type not in _NO_CODE for n in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


_NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
)


def _figures(modules: dict[str, Path]) -> Iterator[str]:
    importers = importing_modules(modules)
    files = [(name, path) for name, path in modules.items() if path.name != "__init__.py"]
    single = [name for name, _ in files if len(importers[name]) == 1]
    short = [name for name, path in files if _num_lines(path) < SHORT]
    long = [f"{path.relative_to(ROOT)} ({_num_lines(path)})" for _, path in files if _num_lines(path) > LONG]
    folders = Counter(path.parent.relative_to(ROOT) for _, path in files)
    yield f"- modules: {len(files)} (`__init__.py` not counted)"
    yield f"- modules with a single importer: {len(single)}"
    yield f"- modules under {SHORT} lines: {len(short)}; both: {len({*short} & {*single})}"
    yield f"- folders with most files: {', '.join(f'{folder} ({count})' for folder, count in folders.most_common(3))}"
    yield f"- files over {LONG} lines: {len(long)}{': ' * bool(long)}{', '.join(long)}"


def _modules() -> dict[str, Path]:
    """Returns the own modules by dotted name; packages have the name of their folder."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def importing_modules(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Returns, for each module, the modules that import it."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for imported in _imported(ast.parse(path.read_text()), modules):
            if imported != name:
                importers[imported].add(name)
    return importers


def _imported(tree: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules else node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield from {node.value.partition(":")[0]} & modules.keys()


class Journey:
    """A record of the own files that are passed while it is entered; it can be entered several times.

    Attributes:
      files: paths from the root of the checkout, in the order in which they were passed first.
      links: pairs of files, caller and called.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.links: set[tuple[str, str]] = set()
        self._own: dict[CodeType, str | None] = {}

    def __enter__(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # the stub does not know that None takes it back

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or (called := self._file(frame.f_code)) is None:
            return
        caller = frame.f_back
        while caller is not None and self._file(caller.f_code) is None:
            caller = caller.f_back
        if called not in self.files:
            if _is_import(frame):
                return
            self.files[called] = None
        if caller is not None and (start := self._file(caller.f_code)) in self.files and start != called:
            self.links.add((str(start), called))

    def _file(self, code: CodeType) -> str | None:
        """Returns the own file of a function; None for the code of others, and of modules and classes themselves."""
        if code not in self._own:
            path = Path(code.co_filename)
            is_own = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
            self._own[code] = str(path.relative_to(ROOT)) if is_own and is_function else None
        return self._own[code]


def _is_import(frame: FrameType | None) -> bool:
    """Returns whether a call happens because an own module is being imported."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and any(Path(code.co_filename).is_relative_to(ROOT / name) for name in PACKAGES):
            return True
        frame = frame.f_back
    return False


def _journeys(*, with_files: bool) -> Iterator[str]:
    journeys = {
        "a model: `rlflow optimise` with the greedy search, to the end of the command": model_journey,
        "an episode: from the environment's reset to a batch of the dynamics' training": episode_journey,
        "a dreamed step: one update of PPO in the dream, tracing included": dream_journey,
    }
    with tempfile.TemporaryDirectory() as folder:
        found = {name: run(Path(folder)) for name, run in journeys.items()}
    yield from ("| journey | files | links |", "|---|---:|---:|")
    for name, journey in found.items():
        yield f"| {name} | {len(journey.files)} | {len(journey.links)} |"
    for name, journey in found.items() if with_files else ():
        yield from ("", f"{name}:", *(f"  {path}" for path in journey.files))


def model_journey(folder: Path) -> Journey:
    """Runs the whole command, measuring included."""
    from experiments.cli import main as rlflow

    journey = Journey()
    arguments = [
        "optimise",
        GRAPH,
        "-o",
        str(folder / "out.onnx"),
        "--controller",
        "greedy",
        "--costs",
        "roofline:rtx2070",
    ]
    with contextlib.redirect_stdout(io.StringIO()) as output, journey:
        status = rlflow([*arguments, "--run-dir", str(folder / "run"), "--set", "measure.pairs=2"])
    if status != 0:
        raise RuntimeError(f"expected the command to succeed, but it ended with {status}:\n{output.getvalue()}")
    return journey


def episode_journey(folder: Path) -> Journey:
    """Collects two episodes to a file and makes a batch of them; building networks and encoding graphs do not count."""
    from environment.policies.random import RandomAgent
    from worldmodel.data.collection import Collection, collect_shards
    from worldmodel.dynamics.training import GraphData

    journey = Journey()
    env = _environment()
    with journey:
        agent, directory = RandomAgent(0), folder / "episodes"
        collection = Collection(lambda: env, lambda _: agent, episodes=2, seed=0, directory=directory)
        episodes = collect_shards(collection)
        (part,) = episodes.by_start().values()
        part.action_table()
    model = _world_model(env, episodes)
    model.episode_data(part)  # encodes the graphs; the model keeps the latents
    with journey:
        data = GraphData(model.inputs(model.start_graph()), model.episode_data(part))
        data.episodes.trajectory([0, 1])
    return journey


def dream_journey(folder: Path) -> Journey:
    """Dreams one rollout and updates the policy once with it."""
    from controller.policies.latent import LatentPolicy
    from controller.ppo.config import PolicyConfig, PpoConfig
    from controller.ppo.learner import PpoLearner
    from environment.policies.random import RandomAgent
    from worldmodel.data.episodes import collect
    from worldmodel.dream.dream_env import DreamEnv

    env = _environment()
    episodes = collect(env, RandomAgent(0), 2, 0)
    model = _world_model(env, episodes)
    dream = DreamEnv.of_episodes(model, episodes)
    policy = LatentPolicy.for_world_model(model, config=PolicyConfig(), seed=0)
    learner = PpoLearner(policy, PpoConfig(), seed=0)
    journey = Journey()
    with journey:
        learner.update(dream.rollout(policy, batch=4, horizon=5, seed=0))
    return journey


def _environment() -> Any:
    from environment import GraphSubstitutionEnv

    return GraphSubstitutionEnv(GRAPH)


def _world_model(env: Any, episodes: Any) -> Any:
    """Returns a world model after one gradient step of each of its parts."""
    from dataclasses import replace

    from experiments.config.run import load_config
    from worldmodel.fitting import fit
    from worldmodel.signature import Signature

    sizes = load_config("demo", {}).world_model
    config = replace(
        sizes,
        encoder_training=replace(sizes.encoder_training, steps=1),
        mdn_rnn_training=replace(sizes.mdn_rnn_training, steps=1),
    )
    return fit(episodes, Signature.of(env), config, seed=0)


if __name__ == "__main__":
    for variable, value in {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}.items():
        os.environ.setdefault(variable, value)
    main()
