"""`import environment` is light, and `environment.make` builds environments from names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import onnx
import pytest

import environment
from environment import zoo

HEAVY = ("tensorflow", "onnxruntime", "scipy", "onnxscript", "onnx")


def loaded_after(code: str) -> set[str]:
    """Returns which of the heavy modules a fresh interpreter has loaded after `code`."""
    check = f"import sys\n{code}\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import environment\ndir(environment)") == set()
    assert loaded_after("import environment.costs, environment.statistics") == set()
    assert "onnxruntime" in loaded_after("import environment\nenvironment.costs.find")  # so the test can fail


def test_an_environment_is_made_from_names(tmp_path: Path) -> None:
    env = environment.make("squeezenet1.1-tiny", costs="roofline:v100", reward="percent:every=3", max_steps=7)
    assert isinstance(env, environment.GraphSubstitutionEnv)
    assert (env.costs.name, env.reward.period, env.max_steps) == ("roofline:v100", 3, 7)
    onnx.save(zoo.build("squeezenet1.1-tiny"), tmp_path / "model.onnx")
    for path in (tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        assert environment.make(path, strict=True).model.graph.hash == env.model.graph.hash


def test_gymnasium_makes_the_same_environment() -> None:
    env = gymnasium.make("rlflow/GraphSubstitution-v0", graph="squeezenet1.1-tiny", disable_env_checker=True)
    assert env.unwrapped.__class__ is environment.GraphSubstitutionEnv


def test_every_public_name_is_there_and_others_are_an_error() -> None:
    for module in (environment, environment.costs, environment.rewards):
        assert all(getattr(module, name) is not None for name in module.__all__)
    assert environment.costs.names()[0].startswith("roofline:") and "log_ratio" in environment.rewards.names()
    for module in (environment, environment.costs):
        with pytest.raises(AttributeError, match=r"no attribute 'Padding'; it has C"):
            module.Padding  # noqa: B018
