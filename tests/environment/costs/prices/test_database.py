"""The database of measured prices can be shared, interrupted and copied, and refuses files of another kind."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from environment.costs.prices import price_list
from environment.costs.prices import sqlite_file as price_file
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.graph_prices import KEPT_PAIRS, GraphPrice, kept
from environment.costs.prices.price_list import OperatorCost, Price, mean_price
from environment.costs.prices.settings import Setting
from environment.costs.prices.sqlite_file import DatabaseError

CPU = Setting("cpu", "a processor", "onnxruntime", "1.0", 1)
PRICE = Price(0.5, 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "costs.sqlite"


def test_prices_outlive_the_process_that_measured_them(path: Path) -> None:
    with PriceDatabase(path) as prices:
        assert prices.setting(CPU).get("Relu") is None
        assert prices.setting(CPU).put("Relu", PRICE) == PRICE
    with PriceDatabase(path) as prices:
        assert prices.setting(CPU).get("Relu") == PRICE
        assert prices.settings() == {CPU: 1}


def test_a_price_is_the_mean_of_all_its_timings(path: Path) -> None:
    """Its spread shows how well they agree, whatever spreads they state themselves."""
    with PriceDatabase(path) as prices:
        here = prices.setting(CPU)
        here.put("Relu", PRICE)
        kept = here.put("Relu", Price(4.0, 0.01))
        assert kept == here.get("Relu") == prices.setting(CPU).get("Relu")
        assert kept.ms == pytest.approx((PRICE.ms * 4) ** 0.5) and kept.timings == 2 and kept.spread > 1
        assert here.put("Relu", Price(4.0, 0.01)).ms == pytest.approx((kept.ms**2 * 4) ** (1 / 3))


def test_single_timings_are_kept_beside_their_mean(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest ones, so that noise can be drawn from them; they go with the prices into another file, in its unit."""
    monkeypatch.setattr(price_list, "KEPT_TIMINGS", 3)
    with PriceDatabase(path) as prices, PriceDatabase(path.with_name("other.sqlite")) as other:
        here, there = prices.setting(CPU), other.setting(CPU)
        here.keep_reference_ms(1.0)
        there.keep_reference_ms(2.0)
        assert here.timings("Relu") == ()
        for ms in (1.0, 2.0, 3.0, 4.0):
            here.put("Relu", Price(ms, 0.01))
        here.put("Tanh", Price(5.0, 0.01))
        here.put("Tanh", Price(6.0, 0.01, 7))
        assert here.timings("Relu") == (2.0, 3.0, 4.0) and here.timings("Tanh") == (5.0,)
        there.put("Tanh", Price(9.0, 0.01))
        assert other.copy_from(prices) == 1
        assert there.timings("Relu") == (4.0, 6.0, 8.0) and there.timings("Tanh") == (9.0,)
        there.put("Relu", Price(1.0, 0.01))
        assert there.timings("Relu") == (6.0, 8.0, 1.0), "the numbers go on"


def test_the_times_of_whole_graphs_are_kept_and_copied(path: Path) -> None:
    start, faster = GraphPrice(10.0, 1.0, 0.0), GraphPrice(10.0, 0.5, 0.01, (0.25, 0.5, 0.75))
    with PriceDatabase(path) as prices, PriceDatabase(path.with_name("other.sqlite")) as other:
        here, there = prices.setting(CPU).graphs, other.setting(CPU).graphs
        here.put("a", "a", start)
        here.put("a", "b", start)
        here.put("a", "b", faster)
        there.put("a", "a", GraphPrice(9.0, 1.0, 0.0))
        other.copy_from(prices)
        assert here.get("a", "b") == there.get("a", "b") == faster and here.get("b", "b") is None
        assert there.get("a", "a") == GraphPrice(9.0, 1.0, 0.0), "what was there stays"
        assert list(here.items()) == [("a", "a", start), ("a", "b", faster)] and len(there) == 2


def test_ratios_that_are_kept_are_spread_over_the_measurement() -> None:
    assert kept([1.0, 2.0]) == (1.0, 2.0)
    found = kept([float(each) for each in range(100)])
    assert len(found) == KEPT_PAIRS and found[0] == 0 and found[-1] == 99 and list(found) == sorted(set(found))


def test_no_timing_outweighs_others_for_being_noisy_or_quiet() -> None:
    quiet, noisy = Price(1.0, 0.006), Price(1.2, 0.05)
    for first, other in ((quiet, noisy), (noisy, quiet)):
        price = mean_price(mean_price(first, other), quiet)
        assert price.ms == pytest.approx(1.2 ** (1 / 3)) and price.timings == 3


def test_means_of_many_timings_are_as_sure_as_they_say() -> None:
    """Timings state a spread of 1 % and differ by 10 % (standard deviation); intervals are those of means of 20."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        price = Price(math.exp(rng.normal(0, 0.1)), 0.01)
        for _ in range(19):
            price = mean_price(price, Price(math.exp(rng.normal(0, 0.1)), 0.01))
        covered += abs(math.log(price.ms)) <= price.spread
        assert price.spread == pytest.approx(1.96 * 0.1 / 20**0.5, rel=0.6)
    assert covered / 200 == pytest.approx(0.93, abs=0.04)


def test_equal_timings_become_surer_with_their_number() -> None:
    price = PRICE
    for _ in range(3):
        price = mean_price(price, PRICE)
    assert price.ms == pytest.approx(PRICE.ms) and price.spread == pytest.approx(PRICE.spread / 2)
    assert mean_price(Price(0.0, 0.1), Price(1.0, 0.2)) == Price(0.5, 0.2, 2)


def test_a_process_keeps_to_what_it_has_read(path: Path) -> None:
    with PriceDatabase(path) as mine, PriceDatabase(path) as theirs:
        here, there = mine.setting(CPU), theirs.setting(CPU)
        assert here.get("Relu") is None
        there.put("Relu", PRICE)
        assert here.get("Relu") == PRICE
        theirs_now = there.put("Relu", Price(7.0, 0.001))
        assert here.get("Relu") == PRICE != theirs_now
        assert here.put("Relu", Price(3.0, 0.005)) == mean_price(theirs_now, Price(3.0, 0.005))


OTHERS = [
    replace(CPU, device="cuda"),
    replace(CPU, processor="b"),
    replace(CPU, threads=2),
    replace(CPU, level="basic"),
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_settings_do_not_share_prices(other: Setting, path: Path) -> None:
    with PriceDatabase(path) as prices:
        prices.setting(CPU).put("Relu", PRICE)
        assert prices.setting(other).get("Relu") is None


def _record(path: Path, first: int, count: int) -> None:
    with PriceDatabase(path) as prices:
        here = prices.setting(CPU)
        for number in range(first, first + count):
            here.put(f"op {number}", Price(float(number), 0.0))


def test_several_processes_record_at_once(path: Path) -> None:
    """All of them also create the file at the same time, and half of their signatures are the same."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_record, args=(path, 50 * number, 100)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    with PriceDatabase(path) as prices:
        found = {signature: price.ms for signature, price in prices.setting(CPU).items()}
        assert found == {f"op {number}": pytest.approx(float(number)) for number in range(200)}


def test_creation_waits_for_who_holds_the_empty_file(path: Path) -> None:
    """SQLite itself does not wait if the journal's mode has to change."""
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
    """Otherwise its newest prices would be in a file beside it, and a copy would lose them."""
    code = (
        f"import ctypes, sys\nsys.path[:] = {sys.path!r}\nfrom tests.environment.costs.prices.test_database import *\n"
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
            theirs.setting(CPU).put(signature, Price(ms, 0.0))
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


def _of_version_1(path: Path) -> None:
    PriceDatabase(path).close()
    with sqlite3.connect(path) as file:
        file.execute("pragma user_version = 1")


def _damaged(path: Path) -> None:
    with PriceDatabase(path) as prices:
        prices.setting(CPU).put(4096 * "op", PRICE)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_of_another_program, "another program"),
        (_newer, "version 99.*record the prices anew"),
        (_of_version_1, "version 1 .*reads version 2 and version 3 and version 4.*moved away"),
        (_damaged, "damaged"),
        (lambda path: path.write_bytes(b"no database at all" * 100), "damaged or no database"),
        (lambda path: path.mkdir(), "is a folder"),
    ],
    ids=["another program's", "newer", "the first version's", "damaged", "no database", "a folder"],
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
    """The database keeps ratios to the reference kernel, in the milliseconds that this took in each file."""
    with PriceDatabase(tmp_path / "mine.sqlite") as mine, PriceDatabase(tmp_path / "theirs.sqlite") as theirs:
        assert mine.setting(CPU).keep_reference_ms(2.0) == 2.0
        assert theirs.setting(CPU).keep_reference_ms(1.0) == 1.0
        assert theirs.setting(CPU).keep_reference_ms(7.0) == 1.0
        theirs.setting(CPU).put("Relu", PRICE)
        theirs.setting(CPU).put_operator_costs({3: RELU_TWICE})
        assert mine.copy_from(theirs) == 1
        assert mine.setting(CPU).get("Relu") == replace(PRICE, ms=2 * PRICE.ms)
        assert mine.setting(CPU).operator_costs == {3: RELU_TWICE}


RELU_TWICE, NOTHING = OperatorCost({"Relu": 2}, 5.0), OperatorCost({}, 0.0)
LARGEST_NAME = 2**64 - 1


def test_what_operators_take_is_kept(path: Path) -> None:
    with PriceDatabase(path) as prices:
        here = prices.setting(CPU)
        here.put("Relu", PRICE)
        here.put("Tanh", PRICE)
        found = {LARGEST_NAME: RELU_TWICE, 1: NOTHING, 2: OperatorCost({"Relu": 1, "Tanh": 3}, 7.0)}
        assert here.put_operator_costs(found) == found
    with PriceDatabase(path) as prices:
        assert prices.setting(CPU).operator_costs == found
        assert prices.setting(CPU).num_operator_costs == 3
        assert not prices.setting(OTHERS[0]).operator_costs


def test_processes_agree_on_what_operators_take(path: Path) -> None:
    """The first process to state a cost decides it, and the others get that cost."""
    with PriceDatabase(path) as mine, PriceDatabase(path) as theirs:
        here, there = mine.setting(CPU), theirs.setting(CPU)
        there.put("Relu", PRICE)
        assert not here.operator_costs
        there.put_operator_costs({1: RELU_TWICE})
        assert here.put_operator_costs({1: NOTHING, 2: NOTHING}) == {1: RELU_TWICE, 2: NOTHING}


def test_the_kernel_of_an_operator_need_not_have_a_price(path: Path) -> None:
    """Prices that are predicted are not kept, but the kernels of operators are."""
    with PriceDatabase(path) as prices:
        here = prices.setting(CPU)
        here.put_operator_costs({2: RELU_TWICE})
        assert here.get("Relu") is None and not len(here) and not dict(here.items())
        assert set(prices.settings().values()) == {0}
    with PriceDatabase(path) as prices, PriceDatabase(path.with_name("other.sqlite")) as other:
        here = prices.setting(CPU)
        assert here.operator_costs == {2: RELU_TWICE}
        other.setting(CPU).put("Relu", PRICE)
        assert prices.copy_from(other) == 1, "a price that comes later"
        assert here.get("Relu") == PRICE and dict(here.items()) == {"Relu": PRICE}
        assert other.copy_from(prices) == 0 and other.setting(CPU).get("Relu") == PRICE


def test_a_kernel_whose_price_is_gone_is_damage(path: Path) -> None:
    """Otherwise, the operator would cost nothing."""
    with PriceDatabase(path) as prices:
        prices.setting(CPU).put("Relu", PRICE)
        prices.setting(CPU).put_operator_costs({1: RELU_TWICE})
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("delete from price")
    with PriceDatabase(path) as prices, pytest.raises(DatabaseError, match="It is damaged"):
        _ = prices.setting(CPU).operator_costs


def test_a_change_of_what_operator_costs_mean_forgets_only_these(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PriceDatabase(path) as prices:
        prices.setting(CPU).put("Relu", PRICE)
        prices.setting(CPU).put_operator_costs({1: RELU_TWICE, 2: RELU_TWICE})
        monkeypatch.setattr(price_list, "OPERATOR_COSTS", price_list.OPERATOR_COSTS + 1)
        here = prices.setting(CPU)
        assert not here.operator_costs and here.num_operator_costs == 0
        here.put_operator_costs({1: NOTHING})
        assert prices.setting(CPU).operator_costs == {1: NOTHING}
        assert here.get("Relu") == PRICE
        with prices.statements() as file:
            counts = [file.execute(f"select count(*) from {table}").fetchone()[0] for table in ("appraisal", "part")]
        assert counts == [1, 0]


VERSION_2 = """
create table setting (
  id integer primary key,
  device text not null, processor text not null, runtime text not null, version text not null, threads integer not null,
  level text not null,
  yardstick_ms real check (yardstick_ms > 0),
  unique (device, processor, runtime, version, threads, level)
);
create table price (
  id integer primary key,
  setting integer not null references setting(id),
  signature text not null,
  ms real not null check (ms >= 0),
  spread real not null check (spread >= 0),
  samples integer not null check (samples > 0),
  recorded real not null,
  unique (setting, signature)
);
create table appraisal (
  id integer primary key,
  setting integer not null references setting(id),
  version integer not null,
  surroundings blob not null,
  bytes real not null,
  unique (setting, version, surroundings)
);
create table part (
  appraisal integer not null references appraisal(id) on delete cascade,
  price integer not null references price(id),
  count integer not null check (count > 0),
  primary key (appraisal, price)
) without rowid;
insert into setting values (3, 'cpu', 'a processor', 'onnxruntime', '1.0', 1, 'all', 2.5);
insert into setting values (7, 'cuda', 'a processor', 'onnxruntime', '1.0', 1, 'all', null);
insert into price values (5, 3, 'Relu', 0.5, 0.01, 25, 1e9);
insert into price values (6, 7, 'Relu', 0.25, 0.01, 9, 1e9);
insert into appraisal values (1, 3, 1, x'0807060504030201', 2.0);
insert into part values (1, 5, 3);
insert into appraisal values (2, 3, 2, x'0807060504030202', 4.0);
insert into part values (2, 5, 6);
pragma application_id = 0x524C4643;
pragma user_version = 2;
"""
"""The contents of a file as version 2 wrote it."""


VERSION_3 = VERSION_2.replace("samples", "timings").replace("user_version = 2", "user_version = 3")
"""The same of version 3, apart from the numbers of timings."""
VERSION_3 = VERSION_3.replace("0.5, 0.01, 25", "0.5, 0.01, 1")
VERSION_4 = VERSION_3.replace("ms real not null check (ms", "ms real check (ms").replace("version = 3", "version = 4")
OLDER = {2: VERSION_2, 3: VERSION_3, 4: VERSION_4}


def of_version_2(path: Path, version: int = 2) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.executescript(OLDER[version])


@pytest.mark.parametrize("version", OLDER)
def test_an_older_file_becomes_one_of_this_version(version: int, path: Path) -> None:
    of_version_2(path, version)
    for _ in range(2):
        with PriceDatabase(path, create=False) as prices:
            assert set(prices.settings()) == {CPU, replace(CPU, device="cuda")}
            here = prices.setting(CPU)
            assert here.reference_ms == 2.5 and dict(here.items()) == {"Relu": Price(0.5, 0.01)}
            assert here.timings("Relu") == (0.5,) and not len(here.graphs)
            gpu = prices.setting(replace(CPU, device="cuda"))
            single = version == 2  # which counted samples of one timing
            assert gpu.timings("Relu") == ((0.25,) if single else ()), "of several timings only the mean is known"
            # Only operator costs of the present version are kept.
            assert here.operator_costs == {0x0202030405060708: OperatorCost({"Relu": 6}, 4.0)}, (
                "what another reading made is not"
            )
            with prices.statements() as file:
                assert not file.execute("pragma foreign_key_check").fetchall()
            prices.require_sound()
    with PriceDatabase(path) as prices, PriceDatabase(path.parent / "new.sqlite") as new:
        schemas = []
        for each in (prices, new):
            with each.statements() as file:
                found = file.execute("select type, name, sql from sqlite_master order by name").fetchall()
                said = [(kind, name, (sql or "").replace('"', "").split()) for kind, name, sql in found]
                schemas.append(said)
        if version == 4:  # written by hand above, without the conditions that its tables had
            schemas = [[(kind, name) for kind, name, _ in each] for each in schemas]
        assert schemas[0] == schemas[1]


def test_an_older_file_that_cannot_be_written_says_why_it_has_to_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_version_2(path)
    monkeypatch.setattr(price_file, "_PATIENCE_S", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(DatabaseError, match=r"locked.* of version 2.* to version 5"):
            PriceDatabase(path)
    with PriceDatabase(path) as prices:
        assert len(prices.settings()) == 2


def test_those_who_measure_into_one_file_take_turns(path: Path) -> None:
    """Each thread opens the file anew, as processes do."""
    at_work: list[int] = []
    most: list[int] = []

    def measure(number: int) -> None:
        with PriceDatabase(path) as prices:
            for _ in range(5):
                with prices.setting(CPU).turn():
                    at_work.append(number)
                    time.sleep(0.002)
                    most.append(len(at_work))
                    at_work.remove(number)

    PriceDatabase(path).close()
    threads = [threading.Thread(target=measure, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20


def test_a_turn_that_nobody_can_have_is_an_error(path: Path) -> None:
    with PriceDatabase(path) as prices:
        Path(f"{path}.lock").mkdir()
        with pytest.raises(DatabaseError, match="take turns"), prices.turn():
            pass
