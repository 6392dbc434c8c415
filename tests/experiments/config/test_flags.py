"""Every flag stands for an existing setting and is explained on the page of options."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

import pytest

from experiments.config.flags import GROUPS, Flag, add_flags, given_settings
from experiments.config.run import RunConfig

PAGE = (Path(__file__).parents[3] / "docs/options.md").read_text(encoding="utf-8")
FLAGS = [flag for flags in GROUPS.values() for flag in flags]


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_a_flag_stands_for_a_setting_and_is_explained(flag: Flag) -> None:
    functools.reduce(getattr, flag.setting.split("."), RunConfig())  # raises if there is none
    assert f"`{flag.name}" in PAGE or f"{flag.name}=" in PAGE


def test_only_what_is_given_is_changed() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert given_settings(parser.parse_args([])) == {}
    given = given_settings(parser.parse_args(["--budget", "7", "--dim", "b=2", "--dim", "a=1", "--portable"]))
    assert given == {"search": {"budget": 7}, "dims": ["a=1", "b=2"], "portable": True}
