"""Measures what optimising a model of over 2 GB takes: `python -m tests.perf.large_model [--layers N] [--out FILE]`.

Builds a model with external data (seeded, written to TMPDIR, where four times its size has to be free) and runs `rlflow
optimise` on it in a process of its own, from file to file. Prints the peak memory of that process and the sizes of the
files. Another process, shown for comparison, only opens the two ONNX Runtime sessions that the measurement needs at
once, of the model and of the result. Anonymous memory is what counts: mapped files are resident too, but the system
drops their pages when it needs them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from environment.inputs import input_specs, random_feeds
from environment.runtimes import OnnxRuntime
from taso_ext.files import write_text
from taso_ext.onnx_io.model_file import write_model
from taso_ext.onnx_io.reading import read_model
from tests.perf.loading import big_model

_SETTINGS = ("measure.pairs=2", "measure.sessions=1", "measure.control=false")
COMMAND = ["--controller", "greedy", *(part for setting in _SETTINGS for part in ("--set", setting))]
"""Options of `rlflow optimise`; a control in the measurement would be a third session."""
LAYERS = 15
"""The default number of layers, of 0.2 GB each."""
_POLL_S = 0.01


class Peak(NamedTuple):
    """The largest memory of a process, and how long it ran."""

    anonymous_bytes: int
    resident_bytes: int
    seconds: float


def watch(command: Sequence[str]) -> Peak:
    """Runs a Python command in a process of its own and returns its peak memory and time.

    Raises:
      SystemExit: if the command fails.
    """
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command])
    anonymous = resident = 0
    while process.poll() is None:
        fields = _status(process.pid)
        anonymous, resident = max(anonymous, fields.get("RssAnon", 0)), max(resident, fields.get("VmHWM", 0))
        time.sleep(_POLL_S)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    return Peak(anonymous, resident, time.perf_counter() - begin)


def open_sessions(paths: Sequence[Path]) -> None:
    """Opens sessions of models with equal inputs, all at once as a measurement does, and runs each once."""
    models = [read_model(path) for path in paths]
    feeds = random_feeds(input_specs(models[0]), np.random.default_rng(0))
    for session in [OnnxRuntime().open(model, feeds) for model in models]:
        session.run()


def measure(layers: int) -> str:
    """Runs the measurement and returns the table in Markdown."""
    with tempfile.TemporaryDirectory() as directory:
        source, result = Path(directory) / "big.onnx", Path(directory) / "out.onnx"
        write_model(big_model(layers), source)
        arguments = ["optimise", str(source), "-o", str(result), "--run-dir", f"{directory}/run", *COMMAND]
        whole = watch(["-c", "import sys; from experiments.cli import main; sys.exit(main())", *arguments])
        sessions = watch(["-m", "tests.perf.large_model", "--sessions", str(source), str(result)])
        sizes = [sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) for path in (source, result)]
    return "\n".join(
        [
            "# A model of over 2 GB, from file to file",
            "",
            f"Made by `python -m tests.perf.large_model --layers {layers}`: `rlflow optimise big.onnx -o out.onnx",
            f"{' '.join(COMMAND)}`, beside a process",
            "that only opens ONNX Runtime sessions of the model and of the result at once, as the measurement does.",
            "Anonymous memory is what a process holds itself; resident memory counts the pages of mapped files too,",
            "which the system drops when it needs them. GB are 10^9 bytes.",
            "",
            "| | GB | s |",
            "|---|---:|---:|",
            f"| the model, with its external data | {sizes[0] / 1e9:.2f} | |",
            f"| the result, with its external data | {sizes[1] / 1e9:.2f} | |",
            f"| both sessions alone, anonymous | {sessions.anonymous_bytes / 1e9:.2f} | {sessions.seconds:.0f} |",
            f"| the command, anonymous | {whole.anonymous_bytes / 1e9:.2f} | {whole.seconds:.0f} |",
            f"| both sessions alone, resident | {sessions.resident_bytes / 1e9:.2f} | |",
            f"| the command, resident | {whole.resident_bytes / 1e9:.2f} | |",
            "",
        ]
    )


def _status(pid: int) -> dict[str, int]:
    """Returns the sizes in a process's status, in bytes by field; none once the process has ended."""
    try:
        lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    except OSError:
        return {}
    return {line[0].rstrip(":"): 1024 * int(line[1]) for line in lines if len(line) == 3 and line[2] == "kB"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=LAYERS, help=f"of 0.2 GB each (default: {LAYERS})")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--sessions", type=Path, nargs="+", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sessions:
        open_sessions(options.sessions)
        return
    table = measure(options.layers)
    print(table)
    if options.out:
        write_text(options.out, table)


if __name__ == "__main__":
    main()
