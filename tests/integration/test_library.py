"""Tests of the packages as a library: the script of the page runs, and importing them loads no TensorFlow."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import controller
import worldmodel

PAGE = Path(__file__).parents[2] / "docs/how-to/library.md"


def script() -> str:
    """Returns the code of the page."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(code).strip()


def test_the_script_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(script(), PAGE.name, "exec"), {})
    assert "% cheaper after" in capsys.readouterr().out
    assert worldmodel.WorldModel.load("world_model").num_actions > 0


def test_the_script_is_short_and_imports_the_three_packages_alone() -> None:
    lines = [line for line in script().splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 25
    imports = [line for line in lines if "import" in line]
    assert imports == ["import controller", "import environment", "import worldmodel"]


@pytest.mark.parametrize("module", [controller, worldmodel])
def test_every_public_name_is_there_and_others_are_an_error(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        assert getattr(module, name) is not None and name in dir(module)
    with pytest.raises(AttributeError, match="no attribute 'Dreams'; it has "):
        module.Dreams  # type: ignore[attr-defined]  # noqa: B018


def imports_tensorflow(code: str) -> bool:
    """Checks whether a fresh interpreter has TensorFlow loaded after `code`."""
    check = f"import sys\n{code}\nprint('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_settings_can_be_made_without_tensorflow() -> None:
    code = "import controller, worldmodel\nworldmodel.DreamConfig(), controller.PpoConfig(), worldmodel.collect"
    assert not imports_tensorflow(code)
    assert imports_tensorflow("import worldmodel\nworldmodel.DreamEnv"), "else this test could not fail"
