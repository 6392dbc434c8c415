"""`rlflow optimise --controller mcts`, on the exact engine and in a dream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import main
from tests.integration.test_train import MODEL, OTHER, PLAYING, SETTINGS

SMALL = ["environment.max_steps=4", "mcts.iterations=2", "mcts.warm_up=2", "mcts.games=2", "mcts.simulations=4"]
MORE = [part for setting in [*SMALL, "mcts.gradient_steps=1", "recollect.episodes=2"] for part in ("--set", setting)]


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("world", ["real", "dream"])
def test_it_optimises_in_the_world_that_is_named(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = ["--world", "dream"] if world == "dream" else []  # the engine is its default
    command = ["optimise", MODEL, "-o", "out.onnx", "--run-dir", "run", "--controller", "mcts", *named]
    assert main([*command, *SETTINGS, *MORE]) == 0
    result = json.loads(Path("run/result.json").read_text())
    assert (result["controller"], result["world"]) == ("mcts", world)
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["stage"] == "controller"]
    assert [line["step"] for line in trained] == [1, 2]
    assert {"return", "best_return", "policy_loss", "value_loss", "simulations", "evaluated"} <= trained[0].keys()
    best = Path("run/checkpoints/best_in_training.json")
    assert best.is_file() == (world == "real")


def test_a_pointer_searches_on_another_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The games that it has learned from stay where they were played."""
    monkeypatch.chdir(tmp_path)
    trained = ["train", "controller", MODEL, "--controller", "mcts", "--run-dir", "run", "--set", "policy.head=pointer"]
    assert main([*trained, *SETTINGS, *MORE]) == 0
    assert main(["optimise", OTHER, "-o", "out.onnx", "--run-dir", "other", "--from", "run", *PLAYING]) == 0
    stages = json.loads(Path("other/stages.json").read_text())
    assert "controller" not in stages and stages["evaluate"]["finished"]
