"""A controller of another package, by entry point: it is given a dream or reality, options, a seed and the budget."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from controller.registry import OFFERED
from experiments.cli import main
from experiments.config.run import load_config
from tests.docs.commands import blocks
from tests.integration.test_train import MODEL, PLAYING, SETTINGS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "controller" / "README.md"
OTHERS = '''


class Silent(Controller):
    """Only acts."""

    name = "silent"

    def __init__(self, *, budget=0):
        with open("budget", "w") as file:
            file.write(str(budget))

    def act(self, observation, *, deterministic):
        return [int(observation["rule_mask"].size) - 1, 0]


class Wrong(Silent):
    name = "wrong"

    def act(self, observation, *, deterministic):
        return [0, 10**6]


class Fails(Silent):
    name, worlds = "fails", ("real",)

    def train(self, world, *, seed=0, on_progress=None):
        return world.no_such_thing


class OffTheTable(Silent):
    name, worlds = "offthetable", ("dream",)

    def act(self, observation, *, deterministic):
        return 10**6


class Speechless(OffTheTable):
    name = "speechless"

    def act(self, observation, *, deterministic):
        return None


class Forgetful(OffTheTable):
    name = "forgetful"

    @property
    def policy(self):
        return self.choose

    def choose(self, observation, seed):
        raise RuntimeError("the weights are lost")


class Blind(Silent):
    name = "blind"

    def view(self, env):
        return None


class Stuck(Silent):
    name, max_steps = "stuck", 3

    def view(self, env):
        return self

    def reset(self, *, seed):
        return {}, {}

    def step(self, action):
        raise RuntimeError("stuck")


class Idle(Stuck):
    name, max_steps = "idle", None


class Leaving(Silent):
    name = "leaving"

    def act(self, observation, *, deterministic):
        raise SystemExit(3)


class Muttering(Silent):
    name, worlds, total = "muttering", ("real",), 2

    def train(self, world, *, seed=0, on_progress=None):
        on_progress(1, 2, None)


class Endless(Muttering):
    name, total = "endless", "many"


class Search(Silent):
    name = "search"


class Seed(Silent):
    name = "seed"
'''
REALIST = '''from controller import Controller


class Realist(Controller):
    """Learns in the real environment, without TensorFlow."""

    name, worlds = "realist", ("real",)

    def act(self, observation, *, deterministic):
        return [int(observation["rule_mask"].size) - 1, 0]

    def train(self, world, *, seed=0, on_progress=None):
        world.make_env().reset(seed=seed)

    def save(self, path):
        with open(path, "w") as file:
            file.write("learned")

    def load(self, path):
        with open(path) as file:
            self.learned = file.read()
'''
NAMES = (
    *("Dreamer", "Silent", "Wrong", "Fails", "OffTheTable", "Speechless", "Forgetful", "Search", "Seed"),
    *("Blind", "Stuck", "Idle", "Leaving", "Muttering", "Endless"),
)
ENTRY_POINTS = "\n".join(
    [
        "[rlflow.controllers]",
        *(f"{name.lower()} = theirs:{name}" for name in NAMES),
        "realist = realist:Realist",
        "planner = my_package:Planner",
    ]
)


def example() -> str:
    """Returns the controller that the page of the controllers shows."""
    block = PAGE.read_text(encoding="utf-8").split("carries it out:\n")[1].split("\nWith this in")[0]
    return textwrap.dedent(block)


def in_the_readme() -> str:
    """Returns the controller that the README shows."""
    (block,) = blocks(ROOT / "README.md", "python")
    return block


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untraced: None) -> None:
    package = tmp_path / "site"
    (package / "theirs-1.2.dist-info").mkdir(parents=True)
    (package / "theirs.py").write_text(example() + OTHERS)
    (package / "realist.py").write_text(REALIST)
    (package / "my_package.py").write_text(in_the_readme())
    (package / "theirs-1.2.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.2\n")
    (package / "theirs-1.2.dist-info/entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.chdir(tmp_path)


def optimise(controller: str, *more: str) -> int:
    return main(
        [
            "optimise",
            MODEL,
            "-o",
            "out.onnx",
            "--force",
            "--run-dir",
            "run",
            "--controller",
            controller,
            *SETTINGS,
            *more,
        ]
    )


def test_the_page_names_all_that_is_offered() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in OFFERED if f"`{name}`" not in page.split("The parameters of the constructor")[1]] == []


def test_the_controller_of_the_readme_has_twenty_lines() -> None:
    assert len([line for line in in_the_readme().splitlines() if line.strip()]) <= 20


@pytest.mark.full
def test_the_controller_of_the_readme_plays_the_plan_that_it_finds_in_the_dream() -> None:
    assert optimise("planner", "--set", "planner.width=4") == 0
    result = json.loads(Path("run/result.json").read_text())
    assert result["controller"] == "planner" and result["world"] == "dream"
    assert all(row["plans"]["episodes"] == 20 for row in result["rounds"])


@pytest.mark.full
def test_the_controller_of_the_page_is_trained_in_a_dream_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    more = [
        "--set",
        "dreamer.plans=7",
        "--set",
        "recollect.rounds=1",
        "--set",
        "recollect.more=0",
        "--set",
        "recollect.episodes=4",
    ]
    assert optimise("dreamer", *more, "--set", "recollect.steps=2") == 0
    result = json.loads(Path("run/result.json").read_text())
    assert result["controller"] == "dreamer" and result["world"] == "dream" and len(result["rounds"]) == 2
    assert all(row["plans"]["episodes"] == 20 for row in result["rounds"])
    kept = np.load("run/checkpoints/controller-1")
    assert kept.ndim == 1
    updates = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert sum(each["stage"] == "controller-1" for each in updates) == 7
    capsys.readouterr()
    assert optimise("dreamer", *more, "--set", "recollect.steps=2", "--set", "dreamer.plan=7") == 2
    said = capsys.readouterr().err
    assert "'dreamer' has no option 'plan'. Did you mean 'plans'? Options: it has plans." in said


def test_one_that_only_acts_plays_at_once_and_is_given_the_budget() -> None:
    assert optimise("silent", "--budget", "33") == 0
    assert Path("budget").read_text() == "33"
    assert json.loads(Path("run/result.json").read_text())["world"] == ""


def test_one_that_takes_no_budget_is_not_given_one_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert optimise("dreamer", "--budget", "7") == 2
    said = capsys.readouterr().err
    assert "--budget 7 is for beam, best-of-n," in said and "'dreamer', which does not read it. Leave it out." in said


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("wrong", "takes the action [0, 1000000], which is not legal there"),
        ("fails", "raises AttributeError in train(): 'RealWorld' object has no attribute 'no_such_thing'"),
        ("offthetable", "takes the action 1000000, which is not legal there"),
        ("speechless", "takes the action None, but a whole number was expected"),
        ("forgetful", "raises RuntimeError in policy(): the weights are lost"),
        ("blind", "returns None in view(), but an environment with Gymnasium's reset and step was expected"),
        (
            "stuck",
            "raises TypeError in reset() of its view: Stuck.reset() got an unexpected keyword argument 'options'",
        ),
        ("idle", "returns the info['cost_ms'] None in reset() of its view, but a number, as of the real environment,"),
        ("leaving", "raises SystemExit in act(): 3"),
        ("muttering", "calls on_progress(1, 2, None) in train(), but on_progress(done, total, metrics) with two whole"),
        ("endless", "has the total 'many', but a whole number of at least 0 was expected"),
    ],
)
def test_a_broken_one_is_named_in_one_sentence(name: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimise(name) == 2
    said = capsys.readouterr().err
    assert f"The controller '{name}' of the package theirs 1.2 cannot be used" in said and fault in said
    assert "Traceback" not in said and not Path("out.onnx").exists()


def test_a_world_that_it_does_not_learn_in_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert optimise("dreamer", "--world", "real") == 2
    assert "'dreamer' learns in the world dream, but world=real came" in capsys.readouterr().err


def test_what_it_has_learned_in_reality_is_loaded_and_played_without_tensorflow(tmp_path: Path) -> None:
    assert optimise("realist") == 0
    loading = "import experiments; assert experiments.load('run').controller._made.learned == 'learned'"
    playing = ["optimise", MODEL, "-o", "again.onnx", "--run-dir", "again", "--from", "run", *PLAYING]
    for program in (loading, f"from experiments.cli import main; assert main({playing}) == 0"):
        without = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); {program}"
        command = [sys.executable, "-c", f"{without}; assert 'tensorflow' not in sys.modules"]
        subprocess.run(command, check=True)


@pytest.mark.parametrize("name", ["search", "seed"])
def test_one_with_the_name_of_a_setting_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimise(name) == 2
    said = capsys.readouterr().err
    assert f"the controller '{name}' of an installed package cannot be used" in said and "another name" in said


def test_a_setting_is_left_alone_by_one_of_its_name() -> None:
    config = load_config("best", {"controller": "taso"}, ["search.alpha=1.1", "seed=7"])
    assert (config.search.alpha, config.seed, config.options) == (1.1, 7, {})
