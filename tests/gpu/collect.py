"""Gathers the small files that tests/gpu/run.sh has left on a machine: `python -m tests.gpu.collect` (run.sh calls it).

Each table goes into `NAME/DEVICE` below the folder of results, with `machine.json`, which says what machine made it.
The recorded prices lie beside the table of never-slower, for which they were recorded. What has not been made is left
out. `--pages` adds the columns for other devices to the tables of the CPU (`experiments.reproduce.other_devices`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import onnxruntime

from environment.costs.prices.settings import processor
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.runtimes.onnx_runtime import require_working
from experiments.errors import UserError
from experiments.reproduce.other_devices import MACHINE, SHOWN, with_other_devices
from experiments.runs.manifest import make_manifest
from taso_ext.files import write_text

RESULTS = Path("experiments/results")
PRICES = "prices.sqlite"
PLACED = "placement-two-cores"
"""The table of networks that are divided among devices which are here."""
DRIVER = Path("/proc/driver/nvidia/version")
SETTINGS = ("NVIDIA_TF32_OVERRIDE", "CUDA_VISIBLE_DEVICES")
"""Variables of the environment that change what a GPU computes or how fast."""


def main() -> int:
    """Gathers the results, says which machine this is, or renews the pages; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="the device that was measured (cuda)")
    parser.add_argument("--made", type=Path, help="folder of what was made; without it, the machine is only shown")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"folder of the tables ({RESULTS})")
    parser.add_argument("--pages", action="store_true", help="renew the pages of the CPU instead")
    options = parser.parse_args()
    try:
        print(_done(options))
    except (UnavailableError, UserError) as error:
        print(f"tests/gpu/run.sh: {error}", file=sys.stderr)
        return 2
    return 0


def _done(options: argparse.Namespace) -> str:
    """Does what the options ask for and returns what to print."""
    if options.pages:
        return "\n".join(map(str, renew_pages(options.results))) or "No page has changed."
    require_working(options.device)
    if options.made is None:
        return json.dumps(machine(options.device), indent=1)
    if options.device == "cpu" and options.results == RESULTS:
        raise UserError(
            "Tables of the CPU are not gathered: rlflow reproduce NAME -o experiments/results/NAME does it."
        )
    return "\n".join(map(str, collect(options.made, options.results, options.device)))


def machine(device: str) -> dict[str, Any]:
    """Returns the facts of this machine that explain its times, as plain JSON values."""
    facts = make_manifest([], "", 0)
    return {
        "device": device,
        "processor": processor(device),
        "driver": _driver(),
        "runtime": OnnxRuntime(device).label,
        "environment": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        # The package's own version: two packages of that name may be installed, one of them for CPUs only.
        "versions": {**facts["versions"], "onnxruntime": onnxruntime.__version__},
        **{key: facts[key] for key in ("python", "cpu", "cores", "system", "git")},
    }


def collect(made: Path, results: Path, device: str) -> list[Path]:
    """Copies what a device's steps have made into the folder of results, and packs the copies; returns their paths.

    Raises:
      UserError: nothing has been made.
    """
    facts = machine(device)
    found = [file for name in SHOWN for file in _table(made / name, results / name / device, facts)]
    if (made / PRICES).is_file():
        found.append(_copied(made / PRICES, results / "never-slower" / device / PRICES))
    commands: dict[Path, list[str]] = {}
    for report in sorted((made / "papers").glob("*.json")):
        graph, _, costs = report.stem.rpartition("-")
        folder = results / f"{graph}-demo" / device
        found.append(_copied(report, folder / f"{costs}.json"))
        if (validated := made / "validated" / report.name).is_file():
            found.append(_copied(validated, folder / f"{costs}-validated.json"))
        started, *_ = json.loads((report.with_suffix("") / "manifest.json").read_text(encoding="utf-8"))
        commands.setdefault(folder, []).append(shlex.join(["rlflow", *started["argv"]]))
    for divided in sorted((made / "placed").glob("*.json")):
        folder = results / PLACED / device
        found.append(_copied(divided, folder / divided.name))
        devices = ",".join(json.loads(divided.read_text(encoding="utf-8"))["devices"])
        said = shlex.join(["rlflow", "place", divided.stem, "-o", divided.stem, "--devices", devices, "--json"])
        commands.setdefault(folder, []).append(said)
    found += [_written(folder / MACHINE, {"commands": said, **facts}) for folder, said in commands.items()]
    if not found:
        raise UserError(f"{made} has no table, prices or reports: run the other steps of tests/gpu/run.sh first.")
    with tarfile.open(made / "results.tar.gz", "w:gz") as archive:
        for file in found:
            archive.add(file)
    return [*found, made / "results.tar.gz"]


def renew_pages(results: Path) -> list[Path]:
    """Adds the columns of other devices to the pages of the CPU; returns those that have changed."""
    changed = []
    for name in SHOWN:
        page = results / name / "table.md"
        before = page.read_text(encoding="utf-8") if page.is_file() else ""
        after = with_other_devices(before, name, results=results) if before else ""
        if after != before:
            write_text(page, after)
            changed.append(page)
    return changed


def _table(made: Path, folder: Path, facts: dict[str, Any]) -> list[Path]:
    if not (made / "table.csv").is_file():
        return []
    page = (made / "table.md").read_text(encoding="utf-8")
    command = re.search(r"^`(rlflow .+)`$", page, re.MULTILINE)
    copies = [_copied(made / name, folder / name) for name in ("table.csv", "table.md")]
    return [*copies, _written(folder / MACHINE, {"command": command and command[1], **facts})]


def _copied(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return target


def _written(file: Path, facts: dict[str, Any]) -> Path:
    write_text(file, json.dumps(facts, indent=1) + "\n")
    return file


def _driver() -> str | None:
    """Returns the version of NVIDIA's driver, from the kernel or else from its own tool; None if there is none."""
    try:
        said = DRIVER.read_text(encoding="utf-8") if DRIVER.is_file() else _asked()
    except OSError:
        return None
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", said)
    return found and found[0]


def _asked() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
