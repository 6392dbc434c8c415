"""Runs the fuzz targets one after another and counts what they executed; each target stops at its first finding.

    make fuzz                                # half a minute each
    make fuzz FUZZ_SECONDS=600
    make fuzz FUZZ_RUNS=100000 FUZZ_TARGETS=rules

The folder runs/fuzz keeps grown corpora, findings and one line of JSON for each run (`runs.jsonl`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
KEPT = Path("runs/fuzz")
NATIVE = {"rules": 2048, "buffers": 128}
PYTHON = {"models": 4096, "taso_file": 2048}
MAX_LENGTH = {**NATIVE, **PYTHON}
HANG_SECONDS = 10  # the longest time of one execution

# Stacks of two frames and a small store of freed memory halve the time of an execution.
SANITIZERS = {
    "ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=4:thread_local_quarantine_size_kb=64",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass(frozen=True)
class Run:
    """The result of one run of a target.

    Attributes:
      edges: how many edges of the instrumented code the corpus reaches.
      finding: the file with the input that failed, if one did.
    """

    target: str
    executions: int
    seconds: float
    edges: int
    corpus: int
    finding: str | None


def fuzz(target: str, seconds: int, runs: int) -> Run:
    """Runs a target for `seconds`, or for `runs` executions if that is not 0."""
    corpus, seeds = KEPT / "corpus" / target, HERE / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(KEPT.glob(f"{target}-*"))
    begin = time.monotonic()
    report = subprocess.run(
        [*_program(target), *_options(target, seconds, runs), str(corpus), str(seeds)],
        env={**os.environ, **SANITIZERS, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    (KEPT / f"{target}.log").write_text(report.stdout, encoding="utf-8")
    findings = sorted(set(KEPT.glob(f"{target}-*")) - before)
    if report.returncode != 0 and not findings:
        raise SystemExit(f"{target} did not run; the end of {KEPT / target}.log:\n{report.stdout[-2000:]}")
    return Run(
        target,
        _last(r"stat::number_of_executed_units:\s*(\d+)", report.stdout) or _last(r"^#(\d+)", report.stdout),
        round(time.monotonic() - begin, 1),
        _last(r"cov: (\d+)", report.stdout),
        _last(r"corp: (\d+)", report.stdout),
        str(findings[0]) if findings else None,
    )


def _program(target: str) -> list[str]:
    return [f"build/fuzz/{target}"] if target in NATIVE else [sys.executable, str(HERE / f"fuzz_{target}.py")]


def _options(target: str, seconds: int, runs: int) -> list[str]:
    dictionary = HERE / f"{target}.dict"
    return [
        f"-runs={runs}" if runs else f"-max_total_time={seconds}",
        f"-max_len={MAX_LENGTH[target]}",
        f"-timeout={HANG_SECONDS}",
        "-rss_limit_mb=4096",
        "-len_control=0",
        "-entropic=0",  # its bookkeeping takes longer than the executions
        "-print_final_stats=1",
        f"-artifact_prefix={KEPT}/{target}-",
        *([f"-dict={dictionary}"] if dictionary.is_file() else []),
    ]


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text, re.MULTILINE)
    return int(found[-1]) if found else 0


def _total(target: str) -> int:
    """Returns the number of executions of a target in all runs that were kept."""
    lines = (KEPT / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    return sum(run["executions"] for run in map(json.loads, lines) if run["target"] == target)


def main() -> int:
    """Runs the command; returns 1 if a target found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=list(MAX_LENGTH), metavar="target", help=", ".join(MAX_LENGTH))
    parser.add_argument("--seconds", type=int, default=30, help="for each target (default: 30)")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target, instead of --seconds")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(MAX_LENGTH):
        parser.error(f"unknown target {sorted(unknown)[0]!r}; expected some of {', '.join(MAX_LENGTH)}")
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = False
    for target in arguments.targets:
        run = fuzz(target, arguments.seconds, arguments.runs)
        with (KEPT / "runs.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(run)) + "\n")
        print(
            f"{target:10} {run.executions:>10,} executions in {run.seconds:,.0f} s, {run.edges:,} edges, "
            f"{run.corpus:,} inputs kept; {_total(target):,} executions in all",
            flush=True,
        )
        if run.finding:
            failed = True
            print(f"{target:10} FOUND {run.finding}, see {KEPT / target}.log", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
