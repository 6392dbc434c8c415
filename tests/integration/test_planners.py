"""The controllers that learn or plan beside ppo, by the command line: `cmaes`, `mpc`, `best-of-n` and `sb3`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from experiments.cli import main
from tests.integration.test_train import MODEL, SETTINGS

SMALL = {
    "cmaes": ["cmaes.generations=2", "cmaes.population=4", "cmaes.rollouts=1", "cmaes.horizon=6"],
    "mpc": ["mpc.plans=8", "mpc.elites=2", "mpc.iterations=1", "mpc.horizon=3", "mpc.replan=3"],
    "best-of-n": ["search.budget=20"],
}


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untraced: None) -> None:
    monkeypatch.chdir(tmp_path)


def optimise(controller: str, *more: str) -> int:
    asked = ["optimise", MODEL, "-o", "out.onnx", "--force", "--run-dir", "run", "--controller", controller, *SETTINGS]
    return main([*asked, *(part for setting in (*SMALL.get(controller, ()), *more) for part in ("--set", setting))])


@pytest.mark.parametrize("controller", SMALL)
def test_it_is_trained_and_plays(controller: str) -> None:
    assert optimise(controller, "evaluate.sampled_episodes=1") == 0
    result = json.loads(Path("run/result.json").read_text())
    assert result["controller"] == controller
    assert result["world"] == ("" if controller == "best-of-n" else "dream")
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    learned = [line for line in lines if line["stage"] == "controller"]
    assert len(learned) == {"cmaes": 2, "mpc": 0, "best-of-n": 20}[controller]
    if controller != "best-of-n":
        assert result["rounds"][0]["plans"]["episodes"] == 20  # dream against reality


@pytest.mark.parametrize(
    ("controller", "wrong", "said"),
    [
        ("cmaes", "cmaes.population=1", "population of 1 cannot be ranked"),
        ("mpc", "mpc.plan=7", "mpc.plan"),
        ("mpc", "mpc.replan=9", "replan is 9, but plans end after 3 steps"),
        ("sb3", "sb3.steps=100", "100 steps are no multiple"),
    ],
)
def test_senseless_settings_are_refused(
    controller: str, wrong: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert optimise(controller, wrong) == 2
    assert said in capsys.readouterr().err and not Path("out.onnx").exists()


def test_plans_need_rewards_that_telescope(capsys: pytest.CaptureFixture[str]) -> None:
    assert optimise("mpc", "environment.reward=final", "dream.telescoping=false") == 2
    assert "a plan of mpc takes for granted; choose another controller" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("sb3_contrib") is not None, reason="sb3-contrib is installed")
def test_without_sb3_one_sentence_says_how_to_install_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert optimise("sb3") == 2
    said = capsys.readouterr().err
    assert "pip install 'rlflow[sb3]'" in said and "Traceback" not in said
