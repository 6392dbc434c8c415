"""Committed units are used until the rules, features, figures or settings that they depend on change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.config.run import load_config
from experiments.errors import UserError
from experiments.executors.units import COMMITTED, UNITS, once, reading_only
from experiments.runs.progress import make_progress
from experiments.studies import setting
from experiments.studies import study as study_module
from experiments.studies.setting import REMOVED, Setting, agree, figures_fingerprint, fingerprint, today
from experiments.studies.study import SCALES, TABLE, Study

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / COMMITTED / TABLE / UNITS).glob("*.json"))


def test_committed_units_are_of_settings_that_this_version_has() -> None:
    """A setting that was removed belongs in `setting.REMOVED`; units with another value of it are of older tables."""
    older = re.compile("|".join(re.escape(f"'{key}'") for key in REMOVED))
    of_today = 0
    for path in FILES:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
        try:
            assert agree(settings, today(settings)), path.name
            of_today += 1
        except UserError as error:
            assert older.search(str(error)), path.name
    assert of_today


def test_committed_units_are_of_one_rule_set_and_of_this_versions_features_and_figures() -> None:
    """The rule set is today's, or the page of the results says which one it is."""
    here = fingerprint("squeezenet1.1")
    records = [json.loads(path.read_text(encoding="utf-8"))["settings"] for path in FILES]
    (rules,) = {settings["fingerprint"]["rules"] for settings in records}
    assert rules == here["rules"] or rules[:8] in (ROOT / COMMITTED / "README.md").read_text(encoding="utf-8")
    for settings in records:
        expected = here if settings["graph"] == "squeezenet1.1" else {**here, "graph": settings["fingerprint"]["graph"]}
        assert settings["fingerprint"] == {**expected, "rules": rules}
        assert settings.get("figures") in (None, figures_fingerprint())


def test_the_tables_find_the_committed_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the rules differs. The test looks for one unit of each kind; the others are found in the same way."""
    monkeypatch.chdir(ROOT)
    rules = json.loads(FILES[0].read_text(encoding="utf-8"))["settings"]["fingerprint"]["rules"]
    of_today = fingerprint("squeezenet1.1")
    for module in (setting, study_module):
        monkeypatch.setattr(module, "fingerprint", lambda graph: {**of_today, "rules": rules})
    scale = SCALES["full"]
    usual = Setting("squeezenet1.1", load_config(scale.preset, {}, scale.overrides))
    study = Study(usual, 0, scale.effort, make_progress())
    with reading_only():
        assert study.accuracy()["settings"]["seed"] == study.exploit(1)["settings"]["seed"] == 0
        assert study.search()["best_percent"] > 19.0


@pytest.fixture
def wanted() -> dict[str, Any]:
    return Setting("squeezenet1.1-tiny", load_config("demo", {})).model_record()


def test_a_unit_that_is_older_than_a_setting_has_its_default(wanted: dict[str, Any]) -> None:
    old = json.loads(json.dumps(wanted))
    del old["world_model"]["mdn_rnn"]["hold_changes"]
    assert agree(old, wanted)
    without = Setting("squeezenet1.1-tiny", load_config("demo", {}, ["world_model.mdn_rnn.hold_changes=false"]))
    assert not agree(old, without.model_record())
    del old["graph"]
    assert not agree(old, wanted), "only settings have defaults"


def test_a_setting_that_is_gone_serves_at_the_value_that_is_left(
    wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = json.loads(json.dumps(wanted))
    old["collect"]["luck"] = 7
    with pytest.raises(UserError, match=r"Unknown key 'collect\.luck'"):
        today(old)
    assert not agree(old, wanted)
    monkeypatch.setattr(setting, "REMOVED", {"collect.luck": 7})
    assert agree(old, wanted)
    old["collect"]["luck"] = 8
    assert not agree(old, wanted)


def test_units_are_found_by_agreement(wanted: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = json.loads(json.dumps(wanted))
    del old["world_model"]["mdn_rnn"]["hold_changes"]
    for settings, value in ((old, 1), (old | {"seed": 5}, 2)):
        made = {"settings": settings, "value": value}
        once("table", "unit", settings, lambda made=made: made, anywhere=True)  # type: ignore[misc]
    found = once("table", "unit", wanted, lambda: pytest.fail("done again"), anywhere=True, agree=agree)
    assert found["value"] == 1
    assert once("table", "uni", wanted, lambda: {"value": 3}, agree=agree)["value"] == 3, "of another name"
