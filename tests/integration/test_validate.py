"""`rlflow validate` replays a run without TensorFlow, and names what is not as the run recorded it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from environment import zoo
from experiments.cli import main
from experiments.runs.result import Result
from tests.commands import failure

pytestmark = pytest.mark.xdist_group("resume")  # one worker: the run with a world model is made once

MODEL = "squeezenet1.1-tiny"
SEARCH = ("--controller", "taso", "--budget", "20", "--costs", "roofline:rtx2070")
QUICK = ("--set", "measure.pairs=2", "--set", "measure.sessions=1", "--set", "measure.control=false")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run directory `run` of a search and what it wrote, `out.onnx`."""
    folder = tmp_path_factory.mktemp("searched")
    onnx.save(zoo.build(MODEL), folder / "model.onnx")
    files = (str(folder / "model.onnx"), "-o", str(folder / "out.onnx"), "--run-dir", str(folder / "run"))
    assert main(["optimise", *files, *SEARCH, *QUICK, "--set", "evaluate.sampled_episodes=1"]) == 0
    return folder


@pytest.fixture
def there(searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folder, which is the current one; TensorFlow cannot be imported."""
    shutil.copytree(searched, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    yield tmp_path / "here"


def validated(capsys: pytest.CaptureFixture[str], *more: str, status: int) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["validate", "run", "--json", *more]) == status
    return dict(json.loads(capsys.readouterr().out))


def change(name: str, edit: Callable[[Any], None]) -> None:
    """Changes a JSON file of the run."""
    content = json.loads(Path("run", name).read_text())
    edit(content)
    Path("run", name).write_text(json.dumps(content))


def test_a_run_is_as_it_was_recorded(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = validated(capsys, status=0)
    assert found["holds"] and not found["differences"] and found["recomputed"] == "exactly"
    assert found["episodes"] == 2 and found["steps"] > 2
    assert found["output"] == "out.onnx" and found["checked"]["verification"]["equal"]
    assert found["checked"]["measured"]["low"] <= found["checked"]["measured"]["high"]
    assert main(["validate", "run", "--untimed"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("As recorded: 2 episodes") and "Equal: on" in said and "not asked for" in said


def test_a_run_that_learned_is_replayed_without_tensorflow(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = uninterrupted.with_suffix(".run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.chdir(tmp_path)
    assert main(["validate", str(run), "--untimed", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 60 + 6 + 1 + 1 + 2 + 3 and found["holds"]
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    shutil.copytree(run, "run")
    shard = sorted(Path("run/checkpoints/recollected-1").iterdir())[-1]
    arrays = dict(np.load(shard))
    arrays["cost_ms"][1] *= 1 + 1e-6
    np.savez(shard, **arrays)
    (difference,) = validated(capsys, "--untimed", "--output", str(uninterrupted), status=1)["differences"]
    assert difference["record"].endswith(f"{shard.name}, episode 4") and difference["step"] == 1
    shard.unlink()
    assert f"{shard.stem[:15]}" in failure(capsys, "validate", "run", "--untimed")


@pytest.mark.parametrize(
    ("name", "edit", "record", "step", "what"),
    [
        ("checkpoints/evaluation.json", ("deterministic", "costs_ms", 1), "deterministic episode 0", 1, "cost"),
        ("checkpoints/evaluation.json", ("random", 0, "rewards", 2), "random episode 0", 2, "reward"),
        ("checkpoints/evaluation.json", ("random", 0, "rule_names", 1), "random episode 0", 1, "rewrite"),
        ("checkpoints/evaluation.json", ("deterministic", "graph_hash"), "deterministic episode 0", 0, "start graph"),
        ("actions.json", ("actions", 0, "cost_ms"), "actions.json", 0, "cost after action 0"),
        ("actions.json", ("actions", 0, "rule_name"), "actions.json", 0, "rewrite"),
        ("result.json", ("graph_hash",), "result.json", None, "hash of the exported graph"),
        ("result.json", ("after", "cost_ms"), "result.json", None, "cost_ms"),
        ("result.json", ("before", "memory_bytes"), "result.json", None, "memory_bytes"),
        ("result.json", ("improvements", "(b) controller, deterministic episode"), "result.json", None, "(b)"),
        ("result.json", ("episodes", "(b) controller, deterministic episode"), "result.json", None, "episodes: (b)"),
        ("result.json", ("noise", "(b) controller, deterministic episode"), "result.json", None, "noise: (b)"),
        ("result.json", ("before", "cost_noise"), "result.json", None, "cost_noise of the graph before"),
        ("result.json", ("counts", "real_steps"), "result.json", None, "counts: real_steps"),
        ("result.json", ("counts", "cost_evaluations"), "result.json", None, "counts: cost_evaluations"),
        ("result.json", ("stage_seconds", "verify"), "result.json", None, "stage_seconds: verify"),
        ("result.json", ("measured", "ratio"), "result.json", None, "measured: ratio"),
        ("checkpoints/measured.json", ("low",), "result.json", None, "measured: low"),
        *(
            ("result.json", (name,), "result.json", None, name)
            for name in (
                *("model", "controller", "world", "costs", "seed", "found_by", "stop_reason", "candidates", "timed"),
                *("largest_difference", "tolerance", "verified_in", "bytes_before", "bytes_after", "raised_opset"),
                *("peak_memory_bytes", "reward_noise", "ratio_noise", "cut_off"),
            )
        ),
    ],
    ids=lambda part: str(part)[:60],
)
def test_every_changed_figure_is_named(
    name: str,
    edit: tuple[Any, ...],
    record: str,
    step: int | None,
    what: str,
    there: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def changed(content: Any) -> None:
        *path, last = edit
        for key in path:
            content = content[key]
        content[last] = f"{content[last]}x" if isinstance(content[last], str) else content[last] * 1.001 + 1e-4

    change(name, changed)
    found = validated(capsys, "--untimed", status=1)["differences"]
    assert record in found[0]["record"] and found[0]["step"] == step and what in found[0]["what"]
    assert found[0]["expected"] != found[0]["found"]
    assert main(["validate", "run", "--untimed"]) == 1
    assert capsys.readouterr().out.startswith("DIFFERENT: ")


def test_every_figure_of_the_result_is_derived_or_named_as_not_checked(there: Path) -> None:
    """Changes each field of result.json alone; the page for users names those whose change nothing finds."""
    stored = json.loads(Path("run/result.json").read_text())
    found: set[str] = set()
    assert set(stored) == {field.name for field in dataclasses.fields(Result)}
    for name, value in stored.items():
        change("result.json", lambda result, name=name, value=value: result.update({name: other_than(value)}))
        if main(["validate", "run", "--untimed"]) == 0:
            found.add(name)
        change("result.json", lambda result, name=name, value=value: result.update({name: value}))
    page = (Path(__file__).parents[2] / "docs/how-to/runs.md").read_text()
    unchecked = page.partition("Not checked are")[2].partition("\n\n")[0]
    assert found and found <= set(re.findall(r"`(\w+)`", unchecked))


def other_than(value: Any) -> Any:
    """Returns another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 1.01 + 1
        case str():
            return f"{value}x"
        case list():
            return [*value, "x"]
        case dict():
            return {name: other_than(each) for name, each in value.items()} | {"x": 1}
    return 7


def test_rounds_are_compared_with_the_files_of_their_stages(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    shutil.copytree(uninterrupted.with_suffix(".run"), "run")
    asked = ("--untimed", "--output", str(uninterrupted))
    for name, edit, record in (
        ("result.json", lambda result: result["rounds"][1]["plans"].update(gap=0.0), "result.json"),
        ("result.json", lambda result: result["rounds"][0].update(real_steps=1), "result.json"),
        ("result.json", lambda result: result["accuracy"][0].update(reward_mae=0.0), "result.json"),
        ("result.json", lambda result: result.update(played=1 - result["played"]), "result.json"),
        ("checkpoints/exploit.json", lambda plans: plans.update(real_percent=99.0), "training.json"),
        ("checkpoints/accuracy-1.json", lambda rows: rows[-1].update(reward_mae=0.0), "training.json"),
        ("checkpoints/training.json", lambda facts: facts.update(num_collected=3), "result.json"),
        ("checkpoints/played-round.json", lambda played: played.update(round=5), "played-round.json"),
    ):
        before = Path("run", name).read_text()
        change(name, edit)
        assert Path("run", name).read_text() != before
        found = validated(capsys, *asked, status=1)["differences"]
        assert record in found[0]["record"], name
        Path("run", name).write_text(before)
    validated(capsys, *asked, status=0)


def test_the_journal_of_a_climb_is_replayed(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads(Path("run/config.json").read_text())["fingerprint"]
    begun = {
        "kind": "begun",
        "format": 1,
        "graph": manifest["graph"],
        "rules": "other",
        "runtime": "",
        "elapsed_s": 0.0,
    }
    Path("run/checkpoints/climb.jsonl").write_text(json.dumps(begun) + "\n")
    (difference,) = validated(capsys, "--untimed", status=1)["differences"]
    assert difference["record"] == "checkpoints/climb.jsonl, line 1" and difference["what"] == "the rule set"
    Path("run/checkpoints/climb.jsonl").write_text(json.dumps({**begun, "rules": manifest["rules"]}) + "\n")
    validated(capsys, "--untimed", status=0)


def test_a_ratio_is_compared_where_it_was_measured(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def invent(measured: dict[str, Any]) -> None:
        measured.update(ratio=0.1, low=0.09, high=0.11, pairs=8, sessions=2)

    change("config.json", lambda config: config["measure"].update(pairs=8, sessions=2))
    change("checkpoints/measured.json", invent)
    change("result.json", lambda result: invent(result["measured"]))
    (difference,) = validated(capsys, status=1)["differences"]
    assert difference["what"] == "the measured ratio" and difference["expected"] == "0.100 [0.090, 0.110]"
    change("manifest.json", lambda commands: commands[0].update(setting="another machine"))
    found = validated(capsys, status=0)
    assert "another machine" in found["other_setting"] and found["measured_then"]["ratio"] == 0.1
    assert main(["validate", "run"]) == 0
    assert "the ratio was 0.100 [0.090, 0.110]; the two were not compared" in capsys.readouterr().out


def test_another_processor_may_round_differently(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change("result.json", lambda result: result.update(largest_difference=2 * result["largest_difference"]))
    validated(capsys, "--untimed", status=1)
    change("manifest.json", lambda commands: commands[0].update(processor="another one"))
    validated(capsys, "--untimed", status=0)
    change("result.json", lambda result: result.update(largest_difference=1.0))
    (difference,) = validated(capsys, "--untimed", status=1)["differences"]
    assert difference["what"] == "largest_difference" and "at most" in difference["found"]


def test_another_rewrite_leads_to_another_graph(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change("actions.json", lambda log: log["actions"].pop())
    found = {each["what"] for each in validated(capsys, "--untimed", status=1)["differences"]}
    assert "the hash of the exported graph" in found


def test_a_file_that_is_not_what_the_run_wrote_is_named(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy("model.onnx", "out.onnx")  # it computes the same
    found = validated(capsys, "--untimed", status=1)
    assert "SHA-256" in found["differences"][0]["what"] and found["checked"]["verification"]["equal"]
    onnx.save(zoo.build("bert-base-tiny"), "out.onnx")
    found = validated(capsys, "--untimed", status=1)
    assert "different" in found["differences"][-1]["found"] and found["checked"] is None
    Path("out.onnx").write_bytes(Path("model.onnx").read_bytes()[:500])
    assert "cannot be read" in validated(capsys, "--untimed", status=1)["differences"][-1]["found"]
    Path("out.onnx").unlink()
    found = validated(capsys, "--untimed", status=0)  # the actions are there
    assert "out.onnx is not here" in found["output"] and found["checked"]["verification"]["equal"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda: shutil.rmtree("run"), "is no run directory"),
        (lambda: Path("run/DONE").unlink(), "not finished"),
        (lambda: Path("run/checkpoints/evaluation.json").write_text('{"collection"'), "evaluation.json is damaged"),
        (lambda: Path("run/checkpoints/evaluation.json").unlink(), "evaluation.json is damaged: it is missing"),
        (lambda: Path("run/actions.json").write_text('{"actions": [{"rule": 1}]}'), "actions.json is damaged"),
        (lambda: Path("run/result.json").write_text("{}"), "result.json is damaged"),
        (lambda: Path("run/config.json").write_text("[]"), "config.json is damaged"),
        (lambda: onnx.save(zoo.build("bert-base-tiny"), "model.onnx"), "The model of run has changed"),
        (lambda: change("config.json", lambda config: config.update(only=["merge-*"])), "The rule set of run has"),
        (
            lambda: change("checkpoints/evaluation.json", lambda found: found["random"][0]["costs_ms"].append(None)),
            "evaluation.json is damaged",
        ),
    ],
    ids=["no run", "unfinished", "cut", "missing", "log", "figures", "settings", "model", "rules", "lengths"],
)
def test_what_cannot_be_replayed_is_one_paragraph(
    damage: Callable[[], Any], said: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change("config.json", lambda config: None)
    change("manifest.json", lambda commands: [command.update(model="model.onnx") for command in commands])
    damage()
    assert said in failure(capsys, "validate", "run", "--untimed")


def test_a_device_that_is_not_here_and_files_that_are_elsewhere(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "'nosuch'" in failure(capsys, "validate", "run", "--device", "nosuch")
    assert "no file" in failure(capsys, "validate", "run", "--untimed", "--output", "nosuch.onnx")
    Path("model.onnx").rename("moved.onnx")
    Path("out.onnx").rename("result.onnx")
    moved = ("--model", "moved.onnx", "--output", "result.onnx")
    assert validated(capsys, "--untimed", *moved, status=0)["output"] == "result.onnx"


def test_measured_costs_are_compared_within_their_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Without predictions, which need more kernels timed than the run has.
    changes = ("search.retiming_seconds=0", "evaluate.sampled_episodes=1", "measure.predict=false")
    costs = ("--costs", "measured:cpu", *(part for change in changes for part in ("--set", change)))
    command = ["optimise", MODEL, "-o", "out.onnx", "--controller", "greedy", "--run-dir", "run", *costs, *QUICK]
    assert main(command) == 0
    found = validated(capsys, "--untimed", status=0)
    assert found["recomputed"] == "within noise" and "database" in found["why"]
    change("checkpoints/evaluation.json", lambda found: found["random"][0]["costs_ms"].__setitem__(1, 1e3))
    (difference,) = validated(capsys, "--untimed", status=1)["differences"]
    assert difference["what"] == "the cost" and difference["step"] == 1


def test_the_counts_of_a_run_are_in_its_result(uninterrupted: Path) -> None:
    run = uninterrupted.with_suffix(".run")
    result = json.loads((run / "result.json").read_text())
    counts, logged = result["counts"], [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = sum(line["steps"] for line in logged if line["stage"] in ("collect", "recollect-1", "evaluate"))
    stages = json.loads((run / "stages.json").read_text())
    tried = [stages[name]["counts"] for name in ("exploit", "exploit-1")]  # they choose the round that plays
    assert counts["real_steps"] == steps + sum(each["real_steps"] for each in tried) > steps
    assert counts["cost_evaluations"] == steps + sum(each["cost_evaluations"] for each in tried)
    trained = sum(4 * line["length"] for line in logged if line["stage"] in ("controller", "controller-1"))
    planned = stages["recollect-1"]["counts"]["dreamed_steps"] + sum(each["dreamed_steps"] for each in tried)
    assert counts["dreamed_steps"] == round(trained) + planned
    assert counts["kernel_timings"] == counts["end_to_end_timings"] == 0
    assert "dreamed steps" in (run / "report.md").read_text()
