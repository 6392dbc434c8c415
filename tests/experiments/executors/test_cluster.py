"""Units on a Ray cluster of two nodes on this machine: nothing is lost or repeated if a node or the driver dies."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from experiments.errors import UserError
from experiments.executors import cluster, units
from experiments.executors.local import Unit
from experiments.executors.units import Record, collecting, once
from experiments.runs.directory import RunDirectory
from experiments.runs.progress import SilentProgress
from tests.commands import failure

ROOT = Path(__file__).parents[3]


def work(number: int, seconds: float, log: str, progress: Any) -> Record:
    """A unit that notes when it begins and ends, and keeps its result."""

    def done() -> Record:
        with Path(log).open("a") as file:
            file.write(f"begin {number} {time.time()}\n")
        time.sleep(seconds)
        if number < 0:
            raise ValueError(f"unit {number} cannot work")
        with Path(log).open("a") as file:
            file.write(f"end {number} {time.time()}\n")
        return {"number": number}

    return once("cluster", f"unit-{number}", {"number": number}, done)


def a_unit(number: int, log: Path, seconds: float = 0.5, **more: Any) -> Unit:
    return Unit(f"unit {number}", partial(work, number, seconds, str(log)), keeps=True, **more)


def numbers(executor: cluster.RayExecutor) -> list[int]:
    """Returns the numbers of the units, in the order of their results."""
    return [int(result.record["number"]) for result in executor.results() if result.record]


def ended(log: Path) -> list[int]:
    lines = log.read_text().split("\n") if log.is_file() else []
    return [int(line.split()[1]) for line in lines if line.startswith("end")]


def test_files_that_are_kept_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with collecting() as files:
        work(1, 0.0, "log", None)
        work(1, 0.0, "log", None)  # finished: nothing is written again
    ((path, text),) = files
    assert path.read_text() == text and json.loads(text)["number"] == 1
    assert units._collected.get() is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--address", "127.0.0.1:1"], "--address 127.0.0.1:1 is for --executor ray"),
        (["--executor", "ray", "--processes", "2"], "--processes 2 is for --executor local"),
    ],
)
def test_options_that_do_not_fit_are_one_clear_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in failure(capsys, "reproduce", "table1", "squeezenet1.1-tiny", *arguments)


def test_without_ray_one_sentence_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "Ray, which is not installed: pip install" in failure(
        capsys, "reproduce", "table1", "squeezenet1.1-tiny", "--executor", "ray"
    )


@contextlib.contextmanager
def a_cluster(**head: Any) -> Iterator[Any]:
    """A cluster whose first node is given, and to which the test may connect."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
    try:
        yield started
    finally:
        ray.shutdown()
        started.shutdown()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A working directory of the test's own, from which the nodes find these packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def two_nodes(place: None) -> Iterator[Any]:
    """A cluster of two nodes with one core and one clock each."""
    with a_cluster(num_cpus=1, resources={cluster.CLOCK: 1}) as started:
        started.second = started.add_node(num_cpus=1, resources={cluster.CLOCK: 1})
        yield started


@pytest.mark.ray
def test_units_run_on_both_nodes_and_arrive_as_they_end(two_nodes: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    executor = cluster.RayExecutor("test", two_nodes.address, SilentProgress())
    for number in (*range(6), -1):
        executor.submit(a_unit(number, log))
    results = list(executor.results())
    assert sorted(result.record["number"] for result in results if result.record) == list(range(6))
    (failed,) = [result for result in results if result.error]
    assert isinstance(failed.error, ValueError) and "unit -1 cannot work" in str(failed.error)
    again = cluster.RayExecutor("test", two_nodes.address, SilentProgress())
    again.submit(a_unit(3, log))
    assert numbers(again) == [3] and sorted(ended(log)) == list(range(6))


@pytest.mark.ray
def test_a_lane_is_done_in_its_order(two_nodes: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    executor = cluster.RayExecutor("test", two_nodes.address, SilentProgress())
    for number in range(4):
        executor.submit(a_unit(number, log, 0.1, lane="one"))
    assert numbers(executor) == list(range(4))
    assert ended(log) == [0, 1, 2, 3]


def in_a_run(lane: str, progress: Any) -> Record:
    """A unit that opens the run directory of its lane, which its process then keeps."""
    RunDirectory.open(Path("runs", lane), {"lane": lane}, {})
    return {"lane": lane}


@pytest.mark.ray
def test_no_process_keeps_the_run_directory_of_a_lane(two_nodes: Any) -> None:
    """There are more lanes than cores, so that the next unit of a lane may find another process."""
    executor = cluster.RayExecutor("test", two_nodes.address, SilentProgress())
    for number in range(3):
        for lane in ("one", "two", "three", "four"):
            executor.submit(Unit(f"{lane} {number}", partial(in_a_run, lane), lane=lane))
    results = list(executor.results())
    assert [result.error for result in results] == [None] * 12


@pytest.mark.ray
@pytest.mark.usefixtures("place")
def test_measurements_do_not_overlap_on_a_machine(tmp_path: Path) -> None:
    with a_cluster(num_cpus=2, resources={cluster.CLOCK: 1}) as started:
        executor = cluster.RayExecutor("test", started.address, SilentProgress())
        for number in range(3):
            executor.submit(a_unit(number, tmp_path / "log", measures=True))
        assert len(list(executor.results())) == 3
        kinds = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
        assert kinds == ["begin", "end"] * 3


@pytest.mark.ray
@pytest.mark.usefixtures("place")
def test_without_a_clock_nothing_is_measured(tmp_path: Path) -> None:
    with a_cluster(num_cpus=1) as started:
        executor = cluster.RayExecutor("test", started.address, SilentProgress())
        executor.submit(a_unit(0, tmp_path / "log", measures=True))
        with pytest.raises(UserError, match="need the resource 'clock'"):
            list(executor.results())


@pytest.mark.ray
def test_another_version_on_a_machine_is_one_clear_error(two_nodes: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    executor = cluster.RayExecutor("test", two_nodes.address, SilentProgress())
    executor.submit(a_unit(1, log))
    with pytest.MonkeyPatch.context() as patch:  # of the driver alone
        patch.setattr(cluster, "version_of_sources", lambda: "0123")
        with pytest.raises(
            UserError, match=r"different versions of RLFlow: .* and the machine of this command has 0123"
        ):
            list(executor.results())
    assert not ended(log)


WITHOUT = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name == "{missing}":
            raise ModuleNotFoundError("No module named '{missing}'", name=name)

sys.meta_path.insert(0, Refuses())
"""


def work_with(package: str, log: str, progress: Any) -> Record:
    """A unit that imports a package when it works."""
    importlib.import_module(package)
    return work(1, 0.0, log, progress)


@pytest.mark.ray
@pytest.mark.parametrize("missing", ["experiments", "onnx", "cma"])
def test_a_machine_without_a_package_is_one_clear_error(missing: str, place: None, tmp_path: Path) -> None:
    """The machine's Python refuses the import, as if the package were not installed there."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(missing=missing))
    with a_cluster(num_cpus=0) as started:
        started.add_node(num_cpus=1, env_vars={"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))})
        executor = cluster.RayExecutor("test", started.address, SilentProgress())
        executor.submit(Unit("unit", partial(work_with, "cma", str(tmp_path / "log"))))
        with pytest.raises(UserError, match=rf"A machine of the cluster cannot import RLFlow, .*{missing}"):
            list(executor.results())
    assert not ended(tmp_path / "log")


@pytest.mark.ray
def test_a_node_that_dies_loses_nothing(two_nodes: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    executor = cluster.RayExecutor("test", two_nodes.address, SilentProgress())
    for number in range(6):
        executor.submit(a_unit(number, log, 1.5))
    results = executor.results()
    first = next(results)
    two_nodes.remove_node(two_nodes.second, allow_graceful=False)
    assert {result.record["number"] for result in (first, *results) if result.record} == set(range(6))


def wait_for(number: int, log: Path, driver: subprocess.Popen[bytes]) -> None:
    """Waits until units have ended, while the driver lives."""
    until = time.time() + 60
    while len(ended(log)) < number:
        assert driver.poll() is None and time.time() < until
        time.sleep(0.05)


@pytest.mark.ray
def test_a_node_and_then_the_driver_are_killed(two_nodes: Any, tmp_path: Path) -> None:
    """The same command: finished units are not done again, and all others are."""
    log = tmp_path / "log"
    program = (
        "import sys; from pathlib import Path\n"
        "from experiments.executors.cluster import RayExecutor; from experiments.runs.progress import SilentProgress\n"
        "from tests.experiments.executors.test_cluster import a_unit\n"
        f"executor = RayExecutor('test', {two_nodes.address!r}, SilentProgress())\n"
        f"for number in range(6): executor.submit(a_unit(number, Path({str(log)!r}), 1.0))\n"
        "print(len([result for result in executor.results() if result.record]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL) as driver:
        wait_for(1, log, driver)
        two_nodes.remove_node(two_nodes.second, allow_graceful=False)
        wait_for(3, log, driver)
        driver.send_signal(signal.SIGKILL)
    time.sleep(2.0)  # Ray ends the tasks of a driver that is gone
    kept = set(Path("runs/reproduce/cluster/units").glob("*.json"))
    again = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0 and again.stdout.split()[-1] == "6", again.stderr
    assert len(kept) >= 2 and len(set(Path("runs/reproduce/cluster/units").glob("*.json"))) == 6
    finished_before = {int(path.name.split("-")[1]) for path in kept}
    assert all(ended(log).count(number) == 1 for number in finished_before), "these are not repeated"


@pytest.mark.ray
def test_a_table_is_made_on_a_cluster(two_nodes: Any) -> None:
    arguments = ["--executor", "ray", "--address", two_nodes.address]
    assert main(["reproduce", "table1", "squeezenet1.1-tiny", *arguments]) == 0
    assert Path("runs/reproduce/table1/table.csv").is_file()


@pytest.mark.ray
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "No Ray cluster answers at '127.0.0.1:1'"),
        ("nowhere", "--address expects HOST:PORT"),
        ("127.0.0.1:99999999", "No Ray cluster answers"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_clear_error(
    address: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "table1", "squeezenet1.1-tiny", "--executor", "ray", "--address", address]
    assert said in failure(capsys, *command)
