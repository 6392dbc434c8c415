"""The wheel holds all that the packages need, and runs without a checkout or a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("taso_ext", "environment", "worldmodel", "controller", "experiments")
DATA = ("*.py", "*.pyi", "py.typed", "*.rules", "*.toml", "page/browser/*")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a wheel built like that of `make wheel`; objects that are already compiled are used again."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["build", "--build-lib", str(folder / "files")]
    arguments = [*build, "bdist_wheel", "--bdist-dir", str(folder / "bdist"), "--dist-dir", str(folder)]
    subprocess.run([sys.executable, "setup.py", "-q", *arguments], cwd=ROOT, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the bin folder of a virtual environment with the wheel; its dependencies are those of the present one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    without_checkout = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "--disable-pip-version-check"], env=without_checkout, cwd=folder, check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def run(programs: Path, folder: Path, name: str, *arguments: str) -> str:
    """Runs a program of that environment, with no other on its path, and returns its standard output."""
    clean = {"PATH": str(programs), "HOME": str(folder), "CC": "false", "CXX": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
    clean |= {name: os.environ[name] for name in ("OMP_NUM_THREADS", "LANG") if name in os.environ}
    done = subprocess.run([programs / name, *arguments], cwd=folder, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
def test_the_wheel_holds_every_module_and_all_data(wheel: Path) -> None:
    paths = {path for package in PACKAGES for pattern in DATA for path in (ROOT / package).rglob(pattern)}
    needed = {path.relative_to(ROOT).as_posix() for path in paths if "results" not in path.parts}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert needed <= held, sorted(needed - held)
    others = {name for name in held - needed if not name.endswith((".so", ".md"))}
    assert not others, sorted(others)


@pytest.mark.full
def test_the_installed_command_runs_outside_of_the_checkout(programs: Path, tmp_path: Path) -> None:
    places = run(programs, tmp_path, "python", "-c", f"import {', '.join(PACKAGES)}; print(taso_ext.__file__)")
    assert Path(places.strip()).is_relative_to(programs.parent)
    output = ["-o", "out.onnx", "--run-dir", "run", "--set", "measure.pairs=2"]
    run(
        programs,
        tmp_path,
        "rlflow",
        "optimise",
        "squeezenet1.1-tiny",
        "--controller",
        "greedy",
        "--costs",
        "roofline:rtx2070",
        *output,
    )
    assert (tmp_path / "out.onnx").is_file()


@pytest.mark.full
def test_the_installed_command_verifies_rules(programs: Path, tmp_path: Path) -> None:
    rules = tmp_path / "identities.rules"
    rules.write_bytes((ROOT / "taso_ext" / "rules" / rules.name).read_bytes())
    chosen = ["--rule", "drop-double-negation", "--again", "--instances", "16"]
    assert "1 of 1 rules verified" in run(programs, tmp_path, "rlflow", "rules", "verify", rules.name, *chosen)
