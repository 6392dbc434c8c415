"""The database of measured prices: shared, interrupted, copied, and of files that are something else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from environment.costs.price_database import DatabaseError, Price, PriceDatabase, Setting

CPU = Setting("cpu", "a processor", "onnxruntime", "1.0", 1)
PRICE = Price(0.5, 0.01, 9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "costs.sqlite"


def test_prices_outlive_the_process_that_measured_them(path: Path) -> None:
    with PriceDatabase(path) as prices:
        assert prices.setting(CPU).get("Relu") is None
        assert prices.setting(CPU).put("Relu", PRICE)
    with PriceDatabase(path) as prices:
        assert prices.setting(CPU).get("Relu") == PRICE
        assert prices.settings() == {CPU: 1}


def test_the_first_price_stays(path: Path) -> None:
    with PriceDatabase(path) as prices:
        here = prices.setting(CPU)
        here.put("Relu", PRICE)
        assert not here.put("Relu", Price(7.0, 0.0, 1))
        assert here.get("Relu") == PRICE


@pytest.mark.parametrize("other", [replace(CPU, device="cuda"), replace(CPU, processor="b"), replace(CPU, threads=2)])
def test_settings_do_not_share_prices(other: Setting, path: Path) -> None:
    with PriceDatabase(path) as prices:
        prices.setting(CPU).put("Relu", PRICE)
        assert prices.setting(other).get("Relu") is None


def _record(path: Path, first: int, count: int) -> None:
    with PriceDatabase(path) as prices:
        here = prices.setting(CPU)
        for number in range(first, first + count):
            here.put(f"op {number}", Price(float(number), 0.0, 1))


def test_several_processes_record_at_once(path: Path) -> None:
    """They also all create the file at the same time, and half of their signatures are the same."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_record, args=(path, 50 * number, 100)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    with PriceDatabase(path) as prices:
        assert {signature: price.ms for signature, price in prices.setting(CPU).items()} == {
            f"op {number}": float(number) for number in range(200)
        }


def test_creation_waits_for_who_holds_the_empty_file(path: Path) -> None:
    """SQLite itself does not, where the journal's mode is to change."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")  # others may read
    release = threading.Timer(0.3, lambda: other.execute("rollback"))
    release.start()
    with PriceDatabase(path) as prices:
        assert not prices.settings()
    release.join()
    other.close()


def test_a_killed_process_loses_nothing_that_it_had_written(path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_record, args=(path, 0, 10**9))
    process.start()
    while not path.exists() or _count(path) < 20:
        time.sleep(0.05)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    with PriceDatabase(path) as prices:
        found = dict(prices.setting(CPU).items())
        assert len(found) >= 20
        assert all(found[f"op {number}"].ms == number for number in range(len(found)))


def _count(path: Path) -> int:
    with PriceDatabase(path) as prices:
        return sum(prices.settings().values())


def test_a_database_that_nobody_closed_is_one_file(path: Path) -> None:
    """Its newest prices would else be beside it, and be lost where it is copied."""
    code = (
        f"import ctypes, sys\nsys.path[:] = {sys.path!r}\nfrom test_price_database import *\n"
        f"prices = PriceDatabase({str(path)!r})\nprices.setting(CPU).put('Relu', PRICE)\n"
        "ctypes.pythonapi.Py_IncRef(ctypes.py_object(prices))  # held to the end, as native code holds callbacks"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    assert list(path.parent.iterdir()) == [path]
    with PriceDatabase(path) as prices:
        assert prices.settings() == {CPU: 1}


def test_prices_are_copied_between_files_and_the_own_stay(path: Path, tmp_path: Path) -> None:
    with PriceDatabase(path) as mine, PriceDatabase(tmp_path / "theirs.sqlite") as theirs:
        mine.setting(CPU).put("Relu", PRICE)
        for signature, ms in (("Relu", 9.0), ("Tanh", 2.0)):
            theirs.setting(CPU).put(signature, Price(ms, 0.0, 1))
        assert mine.copy_from(theirs) == 1
        assert [price.ms for _, price in mine.setting(CPU).items()] == [0.5, 2.0]
        assert mine.copy_from(theirs) == 0


def _of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("create table mine (x)")


def _newer(path: Path) -> None:
    PriceDatabase(path).close()
    with sqlite3.connect(path) as file:
        file.execute("pragma user_version = 99")


def _damaged(path: Path) -> None:
    _record(path, 0, 2000)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_of_another_program, "another program"),
        (_newer, "version 99"),
        (_damaged, "damaged"),
        (lambda path: path.write_bytes(b"no database at all" * 100), "damaged or no database"),
        (lambda path: path.mkdir(), "is a folder"),
    ],
    ids=["another program's", "newer", "damaged", "no database", "a folder"],
)
def test_a_file_that_is_no_database_of_prices_is_one_error(
    spoil: Callable[[Path], object], said: str, path: Path
) -> None:
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(DatabaseError, match=said) as error, PriceDatabase(path) as prices:
        list(prices.setting(CPU).items())
    assert str(path) in str(error.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="does not exist"):
        PriceDatabase(tmp_path / "nowhere" / "costs.sqlite")


def test_prices_of_a_faster_machine_are_scaled_to_this_one(tmp_path: Path) -> None:
    """What is kept are ratios to the yardstick, stated in the milliseconds that it took in each file."""
    with PriceDatabase(tmp_path / "mine.sqlite") as mine, PriceDatabase(tmp_path / "theirs.sqlite") as theirs:
        assert mine.setting(CPU).keep_yardstick(2.0) == 2.0
        assert theirs.setting(CPU).keep_yardstick(1.0) == 1.0
        assert theirs.setting(CPU).keep_yardstick(7.0) == 1.0
        theirs.setting(CPU).put("Relu", PRICE)
        theirs.setting(CPU).put_appraisals(np.array([3], np.uint64), np.array([[1.0, 5.0, 1.0]]))
        assert mine.copy_from(theirs) == 1
        assert mine.setting(CPU).get("Relu") == replace(PRICE, ms=2 * PRICE.ms)
        assert mine.setting(CPU).appraisals()[1].tolist() == [[2.0, 5.0, 1.0]]
