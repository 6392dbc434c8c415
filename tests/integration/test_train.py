"""`rlflow train` part by part, then `rlflow optimise` from there, and `--from` on this and on another graph."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.runs.result import dream_alarms
from tests import tracing

pytestmark = pytest.mark.xdist_group("train")  # one worker: the run is made once

MODEL, OTHER = "squeezenet1.1-tiny", "bert-base-tiny"
TINY = [
    *("environment.max_steps=8", "collect.episodes=60", "measure.pairs=2", "evaluate.sampled_episodes=2"),
    *("world_model.encoder.rounds=1", "world_model.encoder.hidden=8", "world_model.encoder.latent=4"),
    *("graph_encoder.rounds=1", "graph_encoder.hidden=8", "graph_encoder.latent=4"),
    *("world_model.encoder_training.steps=4", "world_model.encoder_training.batch=4"),
    *("world_model.mdn_rnn.hidden=16", "world_model.mdn_rnn.mixtures=2", "world_model.mdn_rnn_training.steps=4"),
    "world_model.mdn_rnn_training.batch=4",
    *("recollect.rounds=0", "ppo.updates=2", "ppo.batch=4", "ppo.horizon=6", "ppo.epochs=1", "ppo.minibatches=1"),
    "policy.torso=[16]",
    *("ppo_real.updates=1", "ppo_real.batch=2", "ppo_real.horizon=4"),
    "dream.legality=predicted",  # so that dreams omit something
]
COSTS = ["--costs", "roofline:rtx2070"]
SETTINGS = [*COSTS, *(part for setting in TINY for part in ("--set", setting))]
PLAYING = [*COSTS, "--set", "measure.pairs=2", "--set", "evaluate.sampled_episodes=2"]
FEW = [*PLAYING, "--set", "collect.episodes=20"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


@pytest.fixture(autouse=True)
def there(place: Path, monkeypatch: pytest.MonkeyPatch, untraced: None) -> None:
    monkeypatch.chdir(place)


def run_with(part: str) -> Path:
    """The only run below `runs/` that holds a checkpoint."""
    (found,) = Path("runs").glob(f"*/checkpoints/{part}")
    return found.parents[1].resolve()


@pytest.fixture(scope="module")
def world_model(place: Path) -> Path:
    """The run directory after its world model was trained."""
    with pytest.MonkeyPatch.context() as patch, tracing.untraced():
        patch.chdir(place)
        assert main(["train", "world-model", MODEL, *SETTINGS]) == 0
        return run_with("world_model")


@pytest.fixture(scope="module")
def trained(place: Path, world_model: Path) -> Path:
    """The same after its controller was trained too."""
    copy = place / "only-the-world-model"
    shutil.copytree(world_model, copy)
    with pytest.MonkeyPatch.context() as patch, tracing.untraced():
        patch.chdir(place)
        patch.setattr("worldmodel.fitting.fit", lambda *_, **__: pytest.fail("trained again"))
        assert main(["train", "controller", MODEL, *SETTINGS]) == 0
    return world_model


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error.strip().splitlines()[-1]


def test_a_training_stops_after_its_part(place: Path, trained: Path) -> None:
    before = place / "only-the-world-model" / "checkpoints"
    assert (before / "accuracy.json").is_file() and not (before / "controller").exists()
    assert {"controller", "exploit.json"} <= {path.name for path in (trained / "checkpoints").iterdir()}
    assert not (trained / "result.json").exists() and not (trained / "DONE").exists()


def test_the_same_command_repeats_the_summary(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "controller", MODEL, *SETTINGS]) == 0
    printed = capsys.readouterr().out
    row = json.loads((trained / "checkpoints/exploit.json").read_text())
    assert "world model on held-out episodes" in printed and "dream and reality" in printed
    assert f"{row['dreamed_percent']:.3f}" in printed and str(trained.name) in printed
    accuracy = json.loads((trained / "checkpoints/accuracy.json").read_text())
    alarms = dream_alarms(accuracy, row, 0)
    assert alarms and all(alarm in printed for alarm in alarms), "so small a model omits most rewrites"
    took = re.search(r"It took ([\d,]+) real steps, ([\d,]+) dreamed steps", printed)
    assert took and all(int(count.replace(",", "")) > 0 for count in took.groups())
    assert main(["train", "world-model", MODEL, *SETTINGS]) == 0
    printed = capsys.readouterr().out
    assert "world model on held-out episodes" in printed and "dream and reality" not in printed


def test_optimise_goes_on_from_there(place: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = place / "goes-on"
    shutil.copytree(trained, run)
    for name in ("fit", "refit"):
        monkeypatch.setattr(f"worldmodel.fitting.{name}", lambda *_, **__: pytest.fail("trained again"))
    assert main(["optimise", MODEL, "-o", "out.onnx", "--run-dir", str(run), *SETTINGS]) == 0
    assert Path("out.onnx").is_file() and (run / "DONE").is_file()


def test_a_controller_plays_again_on_its_graph(trained: Path) -> None:
    """With other episodes than those of its own run; nothing is collected or trained."""
    arguments = ["optimise", MODEL, "-o", "again.onnx", "--run-dir", "again", "--from", str(trained), "--seed", "5"]
    assert main([*arguments, *PLAYING]) == 0
    stages = json.loads(Path("again/stages.json").read_text())
    assert not {"collect", "encoder", "mdn-rnn", "controller"} & set(stages) and stages["evaluate"]["finished"]
    result = json.loads(Path("again/result.json").read_text())
    assert [source[:3] for source in result["improvements"]] == ["(b)", "(c)", "(d)"] and Path("again.onnx").is_file()


def test_it_plays_as_in_its_own_run(place: Path, trained: Path) -> None:
    """The deterministic episode is the controller's alone: no seed is part of it."""
    own = place / "own"
    shutil.copytree(trained, own)
    assert main(["optimise", MODEL, "-o", "own.onnx", "--run-dir", str(own), *SETTINGS]) == 0
    arguments = ["optimise", MODEL, "-o", "from.onnx", "--run-dir", "from", "--from", str(trained), *PLAYING]
    assert main([*arguments, "--set", "environment.max_steps=8"]) == 0
    episodes = [
        json.loads((run / "checkpoints/evaluation.json").read_text())["deterministic"]["actions"]
        for run in (own, Path("from"))
    ]
    assert episodes[0] == episodes[1]


def test_a_controller_adapts_to_another_graph(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fit", "refit"):
        monkeypatch.setattr(f"worldmodel.fitting.{name}", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr("controller.ppo.controller.PpoController.train", lambda *_, **__: pytest.fail("trained"))
    arguments = ["optimise", OTHER, "-o", "other.onnx", "--run-dir", "other", "--from", str(trained)]
    assert main([*arguments, *FEW]) == 0
    result = json.loads(Path("other/result.json").read_text())
    assert [source[:3] for source in result["improvements"]] == ["(a)", "(b)", "(c)", "(d)"]
    assert result["episodes"]["(a) random collection"] == 20 and result["controller"] == "ppo"
    episode = json.loads(Path("other/checkpoints/evaluation.json").read_text())["deterministic"]
    assert len(episode["actions"]) > 0


def test_a_controller_adapts_to_other_costs(trained: Path) -> None:
    arguments = ["optimise", MODEL, "-o", "v100.onnx", "--run-dir", "v100", "--from", str(trained)]
    assert main([*arguments, *FEW, "--costs", "roofline:v100"]) == 0
    result = json.loads(Path("v100/result.json").read_text())
    assert result["costs"] == "roofline:v100" and result["episodes"]["(a) random collection"] == 20


def test_what_holds_no_trained_controller_is_said(
    place: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(run: Path, *more: str) -> str:
        return failure(capsys, "optimise", MODEL, "-o", "never.onnx", "--from", str(run), *more)

    assert "no run directory" in said(place / "nowhere")
    assert "training is not finished" in said(place / "only-the-world-model")
    assert main(["optimise", MODEL, "-o", "g.onnx", "--controller", "greedy", "--run-dir", "greedy", *PLAYING]) == 0
    assert "'greedy', which does not learn" in said(Path("greedy"))
    assert not Path("never.onnx").exists()


def test_other_settings_rules_and_features_are_said(
    place: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(run: Path, *more: str) -> str:
        return failure(capsys, "optimise", MODEL, "-o", "never.onnx", "--from", str(run), *more)

    assert "world_model.encoder.latent was 4, now 8" in said(trained, "--set", "world_model.encoder.latent=8")
    assert "controller was 'ppo', now 'taso'" in said(trained, "--controller", "taso")
    assert "under other rules" in said(trained, "--portable")
    changed = place / "other-features"
    shutil.copytree(trained, changed)
    config = json.loads((changed / "config.json").read_text())
    config["fingerprint"]["features"] = "0" * 16
    (changed / "config.json").write_text(json.dumps(config))
    assert "under other features" in said(changed)
    config["fingerprint"] |= {"features": json.loads((trained / "config.json").read_text())["fingerprint"]["features"]}
    config["fingerprint"]["formats"]["world_model"] = 1
    (changed / "config.json").write_text(json.dumps(config))
    assert "under other formats" in said(changed)


def test_a_controller_trained_for_real_knows_its_graph_only(capsys: pytest.CaptureFixture[str]) -> None:
    real = ["train", "controller", MODEL, "--world", "real", "--run-dir", "real", *SETTINGS]
    assert main(real) == 0
    said = capsys.readouterr().out
    assert "best real episode" in said and "mean improvement of the last update" in said and "return" not in said
    assert main(["optimise", MODEL, "-o", "real.onnx", "--run-dir", "real-again", "--from", "real", *PLAYING]) == 0
    assert "real environment of another graph" in failure(
        capsys, "optimise", OTHER, "-o", "never.onnx", "--from", "real", *PLAYING
    )


def test_a_pointer_that_was_trained_for_real_plays_on_another_graph() -> None:
    real = ["train", "controller", MODEL, "--world", "real", "--run-dir", "pointer", "--set", "policy.head=pointer"]
    assert main([*real, *SETTINGS]) == 0
    assert main(["optimise", OTHER, "-o", "played.onnx", "--run-dir", "elsewhere", "--from", "pointer", *PLAYING]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "controller", MODEL, "--controller", "taso"], "--controller taso does not"),
        (["train", "world-model", MODEL, "--world", "real"], "no world model to train"),
        (["train", "world-model", "squeezenet1.1-tini"], "squeezenet1.1-tiny"),
        (["train", "controller", MODEL, "--preset", "demmo"], "demo"),
    ],
)
def test_what_cannot_be_trained_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in failure(capsys, *arguments)
