"""Models that kill ONNX Runtime, and with it the process, end with a sentence and a verified result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from environment.verification import verify
from taso_ext.onnx_io.reading import read_model

ROOT = Path(__file__).parents[2]
DEADLY = ROOT / "tests/taso_ext/samples/data/pytorch/bag-dynamo.onnx"
"""A model that ONNX Runtime 1.31 and 1.32 cannot open with any of its optimisations without dying of SIGSEGV."""


GREEDY = ("--controller", "greedy", "--restart")


def run(tmp_path: Path, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own, after some other code."""
    code = f"import sys\n{before}\nfrom experiments.cli import main\nsys.exit(main())"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)


@pytest.fixture(autouse=True)
def _from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_model_that_kills_the_runtime_is_rewritten_and_verified(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    done = run(tmp_path, "optimise", str(DEADLY), "-o", str(output), "--costs", "roofline:xeon", *GREEDY)
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("rlflow:")]
    assert "crashes (SIGSEGV) when it opens the graph 'main_graph' of 38 operators at optimisation level all" in said
    assert "Traceback" not in done.stderr and "Resuming" in done.stderr
    assert "Verified in ONNX Runtime" in done.stdout and "Not measured end to end, because" in done.stdout
    assert done.stdout.count("rules applied") == 1
    assert verify(read_model(DEADLY), read_model(output), num_inputs=2).equal


ONE_IS_DEADLY = """
import os, pathlib, signal, zlib
from experiments import cli

def with_a_deadly_graph(arguments, real_main=cli._main):
    from onnxruntime import InferenceSession
    mark, opened, real = pathlib.Path("deadly"), [], InferenceSession.__init__

    def opening(self, source, sess_options, **others):
        name = str(zlib.crc32(source))
        if not mark.exists() and "ENABLE_ALL" in str(sess_options.graph_optimization_level):
            opened.extend([name] * (name not in opened))
            if len(opened) == 3:
                mark.write_text(name)
        if mark.exists() and mark.read_text() == name:
            os.kill(os.getpid(), signal.SIGSEGV)
        real(self, source, sess_options, **others)

    InferenceSession.__init__ = opening
    return real_main(arguments)

cli._main = with_a_deadly_graph
"""
"""Lets the third graph that is opened with all optimisations kill the process, now and in each later process."""


def test_a_climb_goes_on_without_a_graph_that_kills_the_runtime(tmp_path: Path) -> None:
    arguments = ["optimise", "squeezenet1.1-tiny", "-o", "out.onnx", "--controller", "climb", "--run-dir", "run"]
    arguments += ["--costs", "roofline:xeon", "--time", "3600", "--budget", "5", "--set", "measure.pairs=2"]
    done = run(tmp_path, *arguments, before=ONE_IS_DEADLY)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "deadly").exists(), "nothing was deadly, so nothing was tested"
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("rlflow:")]
    assert "crashes (SIGSEGV) when it opens" in said and "goes on without that" in said
    lines = [json.loads(line) for line in (tmp_path / "run/checkpoints/climb.jsonl").read_text().splitlines()]
    refused = [line for line in lines if line["kind"] == "refused"]
    assert len(refused) == 1 and "crashes (SIGSEGV)" in refused[0]["reason"]
    timed = [line["graph"] for line in lines if line["kind"] == "timed"]
    assert len(set(timed)) >= 5 and refused[0]["graph"] not in timed
    assert (tmp_path / "out.onnx").is_file() and (tmp_path / "run/DONE").is_file()


def test_a_second_model_that_kills_the_runtime_does_not_cost_the_first_one(tmp_path: Path) -> None:
    arguments = ["optimise", "nasrnn-tiny", str(DEADLY), "-o", "folder", "--json", "--costs", "roofline:xeon", *GREEDY]
    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert [Path(each["output"]).name for each in figures] == ["nasrnn-tiny.onnx", "bag-dynamo.onnx"]
    assert done.stderr.count("Loading nasrnn-tiny") == 1 and done.stderr.count("Loading " + str(DEADLY)) == 2
    assert all((tmp_path / "folder" / name).is_file() for name in ("nasrnn-tiny.onnx", "bag-dynamo.onnx"))


def test_two_models_that_kill_the_runtime_are_compared_without_its_optimisations(tmp_path: Path) -> None:
    done = run(tmp_path, "check", str(DEADLY), str(DEADLY), "--device", "cpu")
    assert done.returncode == 0 and done.stdout.startswith("Equal: ") and "Not timed, because" in done.stdout


def test_a_model_that_cannot_be_timed_gets_advice(tmp_path: Path) -> None:
    arguments = ["optimise", str(DEADLY), "-o", "out.onnx", "--clean", "none", "--costs", "endtoend:cpu"]
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and not (tmp_path / "out.onnx").exists()
    assert "cannot be left out" in done.stderr.splitlines()[-1] and "measure.level=disabled" in done.stderr
