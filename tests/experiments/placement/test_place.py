"""`rlflow place`: what it prints and writes, and what it says of bad input."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import onnx
import pytest

from environment import zoo
from experiments.cli import main

CORES = sorted(os.sched_getaffinity(0))
TWO = ",".join(f"cpu:{core}" for core in CORES[:2])
QUICK = ["--costs", "roofline:xeon", "--budget", "50", "--pairs", "2"]
SMALL_GPU = """
name = "too small"
[[device]]
name = "cpu:0"
costs = "roofline:xeon"
memory_gb = 0.000001
[[device]]
name = "cuda:0"
costs = "roofline:k80"
memory_gb = 0.000001
[[link]]
between = ["cpu:0", "cuda:0"]
gb_per_s = 12
latency_us = 10
"""


def test_a_model_is_divided_verified_timed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    arguments = ["place", "inception-v3-tiny", "-o", str(folder), "--devices", TWO, *QUICK]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert re.search(r"Equal: on 1\d input sets", said)
    assert len(re.findall(r"^\| .* \| .* \| .* \| .* \|$", said, re.MULTILINE)) == 5
    assert {"run.py", "plan.json", "model.onnx", "stage-000.onnx"} <= {path.name for path in folder.iterdir()}
    assert main(arguments) == 2
    assert "exists. Use --force" in capsys.readouterr().err
    assert main([*arguments, "--force", "--untimed", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["equal"] is True
    assert figures["timing"] is None
    assert not list(folder.glob(".rlflow*"))


def test_placers_are_compared_on_a_simulated_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", "bert-base-tiny", "--machine", "k80x2", "--budget", "50", "--groups", "12"]) == 0
    said = capsys.readouterr().out
    for placer in ("single-cpu", "single-gpu", "heft", "m-etf", "annealing"):
        assert f"| {placer} | " in said
    assert main(["place", "bert-base-tiny", "--machine", "two-hosts", "--placers", "heft", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["placer"] == "heft"
    assert row["step_ms"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "cpu:4096", "-o", "out"], "is not here"),
        (["--devices", "cuda:9,cpu:0", "-o", "out"], "cuda"),
        (["--devices", TWO], "needs -o DIR"),
        (["--devices", TWO, "-o", "out", "--placers", "heft,metis"], "one placer"),
        (["--devices", TWO, "-o", "out", "--costs", "roofline:k9"], "roofline"),
        (["--devices", TWO, "-o", "out", "--placers", "het", "--costs", "roofline:xeon"], "did you mean 'heft'"),
        (["--machine", "k80x2", "-o", "out"], "-o is for --devices"),
        (["--machine", "k80"], "no machine is called 'k80'"),
        (["--machine", "none.toml"], "cannot read"),
        (
            ["--machine", "small.toml", "--budget", "50"],
            r"fits on machine 'too small': .*cpu:0 needs .* GB are missing",
        ),
        (["--machine", "unlinked.toml"], "no link by which 'cpu:0' reaches 'cuda:0'"),
        (["--machine", "k80x2", "--groups", "0"], "--groups must be at least 1"),
        (["--machine", "k80x2", "--scope", "("], "no regular expression"),
        (["--machine", "k80x2", "--placers", "scotchh"], "did you mean 'scotch'"),
    ],
)
def test_bad_input_gives_one_paragraph_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if message == "cuda" and "CUDAExecutionProvider" in __import__("onnxruntime").get_available_providers():
        pytest.skip("there is a GPU here")
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL_GPU)
    Path("unlinked.toml").write_text(SMALL_GPU.replace('["cpu:0", "cuda:0"]', '["cpu:0", "root"]'))
    assert main(["place", "bert-base-tiny", *arguments]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rlflow")]
    assert len(said) == 1
    assert re.search(message, said[0])
    assert not Path("out").exists()


def test_the_model_itself_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(zoo.build("bert-base-tiny"), path)
    before = path.read_bytes()
    assert main(["place", str(path), "-o", str(tmp_path), "--devices", TWO, *QUICK, "--force"]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_training_graph_is_placed_with_its_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    name = "rnnlm-tiny:outputs=3,batch=2,training=adam"
    arguments = ["--placers", "single-gpu,heft", "--groups", "6", "--json"]
    assert main(["place", name, "--machine", "k80x2", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows[0]["assignment"]) <= 6
    weights = 4 * (2 * 50 * 16 + 50 + 2 * 4 * 16 * (2 * 16 + 1))
    assert rows[0]["peak_bytes"][1] > 3 * weights  # with both moments


def test_what_is_not_finite_is_null(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has no infinities."""
    monkeypatch.setattr("experiments.placement.simulated.Row.to_json", lambda self: {"step_ms": float("inf")})
    assert main(["place", "bert-base-tiny", "--machine", "k80x2", "--placers", "heft", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"step_ms": None}]
