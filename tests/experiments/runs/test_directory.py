"""A run directory reopens for the same configuration only, and remembers which stages finished."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from environment import GraphSubstitutionEnv
from environment.counting import Counts, count
from experiments.errors import DamagedRun, UserError
from experiments.runs.directory import FILES, FOLDERS, MetricsLog, RunDirectory

CONFIG = {"seed": 1, "taso": {"alpha": 1.05}}


def test_the_same_configuration_reopens(tmp_path: Path) -> None:
    first = RunDirectory.open(tmp_path / "run", CONFIG, {"argv": ["a"]})
    with first.stage("collect"):
        pass
    again = RunDirectory.open(tmp_path / "run", CONFIG, {"argv": ["b"]})
    assert (first.resumed, again.resumed) == (False, True)
    assert again.finished("collect") and not again.finished("encoder")
    assert [entry["argv"] for entry in again.read_json("manifest.json")] == [["a"], ["b"]]


def test_another_configuration_is_refused_and_named(tmp_path: Path) -> None:
    RunDirectory.open(tmp_path / "run", CONFIG, {})
    with pytest.raises(UserError, match=r"taso\.alpha was 1\.05, now 2"):
        RunDirectory.open(tmp_path / "run", {"seed": 1, "taso": {"alpha": 2}}, {})


def test_a_configuration_that_agrees_reopens_and_the_file_stays_as_it_was(tmp_path: Path) -> None:
    RunDirectory.open(tmp_path / "run", CONFIG, {})
    other = {**CONFIG, "added": 1}
    with pytest.raises(UserError, match="added was None, now 1"):
        RunDirectory.open(tmp_path / "run", other, {}, agree=lambda stored, wanted: stored == wanted)
    directory = RunDirectory.open(tmp_path / "run", other, {}, agree=lambda stored, wanted: stored["seed"] == 1)
    assert directory.resumed and directory.read_json("config.json") == CONFIG


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="not a run directory"):
        RunDirectory.open(tmp_path, CONFIG, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_unwritable_place_is_refused() -> None:
    with pytest.raises(UserError, match="--run-dir"):
        RunDirectory.open(Path("/proc/rlflow-run"), CONFIG, {})


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    """The second one says who holds the run. When that process is killed, the run is free."""
    script = (
        "import time; from pathlib import Path; from experiments.runs.directory import RunDirectory\n"
        f"RunDirectory.open(Path({str(tmp_path / 'run')!r}), {CONFIG!r}, {{}})\n"
        "print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with pytest.raises(UserError, match=f"in use by process {holder.pid}, .*`rlflow train` take another"):
                RunDirectory.open(tmp_path / "run", CONFIG, {})
        finally:
            holder.kill()
    assert RunDirectory.open(tmp_path / "run", CONFIG, {}).resumed


def test_a_start_that_was_interrupted_is_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").write_text("[]")
    assert not RunDirectory.open(tmp_path / "run", CONFIG, {}).resumed
    assert RunDirectory.open(tmp_path / "run", CONFIG, {}).resumed


def test_restart_begins_anew_whatever_is_there(tmp_path: Path) -> None:
    directory = RunDirectory.open(tmp_path / "run", CONFIG, {})
    with directory.stage("collect"):
        pass
    (tmp_path / "run" / "stages.json").write_text("{")
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(DamagedRun, match=r"stages\.json is damaged.*--restart"):
        RunDirectory.open(tmp_path / "run", CONFIG, {})
    again = RunDirectory.open(tmp_path / "run", {"seed": 2}, {}, restart=True)
    assert not again.resumed and not again.finished("collect") and (tmp_path / "run" / "mine.txt").is_file()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_an_interrupted_stage_is_not_finished_but_timed(tmp_path: Path, stop: type[BaseException]) -> None:
    directory = RunDirectory.open(tmp_path / "run", CONFIG, {})
    with pytest.raises(stop), directory.stage("encoder"):
        raise stop
    again = RunDirectory.open(tmp_path / "run", CONFIG, {})
    assert not again.finished("encoder")
    seconds = again.stage_seconds()["encoder"]
    with again.stage("encoder"):
        pass
    assert again.finished("encoder") and again.stage_seconds()["encoder"] > seconds


def test_a_stage_counts_the_steps_of_the_engine(tmp_path: Path) -> None:
    directory, env = RunDirectory.open(tmp_path / "run", CONFIG, {}), GraphSubstitutionEnv("squeezenet1.1-tiny")
    with directory.stage("collect"):
        env.after(env.start_state(), *env.legal_actions()[0].tolist())
        directory.keep_counts("collect")
        env.after(env.start_state(), *env.legal_actions()[0].tolist())
    assert directory.counts() == Counts(real_steps=2)


def test_steps_that_are_repeated_count_once_and_timings_always(tmp_path: Path) -> None:
    directory = RunDirectory.open(tmp_path / "run", CONFIG, {})
    with pytest.raises(KeyboardInterrupt), directory.stage("controller-1"):
        count(dreamed_steps=1, kernel_timings=10)
        directory.keep_counts("controller-1")
        count(dreamed_steps=100, real_steps=100, kernel_timings=1000)  # after the last checkpoint
        raise KeyboardInterrupt
    again = RunDirectory.open(tmp_path / "run", CONFIG, {})
    assert again.counts() == Counts(dreamed_steps=1, kernel_timings=1010)
    with again.stage("controller-1"):
        count(dreamed_steps=100, real_steps=100)
    with again.stage("exploit-1"):
        count(dreamed_steps=7)
    again = RunDirectory.open(tmp_path / "run", CONFIG, {})
    assert again.counts(leaving_out=["exploit"]) == Counts(100, 101, 0, 1010)
    assert again.counts(only=["exploit"]) == Counts(dreamed_steps=7)
    assert again.counts().dreamed_steps == 108
    (tmp_path / "run" / "stages.json").write_text((tmp_path / "run" / "stages.json").read_text().replace("101", '"x"'))
    with pytest.raises(DamagedRun, match=r"stages\.json is damaged"):
        RunDirectory.open(tmp_path / "run", CONFIG, {})


def test_a_resumed_stage_drops_what_it_repeats(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(4):
        log.append("encoder", step, {"loss": 1 / (step + 1)})
        log.append("other", step, {"loss": 1.0})
    log.rewind("encoder", 2)
    assert [record["step"] for record in log.read("encoder")] == [0, 1]
    assert len(log.read("other")) == 4


def test_a_line_cut_off_by_a_kill_is_ignored(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("encoder", 0, {"loss": 1.0})
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"stage": "enc')
    assert [record["step"] for record in log.read()] == [0]
    log.rewind("encoder", 1)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0]


@pytest.mark.parametrize("text", ["null", "[]", "{}", "NaN", '{"finished": true}', '"text"'])
def test_settings_of_another_form_are_damage(text: str, tmp_path: Path) -> None:
    RunDirectory.open(tmp_path / "run", CONFIG, {})
    (tmp_path / "run" / "config.json").write_text(text)
    with pytest.raises(DamagedRun, match=r"config\.json is damaged: it holds no settings.*--restart"):
        RunDirectory.open(tmp_path / "run", CONFIG, {})


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_folder_in_place_of_a_file_is_damage_and_the_other_way_round(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    for broken in ("swapped", "a link to itself"):
        RunDirectory.open(path, CONFIG, {}, restart=True)
        if (path / name).is_dir():
            shutil.rmtree(path / name)
        (path / name).unlink(missing_ok=True)
        if broken != "swapped":
            (path / name).symlink_to(name)
        elif name in FOLDERS:
            (path / name).touch()
        else:
            (path / name).mkdir()
        with pytest.raises(DamagedRun, match=rf"{re.escape(name)} is damaged: it is no plain .*--restart"):
            RunDirectory.open(path, CONFIG, {})
    RunDirectory.open(path, CONFIG, {}, restart=True)
    assert RunDirectory.holds_run(path)
