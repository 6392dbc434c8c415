from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller import registry as base
from controller.interface import Controller
from controller.registry import UnknownControllerError


class Nameless(Controller):
    def act(self, observation: Any, *, deterministic: bool) -> int:
        return 0


BUILT_IN = (
    *("beam", "best-of-n", "climb", "cmaes", "greedy", "mcts", "mpc"),
    *("passes", "ppo", "random", "restarts", "saturation", "sb3", "taso"),
)


def test_built_in_controllers_are_named() -> None:
    assert set(BUILT_IN) <= set(base.names())


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_name_is_that_of_its_controller(name: str) -> None:
    assert base.factory(name).name == name


@pytest.mark.parametrize(("typo", "meant"), [("tasso", "taso"), ("gredy", "greedy"), ("PPO", "ppo")])
def test_an_unknown_name_is_refused_with_the_nearest_one(typo: str, meant: str) -> None:
    with pytest.raises(UnknownControllerError, match=f"Did you mean '{meant}'"):
        base.require_name(typo)


def test_a_name_like_no_other_lists_them_all() -> None:
    with pytest.raises(UnknownControllerError, match=", ".join(BUILT_IN)):
        base.factory("zzzzzzzz")


def test_other_packages_add_controllers_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint(
        "theirs", "controller.search.one_step:GreedyController", base.ENTRY_POINT_GROUP
    )
    found = importlib.metadata.EntryPoints([point])
    monkeypatch.setattr(base, "entry_points", lambda **selection: found.select(**selection))
    assert "theirs" in base.names()
    assert base.factory("theirs").__name__ == "GreedyController"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("no_such_module:Own", "raises ModuleNotFoundError: No module named 'no_such_module'"),
        ("controller.interface:NoSuchController", "raises AttributeError"),
        ("controller.registry:ENTRY_POINT_GROUP", "is 'rlflow.controllers', but a class or a function was expected"),
        ("controller.search.native:BeamController.act", "raises TypeError when it is called"),
        ("builtins:dict", "returns {}, which lacks .*train"),
        ("controller.interface:Controller", "raises TypeError when it is called"),
        ("tests.controller.test_registry:Nameless", "which lacks name of controller.Controller"),
    ],
)
def test_a_broken_package_is_named(value: str, fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = tmp_path / "theirs-1.2.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.2\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(f"[{base.ENTRY_POINT_GROUP}]\nmine = {value}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(base.BrokenControllerError, match=rf"'mine' of the package theirs 1\.2 cannot be used.*{fault}"):
        base.make("mine")


def test_controllers_without_networks_never_import_tensorflow() -> None:
    modules = ["interface", "evaluation", "records", "ppo.config"]
    modules += [f"search.{name}" for name in ("one_step", "native", "passes", "climb")]
    imports = "; ".join(f"import controller.{module}" for module in modules)
    program = f"import sys; {imports}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
