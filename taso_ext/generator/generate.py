"""The generator of rules: it enumerates laws, words them as rules, selects the useful rules and verifies them.

The generator takes smaller laws first. For each direction of a law it looks for the most general wording that keeps the
function on random instances. It keeps a rule if the rule is worth having, if the rules kept so far do not lead from its
source to its target in two rewrites, and if it passes the verifier.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from taso_ext import _generator
from taso_ext._core import RuleSet
from taso_ext.files import write_text
from taso_ext.generator.domains import DOMAINS
from taso_ext.generator.grid import Domain
from taso_ext.generator.laws import Law, Rewriting, partners_of, read_law, rewritings
from taso_ext.generator.selection import HEAVY, SHIPPED, Worth, examples, implied, worth, worth_by_form
from taso_ext.generator.wording import InexpressibleError, Wording, rule_text, wordings
from taso_ext.verify.prove import prove_rule

_LIBRARY = Path(__file__).parents[1]


class Checkpoint:
    """A folder of finished domains and judged rules. Its name depends on everything that the result depends on."""

    def __init__(self, directory: Path, *settings: object) -> None:
        self._directory = directory / _digest(settings)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._judged_path = self._directory / "judged.jsonl"
        self._judged: dict[str, Any] = dict(_read_lines(self._judged_path))

    def domain(self, name: str, enumerate_domain: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the result of a domain from the folder; if it is not there, computes it and keeps it there."""
        path = self._directory / f"{name}.json"
        if path.is_file():
            result: dict[str, Any] = json.loads(path.read_text())
            return result
        result = enumerate_domain()
        write_text(path, json.dumps(result))
        return result

    def judged(self, text: str, judge: Callable[[], Any]) -> Any:
        """Returns the JSON value that `judge` gives for a text; `judge` is called once for each text."""
        if text not in self._judged:
            self._judged[text] = judge()
            with self._judged_path.open("a") as file:
                file.write(json.dumps([text, self._judged[text]]) + "\n")
        return self._judged[text]


def _read_lines(path: Path) -> list[tuple[str, Any]]:
    """Returns all complete lines. A kill can leave half a line at the end."""
    lines = path.read_text().split("\n")[:-1] if path.is_file() else []
    return [tuple(json.loads(line)) for line in lines]


def _digest(settings: object) -> str:
    """Returns a digest of the settings and of the code that reads them."""
    digest = hashlib.sha256(repr(settings).encode())
    code = [*_LIBRARY.glob("*.so"), *_LIBRARY.glob("generator/**/*.py"), *_LIBRARY.glob("verify/**/*.py")]
    for path in sorted(code):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


LARGEST_LAW = 6  # most operators of both sides of a law that is worded
_KEEPS, _FAILS, _REFUTED = "keeps the function", "fails", "refuted"
_REFUTING = 96  # instances, many with extents that are 1 or equal, which refute wordings that are too general
_PLACEHOLDER = "generated"  # rules are named when they are kept


class Bar(Protocol):
    """The progress of one stage."""

    def update(self, done: int, **figures: float) -> None: ...


class Display(Protocol):
    """A display of progress (experiments/runs/progress.py has some)."""

    def stage(self, title: str, total: int) -> AbstractContextManager[Bar]: ...


@dataclass(frozen=True)
class Settings:
    """The settings that the result depends on, besides the program.

    Attributes:
      operators: the most operators of an expression, at most 3; expressions of the linear domain may have one more.
      seed: the seed of all random elements.
      domains: the names of the domains to enumerate.
      beside: the text of the rules that need not be found again.
    """

    operators: int = 3
    seed: int = 0
    domains: tuple[str, ...] = tuple(domain.name for domain in DOMAINS)
    beside: str = ""


@dataclass
class Report:
    """Counts of every stage.

    Attributes:
      levels: the counts of the native part, by domain, one row for each number of operators.
      prunings: the number of equations left after each pruning, by domain.
      wordings: the numbers of rewritings and rules, by what became of them.
      seconds: the wall-clock time of the enumeration, and of all that follows.
    """

    levels: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    prunings: dict[str, dict[str, int]] = field(default_factory=dict)
    wordings: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)

    def total(self, count: str) -> float:
        """Returns a count of the native part, summed over domains and levels."""
        return sum(row[count] for rows in self.levels.values() for row in rows)

    def pruned(self, stage: str) -> int:
        """Returns the number of equations left after a pruning, in all domains."""
        return sum(row[stage] for row in self.prunings.values())


@dataclass(frozen=True)
class Generated:
    """The generated rules as text, and the report of how they came about."""

    rules: tuple[str, ...]
    report: Report


def generate(settings: Settings, checkpoints: Path, display: Display, *, threads: int = 1) -> Generated:
    """Finds rules. The result depends neither on `threads` nor on interruptions.

    Args:
      checkpoints: the folder in which finished work is kept.
    """
    checkpoint, report = Checkpoint(checkpoints, settings), Report()
    begin = time.monotonic()
    laws = enumerate_laws(settings, checkpoint, display, report, threads=threads)
    report.seconds["enumeration"] = time.monotonic() - begin
    rules = _Kept(settings, checkpoint, report).choose(laws, display)
    report.seconds["rules"] = time.monotonic() - begin - report.seconds["enumeration"]
    return Generated(tuple(rules), report)


def enumerate_laws(
    settings: Settings, checkpoint: Checkpoint, display: Display, report: Report, *, threads: int
) -> list[Law]:
    """Returns the laws of all domains. Each domain starts from the laws of the domains before it."""
    brought: list[Any] = []
    laws: list[Law] = []
    for domain in DOMAINS:
        if domain.name not in settings.domains:
            continue
        result = checkpoint.domain(domain.name, _enumerator(domain, settings, brought, display, threads))
        report.levels[domain.name] = result["levels"]
        report.prunings[domain.name] = {key: value for key, value in result.items() if key.startswith("after_")}
        brought += [_tuples(law) for law in result["laws"]]
        laws += [read_law(domain, law) for law in result["laws"]]
    return laws


def _enumerator(
    domain: Domain, settings: Settings, brought: Sequence[Any], display: Display, threads: int
) -> Callable[[], dict[str, Any]]:
    def enumerate_domain() -> dict[str, Any]:
        grid = domain.native(seed=settings.seed, threads=threads, most_operators=settings.operators)
        with display.stage(f"enumerate {domain.name}", 100) as bar:
            return _generator.enumerate(
                grid, brought, lambda level, share: bar.update(int(100 * share), operators=level)
            )

    return enumerate_domain


def _tuples(native: Any) -> Any:
    """Returns a term with tuples for its lists, because JSON has lists where the native part has tuples."""
    return tuple(_tuples(each) for each in native) if isinstance(native, list | tuple) else native


class _Kept:
    """The rules kept so far."""

    def __init__(self, settings: Settings, checkpoint: Checkpoint, report: Report) -> None:
        self._beside, self._checkpoint, self._report = settings.beside, checkpoint, report
        self._judged: dict[str, bool] = {}
        self._rules: list[str] = []
        self._names: Counter[str] = Counter()
        self._book = RuleSet.parse(self._beside) if self._beside else None

    def choose(self, laws: Sequence[Law], display: Display) -> list[str]:
        partners = partners_of(laws)
        chosen = sorted(
            (law for law in laws if law.size <= LARGEST_LAW and not law.repeats_operand),
            key=lambda law: (law.size, not any(each.kind == "Function" for each in law.operators())),
        )
        self._report.wordings["laws"], self._report.wordings["laws worded"] = len(laws), len(chosen)
        with display.stage("choose rules", len(chosen)) as bar:
            for number, law in enumerate(chosen):
                for rewriting in rewritings(law, partners):
                    self._consider(rewriting)
                bar.update(number + 1, rules=len(self._rules))
        return self._rules

    def _consider(self, rewriting: Rewriting) -> None:
        self._report.wordings["rewritings"] += 1
        useless = worth_by_form(rewriting)
        if useless is not None:
            self._report.wordings[f"not shipped: {useless}"] += 1
            return
        worded = self._most_general(rewriting)
        if worded is None:
            self._report.wordings["not expressible"] += 1
            return
        text, wording, known = worded
        if known:
            self._report.wordings["worded like another"] += 1
            return
        self._report.wordings["worded so that they keep the function"] += 1
        found = examples(text) or []
        value = worth(rewriting, wording, found)
        if value not in SHIPPED:
            self._report.wordings[f"not shipped: {value}"] += 1
        elif implied(found, self._book):
            self._report.wordings["implied by others"] += 1
        else:
            self._keep(rewriting, text, value)

    def _keep(self, rewriting: Rewriting, text: str, value: Worth) -> None:
        """Keeps a rule if the verifier proves it."""
        stem = "-to-".join(_operators_in_words(rewriting, side) for side in (rewriting.source, rewriting.target))
        name = f"{stem}-{self._names[stem] + 1}" if self._names[stem] else stem
        named = text.replace(f"rule {_PLACEHOLDER}\n", f"rule {name}\n", 1)
        proof = self._checkpoint.judged(f"prove {named}", lambda: _proof(rewriting, named))
        if not proof:
            self._report.wordings["refused by the verifier"] += 1
            return
        self._report.wordings[f"shipped: {value}"] += 1
        self._names[stem] += 1
        self._rules.append(f"{named}  proof  {proof}\n")
        self._book = RuleSet.parse(self._beside + "\n" + "\n".join(self._rules))

    def _most_general(self, rewriting: Rewriting) -> tuple[str, Wording, bool] | None:
        """Returns the first text that keeps the function, its wording, and whether another rewriting had this text."""
        for wording in wordings(rewriting.law):
            try:
                text = rule_text(rewriting, wording, _PLACEHOLDER)
            except InexpressibleError:
                continue
            if text in self._judged:
                if self._judged[text]:
                    return text, wording, True
                continue
            verdict = self._checkpoint.judged(text, partial(_verdict, text))
            self._report.wordings["wordings refuted by more instances"] += verdict == _REFUTED
            self._judged[text] = verdict == _KEEPS
            if self._judged[text]:
                return text, wording, False
        return None


def _verdict(text: str) -> str:
    if examples(text) is None:
        return _FAILS
    return _KEEPS if examples(text, instances=_REFUTING) else _REFUTED


def _proof(rewriting: Rewriting, text: str) -> str:
    """Returns the proof as it stands in a rule file, or "" if there is none.

    Sums of products may be equal in real arithmetic only, because their order changes what is rounded.
    """
    kinds = {operator.kind for operator in rewriting.law.operators()}
    outcome = prove_rule(text)
    if outcome.proof is None and kinds & HEAVY:
        outcome = prove_rule(text, normwise=True)
    return outcome.proof_text


def _operators_in_words(rewriting: Rewriting, side: Sequence[Any]) -> str:
    def words() -> Iterator[str]:
        for term in dict.fromkeys(each for top in side for each in top.subterms() if not each.is_leaf):
            operator = rewriting.operator(term)
            if operator.kind != "Split" or operator["port"] == 0:
                yield {"Merge": "reshape", "Unmerge": "reshape", "Insert": "reshape", "Drop": "reshape"}.get(
                    operator.kind, operator.kind.lower()
                )

    return "-".join(words()) or "nothing"
