"""Tests of `rlflow costs`: it records, shows, exports and imports prices; bad input is one error and leaves no file."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from environment.costs.measured import kernel_prices
from environment.costs.measured.benchmark import require_timeable
from environment.costs.measured.kernel import Kernel
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import Price
from environment.costs.prices.settings import Setting
from environment.costs.prices.sqlite_file import sidecars
from environment.runtimes import OnnxRuntime, available_devices
from experiments.cli import main
from tests.commands import failure

MODEL = "squeezenet1.1-tiny"
OTHER = Setting("cuda", "another processor", "onnxruntime", "1.0", 1)


class Clock:
    """A made-up clock that prices kernels by the length of their signatures; interrupts after `most` of them.

    Attributes:
      factor: the factor by which all prices are multiplied.
      spread: the `Price.spread` of all prices.
    """

    def __init__(self, most: int = sys.maxsize) -> None:
        self.timed: list[str] = []
        self.most, self.factor, self.spread = most, 1.0, 0.01

    def __call__(self, kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, *_: object) -> Price:
        if len(self.timed) == self.most:
            raise KeyboardInterrupt
        require_timeable(kernel)
        self.timed.append(f"{weights_mb} {kernel.signature}")
        return Price(self.factor * (1 + len(kernel.signature) / 1000), self.spread)


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces the clock, and puts all that a command could leave behind below `tmp_path`, also the user's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path_factory.mktemp("matplotlib")))
    made_up = Clock()
    monkeypatch.setattr(kernel_prices, "time_kernel", made_up)
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)
    return made_up


def record(*more: str, walks: int = 1, steps: int = 2) -> int:
    return main(["costs", "record", MODEL, "--walks", str(walks), "--steps", str(steps), *more])


def prices_in(path: Path | str) -> dict[Setting, dict[str, Price]]:
    with PriceDatabase(path, create=False) as database:
        return {setting: dict(database.setting(setting).items()) for setting in database.settings()}


def add_other(path: Path | str) -> None:
    with PriceDatabase(path) as database:
        database.setting(OTHER).put('0 ["","Relu",14,{},[[1,[4],false,null]],[true]]', Price(7.0, 0.02))


def test_the_kernels_of_a_model_and_of_its_walks_are_timed_once(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(walks=0) == 0
    alone = len(clock.timed)
    assert record() == 0
    assert len(clock.timed) > alone > 5
    capsys.readouterr()
    assert record() == 0
    assert "new are 0 and 0" in capsys.readouterr().out
    (found,) = prices_in(tmp_path / "cache/rlflow/prices.sqlite").values()
    assert sorted(clock.timed) == list(found)


def test_an_interrupted_recording_goes_on_where_it_stopped(clock: Clock, tmp_path: Path) -> None:
    clock.most = 3
    assert record("--database", "mine.sqlite") == 128 + signal.SIGINT
    (found,) = prices_in("mine.sqlite").values()
    assert len(found) == 3
    clock.most = sys.maxsize
    assert record("--database", "mine.sqlite") == 0
    assert len(clock.timed) == len(set(clock.timed)) > 3


def _record_elsewhere(folder: Path, price: float) -> None:
    os.chdir(folder)
    kernel_prices.time_kernel = lambda *_: Price(price, 0.0)  # type: ignore[assignment]
    kernel_prices.time_reference_kernel = lambda runtime: 1.0  # type: ignore[assignment]
    sys.exit(record("--database", "shared.sqlite"))


def test_two_processes_record_into_one_database_at_once(tmp_path: Path, clock: Clock) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_record_elsewhere, args=(tmp_path, price)) for price in (1.0, 2.0)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert record("--database", "alone.sqlite") == 0
    (shared,), (alone,) = prices_in("shared.sqlite").values(), prices_in("alone.sqlite").values()
    assert shared.keys() == alone.keys()
    assert {price.timings for price in shared.values()} == {1}, "each kernel is timed by one of them"


@pytest.mark.parametrize("named", [True, False])
def test_what_is_recorded_again_becomes_a_mean(named: bool, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """If a model is named, only its own kernels are timed again, not those of its walks; otherwise all kernels are."""
    record("--database", "mine.sqlite", walks=0)
    alone = len(clock.timed)
    record("--database", "mine.sqlite")
    (before,) = prices_in("mine.sqlite").values()
    clock.timed.clear()
    clock.factor = 2.0
    capsys.readouterr()
    again = ["costs", "record", *[MODEL] * named, "--again", "--walks", "0", "--database", "mine.sqlite"]
    assert main(again) == 0
    assert re.search(r"prices are sure to ±\d+ % in the median; before to ±1 %", capsys.readouterr().err)
    assert len(clock.timed) == len(set(clock.timed)) == (alone if named else len(before)) and alone < len(before)
    (after,) = prices_in("mine.sqlite").values()
    for key, price in before.items():
        if key in clock.timed:
            assert after[key].ms == pytest.approx(2**0.5 * price.ms) and after[key].timings == 2
        else:
            assert after[key] == price


def test_nothing_can_be_timed_again_where_nothing_is_known(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["costs", "record", "--again", "--database", "mine.sqlite"]) == 2
    error = capsys.readouterr().err
    assert "mine.sqlite has no prices of" in error and "Record some first" in error and "Traceback" not in error


def test_prices_that_are_not_sure_are_noted(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    clock.spread = 0.2
    assert record("--database", "mine.sqlite") == 0
    assert capsys.readouterr().err.count("too noisy") == 1


def test_levels_are_recorded_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert record("--database", "mine.sqlite", "--level", "basic", walks=0) == 0
    assert record("--database", "mine.sqlite", walks=0) == 0
    assert [setting.level for setting in prices_in("mine.sqlite")] == ["basic", "all"]
    capsys.readouterr()
    assert main(["costs", "show", "--database", "mine.sqlite", "--setting", "optimisation basic"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_what_was_recorded_is_shown(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    record("--database", "mine.sqlite")
    add_other("mine.sqlite")
    capsys.readouterr()
    assert main(["costs", "show", "--database", "mine.sqlite", "--slowest", "2"]) == 0
    path, here, *dearest, there, relu = capsys.readouterr().out.splitlines()
    assert path == "mine.sqlite" and f"{len(clock.timed)} kernels" in here and "another processor" in there
    milliseconds = [float(line.split()[0]) for line in dearest]
    assert milliseconds == sorted(milliseconds, reverse=True) and len(dearest) == 2
    assert milliseconds[0] == pytest.approx(max(1 + (len(key) - 2) / 1000 for key in clock.timed), abs=0.01)
    assert relu.split() == ["7.0000", "ms", "±", "2.0", "%", "Relu(float", "4)"]


def test_a_model_is_shown_as_its_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    record("--database", "mine.sqlite")
    capsys.readouterr()
    command = ["costs", "show", "--database", "mine.sqlite", "--model"]
    assert main([*command, MODEL]) == 0
    *kernels, total = capsys.readouterr().out.splitlines()[2:]
    assert sum(float(line.split()[0]) for line in kernels) == pytest.approx(float(total.split()[0]), abs=0.01)
    assert main([*command, "nasrnn-tiny"]) == 0
    assert "not recorded" in capsys.readouterr().out


@pytest.mark.skipif("cuda" in available_devices(), reason="here it is")
def test_kernels_of_another_device_are_not_shown_for_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    add_other("mine.sqlite")
    assert main(["costs", "show", "--database", "mine.sqlite", "--model", MODEL]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and "cuda cannot be used here" in lines[0]


def test_an_exported_setting_comes_back_by_an_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record("--database", "mine.sqlite")
    add_other("mine.sqlite")
    assert main(["costs", "export", "new/all.sqlite", "--database", "mine.sqlite"]) == 0
    assert prices_in("new/all.sqlite") == prices_in("mine.sqlite")
    assert main(["costs", "export", "one.sqlite", "--database", "mine.sqlite", "--setting", "Another"]) == 0
    assert list(prices_in("one.sqlite")) == [OTHER]
    assert main(["costs", "import", "one.sqlite", "--database", "theirs.sqlite"]) == 0
    capsys.readouterr()
    assert main(["costs", "import", "new/all.sqlite", "--database", "theirs.sqlite"]) == 0
    total = sum(map(len, prices_in("mine.sqlite").values()))
    assert f"{total - 1} prices came" in capsys.readouterr().out
    assert prices_in("theirs.sqlite") == prices_in("mine.sqlite")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["all.sqlite"]


def optimised(*more: str) -> list[str]:
    command = ["optimise", MODEL, "-o", "out.onnx", "--controller", "greedy", "--set", "search.budget=1"]
    return [*command, "--set", "measure.pairs=2", "--set", "measure.sessions=1", *more]


def test_recorded_prices_replay_without_a_clock(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(optimised("--costs", "measured:cpu", "--set", "measure.predict=false", "--run-dir", "first")) == 0
    assert main(["costs", "export", "recorded.sqlite"]) == 0
    Path("out.onnx").unlink()
    before = Path("recorded.sqlite").read_bytes()
    Path("recorded.sqlite").chmod(0o444)
    monkeypatch.setattr(kernel_prices, "time_kernel", lambda *_: pytest.fail("measured"))
    assert main(optimised("--costs", "recorded.sqlite", "--run-dir", "second")) == 0
    # Compares what was found; if costs are measured, the clock chooses which of it is exported.
    first, second = (json.loads(Path(run, "checkpoints/evaluation.json").read_text()) for run in ("first", "second"))
    assert first == second and first["deterministic"]["actions"]
    assert Path("recorded.sqlite").read_bytes() == before
    message = failure(capsys, "optimise", "nasrnn-tiny", "-o", "x.onnx", "--costs", "recorded.sqlite")
    assert "recorded.sqlite has no price of" in message and "rlflow costs record" in message


def test_kernels_alone_replay_the_same_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record("--database", "mine.sqlite")
    for output, more in {"all.sqlite": (), "alone.sqlite": ("--kernels-alone",)}.items():
        assert main(["costs", "export", output, "--database", "mine.sqlite", *more]) == 0
    assert prices_in("alone.sqlite") == prices_in("all.sqlite")
    _, of_alone = capsys.readouterr().out.splitlines()[-2:]
    assert ", 0 operators" in of_alone
    monkeypatch.setattr(kernel_prices, "time_kernel", lambda *_: pytest.fail("measured"))
    for name in ("all", "alone"):
        assert main(optimised("--costs", f"{name}.sqlite", "--run-dir", name, "--force")) == 0
    of_all, alone = (json.loads(Path(run, "checkpoints/evaluation.json").read_text()) for run in ("all", "alone"))
    assert of_all == alone and alone["deterministic"]["actions"]


@pytest.mark.parametrize("controller", ["taso", "restarts", "passes", "greedy"])
def test_what_has_no_recorded_price_is_left_alone(
    controller: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replay considers only graphs whose prices are recorded, says so, and finds the best of them."""
    assert record("--database", "recorded.sqlite", walks=0) == 0
    monkeypatch.setattr(kernel_prices, "time_kernel", lambda *_: pytest.fail("measured"))
    capsys.readouterr()
    command = ["optimise", MODEL, "-o", "out.onnx", "--controller", controller, "--costs", "recorded.sqlite"]
    settings = ("measure.pairs=2", "search.alpha=2", "search.budget=20")
    assert main([*command, *(each for setting in settings for each in ("--set", setting))]) == 0
    said = capsys.readouterr()
    assert "recorded.sqlite has no price" in said.err and "rlflow costs record" in said.err
    assert ("for want of a price" in said.out) == (controller != "greedy")
    assert Path("out.onnx").exists()


def test_measured_costs_take_threads_and_level_of_the_run(clock: Clock, tmp_path: Path) -> None:
    settings = ["--set", "measure.threads=2", "--set", "measure.level=extended"]
    assert main(optimised("--costs", "measured:cpu", *settings)) == 0
    (setting,) = prices_in(tmp_path / "cache/rlflow/prices.sqlite")
    assert (setting.threads, setting.level) == (2, "extended")


def _model(node: onnx.NodeProto, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(helper.make_graph([node], "g", [condition, x], [y]), opset_imports=opsets, ir_version=8)


def _branch(op_type: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info("t", TensorProto.FLOAT, [4])
    return helper.make_graph([helper.make_node(op_type, ["x"], ["t"])], op_type, [], [out])


def save_branching(path: Path) -> None:
    branches = {"then_branch": _branch("Relu"), "else_branch": _branch("Tanh")}
    onnx.save(_model(helper.make_node("If", ["c"], ["y"], **branches)), path)


def save_unknown_operator(path: Path) -> None:
    onnx.save(_model(helper.make_node("Foo", ["x"], ["y"], domain="my.ops")), path)


def test_a_model_that_cannot_be_priced_names_the_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_unknown_operator(tmp_path / "model.onnx")
    assert "my.ops:Foo" in failure(capsys, "costs", "record", "model.onnx")


def test_a_branch_has_a_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_branching(tmp_path / "model.onnx")
    command = ["optimise", "model.onnx", "-o", "out.onnx", "--costs", "measured:cpu", "--controller", "greedy"]
    assert main(command) == 0, capsys.readouterr().err
    assert (tmp_path / "out.onnx").exists()


def test_a_search_on_a_model_that_cannot_be_priced_says_so_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_unknown_operator(tmp_path / "model.onnx")
    with PriceDatabase(tmp_path / "prices.sqlite") as database:  # so that the command makes no file
        database.setting(OTHER)
    status = main(["optimise", "model.onnx", "-o", "out.onnx", "--costs", "measured:cpu", "--controller", "greedy"])
    assert status == 2 and "my.ops:Foo" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def _of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("create table mine (x)")


def _newer(path: Path) -> None:
    with PriceDatabase(path) as database:
        database.settle()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("pragma user_version = 99")


def _damaged(path: Path) -> None:
    with PriceDatabase(path) as database:
        prices = database.setting(OTHER)
        for number in range(3):  # a page of the file each
            prices.put(f"0 {4096 * 'op'} {number}", Price(1.0, 0.0))
        database.settle()
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "another program's": (_of_another_program, "another program"),
    "newer": (_newer, "version 99"),
    "damaged": (_damaged, "damaged"),
    "text": (lambda path: path.write_text("no database at all\n" * 100), "damaged or no database"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "empty": (lambda path: path.touch(), "no database of prices"),
    "missing": (lambda path: None, "no database of prices"),
}


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize(
    "command",
    [
        ["costs", "export", "new.sqlite", "--database", "bad.sqlite"],
        ["costs", "import", "bad.sqlite", "--database", "new.sqlite"],
        ["optimise", MODEL, "-o", "out.onnx", "--costs", "bad.sqlite"],
        ["costs", "show", "--slowest", "1", "--database", "bad.sqlite"],
    ],
    ids=["export", "import", "replay", "show"],
)
def test_a_file_that_is_no_database_is_explained(
    command: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, said = SPOILT[kind]
    spoil(tmp_path / "bad.sqlite")
    message = failure(capsys, *command)
    assert "bad.sqlite" in message
    assert said in message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["record", MODEL, "--device", "gpu"], "has cpu here"),
        (["record", MODEL, "--device", "cuda"], "onnxruntime-gpu"),
        (["record", MODEL, "--database", "/proc/prices.sqlite"], "can be written"),
        (["record", MODEL, "--database", "nowhere/prices.sqlite"], "does not exist"),
        (["record", MODEL, "--database", "."], "is a folder"),
        (["record", "squeezenet-tiny"], MODEL),
        (["record", "none.onnx"], "none.onnx"),
        (["record", MODEL, "--threads", "0"], "at least 1"),
        (["record", MODEL, "--level", "basics"], "did you mean 'basic'"),
        (["record", MODEL, "--walks", "-1"], "at least 0"),
        (["record", MODEL, "--dim", "batch"], "name=value"),
        (["show"], "no database of prices"),
        (["export"], "FILE.sqlite"),
        (["forget"], "forget"),
    ],
)
def test_bad_arguments_are_explained(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in failure(capsys, "costs", *arguments)


def test_nothing_is_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_other("mine.sqlite")
    (tmp_path / "precious.sqlite").write_text("precious")
    export = ["costs", "export", "--database", "mine.sqlite"]
    assert "--force" in failure(capsys, *export, "precious.sqlite")
    assert "the database itself" in failure(capsys, *export, "mine.sqlite", "--force")
    assert "'tpu'" in failure(capsys, *export, "other.sqlite", "--setting", "tpu")
    assert main([*export, "precious.sqlite", "--force"]) == 0
    assert prices_in("precious.sqlite") == prices_in("mine.sqlite")


@pytest.mark.parametrize("existing", [True, False], ids=["in its place", "alone"])
def test_the_log_of_an_overwritten_file_is_not_taken_for_the_new_ones(
    existing: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed process leaves such a log beside its database."""
    add_other("mine.sqlite")
    new = tmp_path / "new.sqlite"
    with PriceDatabase("old.sqlite") as database:
        database.setting(OTHER).put("0 old", Price(1.0, 0.0))
        for file in sidecars(Path("old.sqlite")):
            if file.exists():
                shutil.copy(file, f"{new}{file.name.removeprefix('old.sqlite')}")
        if existing:
            shutil.copy("old.sqlite", new)
    assert Path(f"{new}-wal").stat().st_size
    export = ["costs", "export", "new.sqlite", "--database", "mine.sqlite"]
    assert "--force" in failure(capsys, *export)
    assert main([*export, "--force"]) == 0
    assert not any(file.exists() for file in sidecars(new))
    assert prices_in(new) == prices_in("mine.sqlite")


def test_a_full_disk_is_explained_and_what_was_recorded_stays(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit on the size of files stands in for a full disk."""
    with PriceDatabase("mine.sqlite") as database:
        prices = database.setting(OTHER)
        for number in range(500):
            prices.put(f"0 op {number:04} {'of many words ' * 100}", Price(1.0, 0.0))
        database.settle()
    before = prices_in("mine.sqlite")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path("mine.sqlite").stat().st_size // 2, hard))
    try:
        exported = failure(capsys, "costs", "export", "new.sqlite", "--database", "mine.sqlite")
        recorded = record("--database", "mine.sqlite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "disk is not full" in exported
    assert recorded == 2 and "disk is not full" in capsys.readouterr().err
    assert before.items() <= prices_in("mine.sqlite").items()
