"""Every command of the README and of the documentation is known, and runs at a scale that takes seconds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from experiments.cli import build_parser, main
from experiments.reproduce import TABLES
from tests.docs.commands import PAGES, RECORDED, ROOMS, ROOT, Command, at_smoke_scale, blocks, commands, newest

ALL = [command for page in (*PAGES, *ROOMS) for command in commands(page)]
WITH_RLFLOW = [page for page in PAGES if any(command.words[0] == "rlflow" for command in commands(page))]
OF_ANOTHER_PACKAGE = "dreamer"
"""A controller that a page has as an example of one's own; `tests/integration/test_own_controller.py` runs one."""
QUICKLY = ["--set", "measure.pairs=2", "--set", "measure.sessions=1"]
FIRST_RUN = ROOT / "docs/tutorials/first-run.md"
LIBRARY = ROOT / "docs/how-to/library.md"  # tests/integration/test_library.py runs it
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
IN_SMOKE_ALONE = {"learned"}
"""Tables that only `test_smoke.py` makes, with all others: this one fits its trees for every family of networks."""
MADE_ELSEWHERE = "tests/experiments/reproduce"
"""The tests there make each table at the scale `smoke`, as far as it takes seconds."""


def optimising(page: Path) -> list[Command]:
    """Returns the commands of a page that optimise a model with a controller that there is."""
    of_page = [command for command in commands(page) if command.words[:2] == ["rlflow", "optimise"]]
    return [command for command in of_page if OF_ANOTHER_PACKAGE not in command.words]


def name_of(value: object) -> str:
    if isinstance(value, Command):
        return f"{value.page.relative_to(ROOT)}: {' '.join(value.words)}"
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


def test_the_pages_have_commands() -> None:
    """Otherwise the tests below could not fail."""
    assert len(ALL) > 70 and len(WITH_RLFLOW) > 7
    assert (
        Command(
            ROOT / "README.md",
            "make demo     # makes .venv, installs and builds everything, then makes full-size"
            " MiniLM-L6 faster on this machine",
        )
        in ALL
    )


@pytest.mark.parametrize("command", ALL, ids=name_of)
def test_a_command_is_known(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = command.words
    if program == "rlflow":
        words = ["table1" if word == "TABLE" else word for word in words]
        options = build_parser().parse_args(words)  # raises SystemExit for an unknown option
        assert options.command
    elif program == "make":
        done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    elif program == "pip":
        assert set(re.findall(r"\[(\w+)\]", " ".join(words))) <= EXTRAS.keys()
    elif program in ("python", "python3"):
        module = words[1] if words[0] == "-m" else ""
        assert (importlib.util.find_spec(module) is not None) if module else (ROOT / words[0]).is_file()
    else:
        assert (ROOT / program).is_file(), f"no test knows {program}"


def run_commands(page: Path, *, with_learning: bool) -> list[str]:
    """Runs the `rlflow` commands of a page in their order in the current directory; returns those that were run."""
    run = []
    for command in commands(page):
        words = command.words
        learns = words[:2] == ["rlflow", "train"] or "ppo" in words or "sweep" in words or "reproduce" in words
        if words[0] != "rlflow" or words[1:3] == ["reproduce", "all"] or (learns and not with_learning):
            continue
        assert main(at_smoke_scale(words)) == 0, command
        run.append(command.text)
    return run


@pytest.mark.full
@pytest.mark.parametrize("page", [page for page in ROOMS if optimising(page)], ids=name_of)
def test_what_the_page_of_a_room_optimises_ends_well(page: Path, place: Path, untraced: None) -> None:
    for command in optimising(page):
        if any(word.startswith(RECORDED) for word in command.words):
            record()
        assert main(at_smoke_scale(command.words)) == 0, command


def record() -> None:
    """Records kernels and whole graphs of the network that `at_smoke_scale` writes."""
    if not Path(RECORDED).exists():
        timed = ["optimise", "squeezenet1.1-tiny", "-o", "timed.onnx", "--controller", "greedy", *QUICKLY]
        assert main([*timed, "--costs", "measured:cpu", "--set", "measure.predict=false"]) == 0
        assert main([*timed, "--costs", "endtoend:cpu", "--force"]) == 0
        assert main(["costs", "export", RECORDED]) == 0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_first_run_goes_as_its_page_says(place: Path) -> None:
    assert len(run_commands(FIRST_RUN, with_learning=False)) == 6
    assert all((place / f"{name}.onnx").is_file() for name in ("model", "quick", "fast"))


@pytest.mark.full
@pytest.mark.parametrize("page", WITH_RLFLOW, ids=name_of)
def test_the_commands_of_a_page_run_in_their_order(page: Path, place: Path, untraced: None) -> None:
    if any(re.search(r"runs/RUN", command.text) for command in commands(page)):  # a page about a run that is there
        made = ["optimise", "squeezenet1.1", "-o", "made.onnx", "--controller", "ppo"]
        assert main(at_smoke_scale(["rlflow", *made])) == 0
    assert run_commands(page, with_learning=True)
    scope: dict[str, object] = {}
    for code in blocks(page, "python") if page != LIBRARY else []:
        if "sb3_contrib" not in code:  # `make test-sb3` runs it
            exec(compile(at_the_scale_of_tests(code), page.name, "exec"), scope)


def at_the_scale_of_tests(code: str) -> str:
    """Returns the code with a tiny network, and with the newest run in place of the one that it names."""
    run = newest("runs/*/result.json").parent if "runs/RUN" in code else ""
    return code.replace('"squeezenet1.1"', '"squeezenet1.1-tiny"').replace("runs/RUN", str(run))


def test_every_table_that_a_page_names_is_made_by_a_test() -> None:
    named = {command.words[2] for command in ALL if command.words[:2] == ["rlflow", "reproduce"]} - {"TABLE", "all"}
    assert named <= TABLES.keys() and len(named) >= 10
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / MADE_ELSEWHERE).rglob("test_*.py"))
    made = {name for name in named if f'"{name}"' in tests}
    assert named - made == IN_SMOKE_ALONE
