"""Disturbs runs of `rlflow optimise`, and looks at what they leave: kills, full disks, damaged files, two at once …

Every fault ends with the same command, undisturbed. Its result has to be that of a run that nothing disturbed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from tests.attack.finding import Finding
from tests.attack.on_models import feeds_of, is_alike, outputs_of
from tests.attack.runs import Command, Ended, copy_of, ended, trace, undisturbed, unfinished_files, write_model

SAME, RESTARTED, OTHER, REFUSED = (
    "the same result",
    "refused in a paragraph, and the same result with --restart",
    "another result, which computes the same as the model",
    "refused in a paragraph",
)
UNEQUAL, TRACEBACK, LOST, HALF, ORPHAN, HANGS, SIGNALLED = (
    *("UNEQUAL RESULT", "TRACEBACK", "LOST RESULT", "HALF-WRITTEN FILE", "ORPHAN", "HANGS", "CRASH"),
)
GOOD = (SAME, RESTARTED, REFUSED)
FAULTS = (UNEQUAL, TRACEBACK, LOST, HALF, ORPHAN, HANGS, SIGNALLED)


class _Fault(Exception):
    """What went wrong; the arguments are the outcome and the details."""


def attack(seed: int) -> list[Finding]:
    """Carries out fault number `seed` in a folder of its own."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        notes: list[str] = []
        try:
            outcome, details = kind(rng, folder, notes), ""
        except _Fault as fault:
            outcome, details = fault.args
        finally:
            for path in folder.rglob("*"):  # a folder that may not be read cannot be removed
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o755)
    return [Finding(seed, kind.__name__, outcome, f"{'; '.join(notes)}\n{details[-3000:]}")]


def _require_orderly(end: Ended, *statuses: int) -> None:
    """Raises _Fault if a command did not end as it should."""
    if end.status is None:
        raise _Fault(HANGS, end.said)
    if end.orphans:
        raise _Fault(ORPHAN, end.said)
    if "Traceback" in end.said:
        raise _Fault(TRACEBACK, end.said)
    if end.status < 0 and end.status not in statuses:
        raise _Fault(SIGNALLED, f"status {end.status}: {end.said}")
    if end.status not in statuses:
        raise _Fault(LOST, f"status {end.status}: {end.said}")


def _same(command: Command, controller: str, *more: str, forced: bool = True) -> str:
    """Runs a command to its end and requires the result of the undisturbed run."""
    end = command.finish(*more, *(["--force"] if forced else []))
    _require_orderly(end, 0)
    found, expected = trace(command), undisturbed(controller).trace
    for part, value in expected.items():
        if found.get(part) != value:
            raise _Fault(UNEQUAL, f"{part} differs: {str(found.get(part))[:400]} instead of {str(value)[:400]}")
    if left := unfinished_files(command.folder):
        raise _Fault(HALF, f"left behind: {left}")
    return SAME


def _require_whole_or_absent(command: Command, controller: str) -> None:
    if command.output.exists() and command.output.read_bytes() != undisturbed(controller).trace["output"]:
        raise _Fault(HALF, "OUT is another file than that of the undisturbed run")


def _stopped(rng: np.random.Generator, folder: Path, notes: list[str], sent: signal.Signals) -> str:
    controller = str(rng.choice(["ppo", "random", "restarts"], p=[0.04, 0.46, 0.5]))
    whole = undisturbed(controller)
    write_model(folder)
    command = Command(folder, controller)
    for _ in range(rng.integers(1, 3)):
        after = float(rng.uniform(0.02, 1.0) * whole.seconds)
        notes.append(f"{sent.name} to {controller} after {after:.2f} of {whole.seconds:.1f} s")
        end = ended(command.start("--force"), after=after, sent=sent)
        _require_orderly(end, *((0, -sent) if sent is signal.SIGKILL else (0, 128 + sent, -signal.SIGTERM)))
        _require_whole_or_absent(command, controller)
    return _same(command, controller)


def killed(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """kill -9, once or twice, at random moments."""
    return _stopped(rng, folder, notes, signal.SIGKILL)


def interrupted(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """Ctrl-C or SIGTERM, once or twice, at random moments."""
    return _stopped(rng, folder, notes, signal.SIGINT if rng.random() < 0.5 else signal.SIGTERM)


def disk_full(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """No file may be larger than some bytes; afterwards there is space."""
    controller = str(rng.choice(["ppo", "random", "taso"], p=[0.04, 0.46, 0.5]))
    write_model(folder)
    command = Command(folder, controller)
    most = int(10 ** rng.uniform(0, 4.7))
    notes.append(f"{controller}, {most} bytes")
    end = command.finish(most_bytes=most)
    _require_orderly(end, 0, 2)
    if end.status == 2 and command.output.exists():
        raise _Fault(HALF, f"OUT exists after a failure: {end.said}")
    if left := unfinished_files(folder):
        raise _Fault(HALF, f"left behind: {left}")
    return _same(command, controller)


def read_only(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """A folder that may not be written, or a file that may not be read; afterwards they may."""
    controller = str(rng.choice(["random", "taso"]))
    command = copy_of(controller, folder, finished=False)
    places = [command.output.parent, command.run, command.run / "checkpoints", command.run / "metrics.jsonl"]
    places += [command.run / "stages.json", command.folder / "model.onnx", command.run / "run.lock"]
    place = places[rng.integers(len(places))]
    mode = 0o500 if place.is_dir() else int(rng.choice([0o000, 0o400]))
    place.chmod(mode)
    notes.append(f"{controller}, {place.relative_to(folder)} has mode {mode:o}")
    end = command.finish(privileged=False)
    _require_orderly(end, 0, 2)
    if end.status == 2 and command.output.exists():
        raise _Fault(HALF, f"OUT exists after a failure: {end.said}")
    place.chmod(0o755)
    return _same(command, controller)


def damaged(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """A file of a run directory is cut, changed, emptied, replaced or lost."""
    controller = str(rng.choice(["ppo", "random", "taso"], p=[0.04, 0.46, 0.5]))
    command = copy_of(controller, folder, finished=bool(rng.integers(2)))
    files = sorted(path for path in command.run.rglob("*") if path.is_file() and path.suffix != ".png")
    place = files[rng.integers(len(files))]
    how = DAMAGES[rng.integers(len(DAMAGES))]
    notes.append(f"{controller}, {place.relative_to(folder)}: {how.__name__}")
    how(rng, place)
    end = command.finish("--force")
    _require_orderly(end, 0, 2)
    if end.status == 0:
        if trace(command)["output"] == undisturbed(controller).trace["output"]:
            return SAME
        return _computes_the_same(command)
    if "--restart" not in end.said or place.name not in end.said:
        raise _Fault(LOST, f"the message names neither the file nor --restart: {end.said}")
    _same(command, controller, "--restart")
    return RESTARTED


def _computes_the_same(command: Command) -> str:
    model, result = (onnx.load(path) for path in (command.folder / "model.onnx", command.output))
    feeds = feeds_of(model, {})
    expected = outputs_of(model, feeds)
    if expected is None or not is_alike(expected, outputs_of(result, feeds)):
        raise _Fault(UNEQUAL, "OUT computes something else than the model")
    return OTHER


def cut(rng: np.random.Generator, path: Path) -> None:
    """A file without its end."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.integers(len(data) + 1)])


def changed(rng: np.random.Generator, path: Path) -> None:
    """Some bytes are others."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.integers(1, 9)):
        if data:
            data[rng.integers(len(data))] = rng.integers(256)
    path.write_bytes(data)


def emptied(rng: np.random.Generator, path: Path) -> None:
    """A file without bytes."""
    path.write_bytes(b"")


def of_zeros(rng: np.random.Generator, path: Path) -> None:
    """A file of zeros, as a crash of the machine leaves it."""
    path.write_bytes(bytes(path.stat().st_size))


def other_json(rng: np.random.Generator, path: Path) -> None:
    """JSON of another form."""
    texts = ["null", "[]", "{}", "[{}]", '{"a": 1}', "1e999", '"text"', '{"finished": true}', "[[[]]]", "NaN"]
    path.write_text(texts[rng.integers(len(texts))])


def missing(rng: np.random.Generator, path: Path) -> None:
    """No file."""
    path.unlink()


def a_folder(rng: np.random.Generator, path: Path) -> None:
    """A folder instead of a file."""
    path.unlink()
    path.mkdir()


def a_link_to_itself(rng: np.random.Generator, path: Path) -> None:
    """A link that leads nowhere."""
    path.unlink()
    path.symlink_to(path)


def a_pipe(rng: np.random.Generator, path: Path) -> None:
    """A pipe instead of a file: whoever opens it waits for ever."""
    path.unlink()
    os.mkfifo(path)


DAMAGES = (cut, cut, changed, changed, emptied, of_zeros, other_json, missing, a_folder, a_link_to_itself, a_pipe)


def at_once(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """Two equal commands at once: one gives the result, the other one says who holds the run, or gives it too."""
    controller = str(rng.choice(["random", "taso", "restarts"]))
    write_model(folder)
    command = Command(folder, controller)
    first = command.start("--force")
    try:
        first.wait(timeout=float(rng.uniform(0.0, 1.0) * undisturbed(controller).seconds))
    except Exception:  # it still runs, as it should
        notes.append(f"{controller}, the first one still ran")
    second = ended(command.start("--force"))
    ends = [ended(first), second]
    for end in ends:
        _require_orderly(end, 0, 2)
    if all(end.status == 2 for end in ends):
        raise _Fault(LOST, "\n".join(end.said for end in ends))
    _require_whole_or_absent(command, controller)
    return _same(command, controller)


def damaged_prices(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """A price database that is cut, changed, replaced or of another form."""
    write_model(folder)
    prices = folder / "cache" / "rlflow" / "prices.sqlite"
    command = Command(folder, "taso", "--costs", "measured:cpu", "--set", "search.retiming_seconds=0")
    kept = _recorded_prices()
    prices.parent.mkdir(parents=True)
    shutil.copyfile(kept, prices)
    if rng.random() < 0.2:
        notes.append("another table")
        prices.unlink()
        with sqlite3.connect(prices) as database:
            database.execute("create table prices (name text)")
        database.close()
    else:
        how = DAMAGES[rng.integers(len(DAMAGES))]
        notes.append(how.__name__)
        how(rng, prices)
    end = command.finish("--force")
    _require_orderly(end, 0, 2)
    if end.status == 0:
        return _computes_the_same(command)
    if command.output.exists():
        raise _Fault(HALF, f"OUT exists after a failure: {end.said}")
    if "prices.sqlite" not in end.said:
        raise _Fault(LOST, f"the message does not name the file: {end.said}")
    return REFUSED


def _recorded_prices() -> Path:
    """Returns a sound price database, which is made once in each process."""
    folder = undisturbed("taso").folder.parent / "prices"
    if not folder.exists():
        folder.mkdir()
        write_model(folder)
        end = Command(folder, "taso", "--costs", "measured:cpu", "--set", "search.retiming_seconds=0").finish()
        if end.status != 0:
            raise RuntimeError(f"A run with measured costs ends with {end.status}: {end.said}")
    return folder / "cache" / "rlflow" / "prices.sqlite"


def damaged_model(rng: np.random.Generator, folder: Path, notes: list[str]) -> str:
    """A model that is cut or changed: it is refused in a paragraph, or the result computes the same."""
    write_model(folder)
    how = (cut, changed, changed, of_zeros, emptied, a_folder, a_link_to_itself)[rng.integers(7)]
    notes.append(how.__name__)
    how(rng, folder / "model.onnx")
    command = Command(folder, "taso")
    end = command.finish()
    _require_orderly(end, 0, 2, 3)
    if end.status == 2:
        if command.output.exists():
            raise _Fault(HALF, f"OUT exists after a failure: {end.said}")
        return REFUSED
    return OTHER if end.status == 3 else _computes_the_same(command)


KINDS: tuple[Callable[[np.random.Generator, Path, list[str]], str], ...] = (
    *(killed, damaged, disk_full, killed, damaged, read_only, interrupted, damaged, at_once, damaged_prices),
    *(killed, damaged_model),
)
