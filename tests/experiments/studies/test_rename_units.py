"""Committed units are named by the settings that they hold, and stay so when settings are added or removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.config.run import load_config
from experiments.errors import UserError
from experiments.executors.units import COMMITTED, UNITS
from experiments.runs.directory import digest
from experiments.studies.rename_units import current_settings, main
from experiments.studies.setting import Setting, figures_fingerprint, fingerprint
from experiments.studies.study import TABLE

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / COMMITTED / TABLE / UNITS).glob("*.json"))


def test_committed_units_are_where_this_version_looks_for_them() -> None:
    """If this fails after a change of settings, run `python -m experiments.studies.rename_units`, see there."""
    assert FILES
    for path in FILES:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
        assert current_settings(settings, (), path.name) == settings, path.name
        assert path.stem.rpartition("-")[2] == digest(settings), path.name


def test_committed_units_are_of_this_versions_rules_features_and_figures() -> None:
    here = fingerprint("squeezenet1.1")
    for path in FILES:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
        expected = here if settings["graph"] == "squeezenet1.1" else {**here, "graph": settings["fingerprint"]["graph"]}
        assert settings["fingerprint"] == expected and settings.get("figures") in (None, figures_fingerprint())


def unit(folder: Path, **changes: object) -> Path:
    settings = Setting("squeezenet1.1-tiny", load_config("demo", {})).model_record()
    settings["collect"] |= changes
    path = folder / f"squeezenet1.1-tiny-seed0-round0-{digest(settings)}.json"
    path.write_text(json.dumps({"settings": settings, "round": 0}))
    return path


def test_settings_that_are_gone_have_to_be_named(tmp_path: Path) -> None:
    current = unit(tmp_path)
    current.unlink()
    old = unit(tmp_path, luck=7)
    with pytest.raises(UserError, match=r"Unknown key 'collect\.luck'"):
        main([str(tmp_path)])
    assert old.is_file()
    main([str(tmp_path), "--without", "collect.luck"])
    assert list(tmp_path.iterdir()) == [current]
    record = json.loads(current.read_text())
    assert record["round"] == 0 and "luck" not in record["settings"]["collect"]
