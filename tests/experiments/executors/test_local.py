"""Tests of the local executor: any number of processes gives equal records, lanes keep order, failures stop nothing."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from experiments.errors import UserError
from experiments.executors.local import LocalExecutor, Record, Unit, records
from experiments.executors.units import once
from experiments.runs.progress import LineProgress, ProgressDisplay

ROOT = Path(__file__).parents[3]


class Noted(list[str]):
    """A stream that keeps its lines."""

    def write(self, text: str) -> None:
        self.append(text)

    def flush(self) -> None:
        pass

    def text(self) -> str:
        return "".join(self)


def double(value: int, progress: ProgressDisplay) -> Record:
    progress.note(f"value is {value}")
    return {"double": 2 * value, "process": os.getpid()}


def append(path: Path, text: str, progress: ProgressDisplay) -> Record:
    with progress.stage("append", 1) as bar:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        bar.update(1)
    return {}


def refuse(progress: ProgressDisplay) -> Record:
    raise UserError("No such graph.")


def find_no_room(progress: ProgressDisplay) -> Record:
    raise OSError(errno.ENOSPC, "No space left on device", "unit.json")


def die(progress: ProgressDisplay) -> Record:
    os._exit(7)


class OddError(Exception):
    """An exception that cannot be sent to another process, because its constructor takes no text."""

    def __init__(self) -> None:
        super().__init__("odd", "number")


def be_odd(progress: ProgressDisplay) -> Record:
    raise OddError


def run(units: list[Unit], processes: int) -> tuple[list[Record], str]:
    noted = Noted()
    executor = LocalExecutor("test", processes, LineProgress(noted))  # type: ignore[arg-type]  # all that it needs
    return records(executor, units), noted.text()


@pytest.mark.parametrize("processes", [1, 2])
def test_records_come_in_the_order_of_the_units(processes: int) -> None:
    found, noted = run([Unit(f"unit {value}", partial(double, value)) for value in range(5)], processes)
    assert [record["double"] for record in found] == [0, 2, 4, 6, 8]
    assert ({record["process"] for record in found} == {os.getpid()}) == (processes == 1)
    assert "test: units: started (5 steps)" in noted and "value is 3" in noted


@pytest.mark.parametrize("processes", [1, 3])
def test_units_of_a_lane_run_one_after_another(processes: int, tmp_path: Path) -> None:
    path = tmp_path / "lane"
    run([Unit(text, partial(append, path, text), "lane") for text in "abcdef"], processes)
    assert path.read_text(encoding="utf-8") == "abcdef"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failed_unit_is_reported_and_the_others_go_on(processes: int, tmp_path: Path) -> None:
    path, noted = tmp_path / "file", Noted()
    executor = LocalExecutor("test", processes, LineProgress(noted))  # type: ignore[arg-type]
    others = [Unit("a", partial(append, path, "a"), "lane"), Unit("b", partial(append, path, "b"), "lane")]
    with pytest.raises(UserError, match="No such graph"):
        records(executor, [others[0], Unit("bad", refuse, "lane"), others[1]])
    assert path.read_text(encoding="utf-8") == "ab"
    assert "bad failed: No such graph." in noted.text()


def test_a_process_that_dies_fails_its_unit_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    units = [Unit("dies", die, "lane"), Unit("a", partial(append, path, "a"), "lane")]
    with pytest.raises(RuntimeError, match="status 7"):
        run(units, 2)
    assert path.read_text(encoding="utf-8") == "a"


def fail_in_a_stage(progress: ProgressDisplay) -> Record:
    with progress.stage("outer", 2), progress.stage("inner", 2) as bar:
        bar.update(1)
        raise UserError("No such graph.")


def test_a_unit_that_runs_alone_shows_its_stages_here(tmp_path: Path) -> None:
    path = tmp_path / "file"
    works = partial(append, path, "a"), partial(double, 2), partial(double, 3)
    units = [Unit(str(work.args), work, alone=True) for work in works]
    (_, first, second), noted = run(units, 1)
    assert path.read_text(encoding="utf-8") == "a"
    assert len({first["process"], second["process"], os.getpid()}) == 3
    assert "append: started" in noted and "append: finished" in noted and "\nvalue is 2" in noted
    with pytest.raises(UserError, match="No such graph"):
        run([Unit("bad", fail_in_a_stage, alone=True), units[0]], 1)
    with pytest.raises(RuntimeError, match="status 7"):
        run([Unit("dies", die, alone=True), units[0]], 1)
    assert path.read_text(encoding="utf-8") == "aaa"


def once_here(path: Path, progress: ProgressDisplay) -> Record:
    os.chdir(path)
    return once("table", "unit", {}, lambda: {"process": os.getpid()})


def test_what_is_finished_is_read_without_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    units = [Unit("kept", partial(once_here, tmp_path), keeps=True), Unit("other", partial(double, 1))]
    (first, _), _ = run(units, 2)
    assert first["process"] != os.getpid()
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: pytest.fail("another process"))
    assert run([units[0], units[0]], 2)[0] == [first, first]
    assert run([replace(units[0], alone=True)], 1)[0] == [first]


def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    with pytest.raises(RuntimeError, match="OddError"):
        run([Unit("odd", be_odd), Unit("even", partial(double, 1))], 2)


def test_there_is_at_least_one_process() -> None:
    with pytest.raises(UserError, match="at least 1, got 0"):
        LocalExecutor("test", 0, LineProgress(sys.stderr))


def note_process_and_wait(directory: Path, progress: ProgressDisplay) -> Record:
    (directory / str(os.getpid())).touch()
    time.sleep(600)
    return {}


INTERRUPTED = """
import sys
from functools import partial
from pathlib import Path
from experiments.executors.local import LocalExecutor, Unit, records
from experiments.runs.signals import Interrupted, listening
from experiments.runs.progress import make_progress
from tests.experiments.executors.test_local import note_process_and_wait

if __name__ == "__main__":
    processes, directory = int(sys.argv[1]), Path(sys.argv[2])
    work = partial(note_process_and_wait, directory)
    units = [Unit(str(number), work, alone=processes == 1) for number in range(3)]
    try:
        with listening():
            records(LocalExecutor("test", processes, make_progress()), units)
    except Interrupted as interruption:
        sys.exit(128 + interruption.signal)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_stops_all_processes(processes: int, tmp_path: Path) -> None:
    script, directory = tmp_path / "script.py", tmp_path / "processes"
    script.write_text(INTERRUPTED, encoding="utf-8")
    directory.mkdir()
    command = [sys.executable, str(script), str(processes), str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as main:
        while len(list(directory.iterdir())) < processes:
            assert main.poll() is None, main.stderr and main.stderr.read()
            time.sleep(0.1)
        os.killpg(main.pid, signal.SIGINT)  # as a terminal does
        assert main.wait(60) == 128 + signal.SIGINT
        assert main.stderr and "Traceback" not in main.stderr.read()
    for process in directory.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(process.name), 0)
    assert len(list(directory.iterdir())) == processes, "the third was not started"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk_ends_the_work_at_once(processes: int, tmp_path: Path) -> None:
    """Units after it could keep nothing, so that hours of work would be lost."""
    log = tmp_path / "log"
    units = [Unit("full", find_no_room), *[Unit("waits", partial(note_process_and_wait, tmp_path))] * (processes - 1)]
    with pytest.raises(OSError, match="No space left"):
        records(
            LocalExecutor("test", processes, LineProgress(Noted())),
            [*units, Unit("later", partial(append, log, "x"))],
        )
    assert not log.exists()
