"""Imports go only downwards, and what must start fast never imports TensorFlow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ["taso_ext", "environment", "worldmodel", "controller", "experiments"]  # lowest first
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imported_packages(source: str) -> Iterator[str]:
    """Yields the top-level names of all imports in a file, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_imports_go_only_downwards() -> None:
    for path in FILES:
        package = path.relative_to(ROOT).parts[0]
        above = {*PACKAGES[PACKAGES.index(package) + 1 :], "tests", "notebooks"}
        assert not set(imported_packages(path.read_text())) & above, path


def test_rooms_of_the_pipeline_import_only_from_those_above() -> None:
    rooms = ["loading", "result", "clock", "learning"]  # as the package lists them
    pipeline = ROOT / "experiments" / "pipeline"
    assert {path.parent.name for path in pipeline.glob("*/*.py")} == set(rooms)
    for number, room in enumerate(rooms):
        for path in (pipeline / room).glob("*.py"):
            modules = re.findall(r"^\s*from experiments\.pipeline\.(\w+)[ .]", path.read_text(), flags=re.MULTILINE)
            assert set(modules) <= set(rooms[: number + 1]), path


def test_the_tests_that_the_security_page_names_exist() -> None:
    named = re.findall(r"`(tests/[\w./-]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) >= 20
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_package_is_there() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(PACKAGES)


def test_no_module_is_named_for_nothing() -> None:
    for path in FILES:
        assert not {"utils", "helpers", "manager", "misc", "common"} & {path.stem, *path.relative_to(ROOT).parts}, path


def imports_tensorflow(code: str) -> bool:
    """Returns whether a fresh interpreter has TensorFlow loaded after `code`."""
    check = f"import sys\n{code}\nsys.exit(3 if 'tensorflow' in sys.modules else 0)"
    status = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True)
    assert status.returncode in (0, 3), status.stderr
    return status.returncode == 3


def test_the_check_notices_tensorflow() -> None:
    """Otherwise the tests below could not fail; a stand-in module saves the seconds of the real import."""
    assert imports_tensorflow("sys.modules['tensorflow'] = sys")


LIGHT_MODULES = [
    "taso_ext",
    "taso_ext.onnx_io.model",
    "environment",
    "environment.zoo",
    "environment.verification",
    "environment.runtimes",
    "environment.measurement.timing",
    "environment.measurement.memory",
    "environment.placement",
    "worldmodel",
    "controller",
    "controller.interface",
    "controller.search.one_step",
    "controller.search.native",
    "controller.evaluation",
    "controller.placement.annealing",
    "controller.sb3.controller",
    "controller.worlds.real",
    "experiments.cli",
    "experiments.pipeline.optimise",
    "experiments.placement.divided",
    "experiments.placement.simulated",
    "experiments.reproduce.world_model.accuracy",
    "experiments.reproduce.world_model.curve",
    "experiments.reproduce.world_model.comparisons",
    "experiments.reproduce.world_model.mechanisms",
    "experiments.reports.accuracy_plots",
]


def test_light_modules_do_not_import_tensorflow() -> None:
    assert not imports_tensorflow("\n".join(f"import {module}" for module in LIGHT_MODULES))


def test_help_imports_nothing_heavy() -> None:
    code = (
        "from experiments.cli import main\n"
        "commands = [[], ['optimise'], ['train', 'controller'], ['rules', 'verify'], ['costs', 'show']]\n"
        "commands += [['reproduce'], ['report'], ['place']]\n"
        "for command in commands:\n"
        "    try:\n        main([*command, '--help'])\n    except SystemExit:\n        pass\n"
        "heavy = {'tensorflow', 'numpy', 'onnx', 'onnxruntime', 'rich', 'matplotlib', 'gymnasium'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert not imports_tensorflow(code)


def test_taso_does_not_import_tensorflow(tmp_path: Path) -> None:
    arguments = [
        "optimise",
        "squeezenet1.1-tiny",
        "-o",
        str(tmp_path / "out.onnx"),
        "--controller",
        "taso",
        "--costs",
        "roofline:rtx2070",
    ]
    arguments += ["--budget", "3", "--run-dir", str(tmp_path / "run"), "--set", "measure.pairs=2"]
    assert not imports_tensorflow(f"from experiments.cli import main\nassert main({arguments!r}) == 0")
