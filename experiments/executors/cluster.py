"""Units on the machines of a Ray cluster: `--executor ray --address HOST:PORT`.

    ray start --head --resources '{"clock": 1}'                        # on one machine
    ray start --address HOST:PORT --resources '{"clock": 1}'           # on each of the others
    rlflow reproduce controllers --executor ray --address HOST:PORT

A unit is done when its file exists. The driver, which is the process of the command, writes these files as results
arrive, so that machines need not share a disk; after a restart the same command goes on with what is missing. A machine
that shares the driver's folder writes the files of its units itself, so that one which ends after the driver was killed
is not lost. Units of one lane run one after another, if possible on the machine of the first. Units that measure times
need the resource `clock`, of which every machine has one. If a machine is lost, Ray runs its units again on another.

Ray is an extra (`pip install -e ".[ray]"`) and is imported when it is used. The machines need RLFlow too, in the
version of the driver.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.errors import UserError
from experiments.executors.choice import AUTO
from experiments.executors.local import Lanes, Result, Unit, finished_result, sendable
from experiments.executors.units import Files, Record, collecting
from experiments.executors.version import version_of_sources
from experiments.runs.progress import ProgressDisplay, SilentProgress
from experiments.runs.signals import raise_if_received
from taso_ext.files import write_text

CLOCK = "clock"
"""The resource of which units that measure need one."""
RETRIES = 5
"""How often a unit is begun again after its machine was lost."""
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_ANSWER = 10.0


class RayExecutor(Lanes):
    """Runs units on a Ray cluster.

    Args:
      title: title of the work, for the progress.
      address: the cluster, `HOST:PORT`, or `auto` for one on this machine.
      progress: shows how many units are finished and the expected time of the rest.
    Raises:
      UserError: Ray is not installed, no cluster answers, or its Python or Ray is of another version.
    """

    def __init__(self, title: str, address: str, progress: ProgressDisplay) -> None:
        super().__init__(title, progress)
        self._ray = _connected(address)

    def results(self) -> Iterator[Result]:
        """See `experiments.executors.local.Executor.results`. An interruption ends the units on all machines.

        Raises:
          UserError: units measure times, but no machine has the resource `clock`; or a machine has no RLFlow, or
            another version of it.
        """
        lanes = self._submitted()
        if any(unit.measures for lane in lanes for unit in lane) and not self._ray.cluster_resources().get(CLOCK):
            raise UserError(
                f"Units that measure times need the resource '{CLOCK}', so that no two of them share a machine, and no "
                f"machine of the cluster has it. Start each with: ray start … --resources '{{\"{CLOCK}\": 1}}'."
            )
        with self._progress.stage(f"{self._title}: units", sum(map(len, lanes))) as bar:
            for done, result in enumerate(self._reported(self._arriving(lanes)), 1):
                bar.update(done)
                yield result

    def _arriving(self, lanes: Sequence[deque[Unit]]) -> Generator[Result, None, None]:
        running: dict[Any, tuple[deque[Unit], str | None]] = {}  # by the reference of the first unit of each lane
        for lane in lanes:
            yield from self._begun(lane, None, running)
        try:
            while running:
                raise_if_received()
                ready, _ = self._ray.wait(list(running), timeout=SECONDS_BETWEEN_LOOKS)
                for reference in ready:
                    lane, _ = running.pop(reference)
                    result, node = self._arrived(reference, lane.popleft())
                    yield result
                    yield from self._begun(lane, node, running)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

    def _begun(
        self, lane: deque[Unit], node: str | None, running: dict[Any, tuple[deque[Unit], str | None]]
    ) -> Iterator[Result]:
        """Begins the next unit of a lane, after the results of those that are finished already."""
        while lane and (result := finished_result(lane[0])):
            lane.popleft()
            yield result
        if not lane:
            return
        # A process of its own for each unit, because a process keeps the run directories that it has opened.
        options: dict[str, Any] = {"max_retries": RETRIES, "num_cpus": 1, "max_calls": 1}
        if lane[0].measures:
            options["resources"] = {CLOCK: 1}
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        task = self._ray.remote(**options)(carried_out)
        running[task.remote(lane[0], os.getcwd(), version_of_sources())] = lane, node

    def _arrived(self, reference: Any, unit: Unit) -> tuple[Result, str | None]:
        """Returns the result of a unit, whose files are then written, and the machine that it ran on."""
        try:
            outcome, files, node = self._ray.get(reference)
        except Exception as error:  # errors of Ray; those of units are outcomes
            if "failed to import" in str(error) or "No module named" in str(error):
                raise _cannot_import(str(error).strip().splitlines()[-1]) from error
            said = f"its machine or process was lost, or Ray has failed: {type(error).__name__}: {error}"
            return Result(unit, None, RuntimeError(said)), None
        if isinstance(outcome, OtherVersion):
            raise UserError(
                f"The machines of the cluster have different versions of RLFlow: {outcome}. Install the same one "
                "everywhere, and in the same way, so that all units are of one program."
            )
        if isinstance(outcome, ImportError):
            raise _cannot_import(str(outcome)) from outcome
        for path, text in files:
            if not path.is_file():
                write_text(path, text)
        if isinstance(outcome, Exception):
            return Result(unit, None, outcome), node
        return Result(unit, outcome), node


class OtherVersion(Exception):
    """A machine has another version of RLFlow, whose units may be others."""


def carried_out(unit: Unit, directory: str, version: str) -> tuple[Record | Exception, Files, str]:
    """Does a unit on a machine of the cluster, if it has the version of the driver.

    Args:
      directory: the working directory of the driver; the machine works in the directory of that name.
      version: the driver's `version_of_sources`.
    Returns:
      The unit's record or its error, the files of finished units, and the machine.
    """
    import ray

    Path(directory).mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    node = ray.get_runtime_context().get_node_id()
    own = version_of_sources()
    if own != version:
        return (
            OtherVersion(f"{socket.gethostname()} has {own}, and the machine of this command has {version}"),
            [],
            node,
        )
    with collecting() as files:
        try:
            return unit.work(SilentProgress()), files, node
        except Exception as error:
            return sendable(error), files, node


def _cannot_import(said: str) -> UserError:
    """Returns the error of a machine that lacks a package, which says so."""
    return UserError(
        "A machine of the cluster cannot import RLFlow, or one of the packages that it needs. Install the version of "
        f"this machine there. It said: {said}"
    )


def _connected(address: str) -> Any:
    """Returns the module `ray`, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError(
            '--executor ray needs Ray, which is not installed: pip install -e ".[ray]", or use --executor local.'
        ) from error
    if ray.is_initialized():
        return ray
    _require_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
    except Exception as error:  # ConnectionError, RuntimeError for other versions, ValueError for what is no address
        raise UserError(
            f"No Ray cluster can be used at '{address}': {str(error).strip().splitlines()[0]} Start one with "
            "`ray start --head`, and name its address with --address."
        ) from error
    return ray


def _require_answer(address: str) -> None:
    """Raises UserError unless something listens at an address.

    Ray itself waits for minutes, and then ends the process.
    """
    if address == AUTO:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--address expects HOST:PORT, for example 10.0.0.1:6379, but got '{address}'.")
    try:
        with socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER):
            pass
    except (OSError, OverflowError) as error:
        raise UserError(
            f"No Ray cluster answers at '{address}': {error}. Start one with `ray start --head`, and name its address "
            "with --address."
        ) from error
