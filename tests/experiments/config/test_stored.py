"""Settings that come from the file of another run: it decides nothing that only the user may decide."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from environment import rewards
from experiments.cli import main
from experiments.config.run import RunConfig, stored_config
from experiments.config.tree import as_mapping
from experiments.errors import UserError


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A reward in a module that leaves a file when it is imported."""
    (tmp_path / "hostile_module.py").write_text(
        f"open({str(tmp_path / 'was imported')!r}, 'w').close()\ndef reward(transition): return 0.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hostile_module", raising=False)
    return "hostile_module:reward"


def test_a_run_directory_cannot_have_a_module_imported(
    hostile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored = as_mapping(RunConfig())
    stored["environment"]["reward"] = hostile
    stored["dream"]["telescoping"] = True  # which is looked up when settings are read
    Path("theirs").mkdir()
    Path("theirs/config.json").write_text(json.dumps(stored))
    assert main(["optimise", "squeezenet1.1-tiny", "-o", "out.onnx", "--from", "theirs"]) == 2
    assert f"add --set environment.reward={hostile}" in capsys.readouterr().err
    assert not Path("was imported").exists() and not Path("out.onnx").exists()
    with pytest.raises(UserError, match="telescoping"):
        stored_config(stored, "theirs/config.json", reward=hostile)
    assert Path("was imported").exists()  # so the test would have seen it


@pytest.mark.parametrize("reward", rewards.names())
def test_built_in_rewards_are_taken_from_a_file(reward: str) -> None:
    stored = as_mapping(RunConfig())
    stored["environment"]["reward"] = reward
    stored["dream"]["telescoping"] = False
    assert stored_config(stored, "config.json").environment.reward == reward


def test_before_graphs_had_an_encoder_of_their_own_it_was_that_of_the_world_model() -> None:
    stored = as_mapping(RunConfig())
    del stored["graph_encoder"]
    stored["world_model"]["encoder"]["rounds"] = 3
    assert stored_config(stored, "config.json").graph_encoder.rounds == 3


def test_a_setting_of_another_form_is_no_traceback() -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        stored_config({"environment": ["reward"]}, "config.json")


def test_a_setting_that_is_no_longer_known_says_what_to_do() -> None:
    with pytest.raises(UserError, match=r"'ppo.adam_epsilon' in config.json.* use that version, or repeat the run's"):
        stored_config({"ppo": {"adam_epsilon": 1e-5}}, "config.json")
