"""Judges the verifier by corrupted rules: `python -m tests.conformance.rule_corruptions [--out FILE]`.

Each corruption is a random change of a true rule (rule_mutations.py) that still applies to some graph.
rule_truth.py finds without the verifier whether it is wrong. If it is, the verifier's exact layer judges it alone, and
if that accepts it, all layers do. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import onnx
import onnxruntime as ort

from taso_ext import RuleSet
from taso_ext.verify.check import verify_rule
from taso_ext.verify.exact.fields import NotInvertibleError
from taso_ext.verify.exact.tensor import UnsupportedOperatorError
from taso_ext.verify.prove import DEFAULT_SHAPES, GLANCES, prove_rule
from tests.conformance.rule_mutations import corrupt
from tests.conformance.rule_truth import NotRunnableError, UnclearError, differs, rewrites

COMMAND = "python -m tests.conformance.rule_corruptions --out experiments/results/rule-judge/table.md"
CORRUPTIONS = 10_000
GRAPHS = 8
"""How many fresh graphs a corruption is tried on before it is called harmless."""
WRONG, HARMLESS, UNCLEAR = "wrong", "harmless", "unclear"
_DRAWS = 200  # most changes that are tried until one applies; a few are usual


class Judgement(NamedTuple):
    """The result for one corruption.

    Attributes:
      seed: the seed that draws it again.
      rule, change: the name of the changed rule, and the kind of change.
      truth: wrong, harmless or unclear.
      exact: whether it is wrong and the exact layer alone accepts it; others are not tested, because they take longest.
      accepted: whether all layers accept it as well; tested only if the exact layer accepts it.
      text: the text of the corrupted rule if the exact layer accepts it, otherwise "".
    """

    seed: int
    rule: str
    change: str
    truth: str
    exact: bool
    accepted: bool
    text: str


@cache
def _true_rules() -> list[tuple[str, str]]:
    """Returns the names and the texts of the shipped rules, without proofs."""
    rules = RuleSet.default()
    texts = [rules.text(index) for index in range(len(rules))]
    return [(name, text.split("\n  proof")[0] + "\n") for name, text in zip(rules.names, texts, strict=True)]


def judge(seed: int) -> Judgement:
    """Draws corruption number `seed` and judges it."""
    for draw in range(_DRAWS):
        rng = random.Random(f"{seed}/{draw}")
        name, text = rng.choice(_true_rules())
        changed = corrupt(text, rng)
        if changed is None:
            continue
        truth = _truth(changed[0], seed)
        if truth is None:
            continue
        exact = truth == WRONG and _accepts_exactly(changed[0])
        accepted = exact and prove_rule(changed[0]).proof is not None
        shown = changed[0] if exact else ""
        return Judgement(seed, name, changed[1], truth, exact, accepted, shown)
    raise RuntimeError(f"corruption {seed}: none of {_DRAWS} changes applies to any graph")


def _truth(text: str, seed: int) -> str | None:
    """Returns whether a rule is wrong, harmless or unclear.

    The result is None if the text is no rule, applies to nothing, or makes a graph that is no ONNX model.
    """
    try:
        rules = RuleSet.parse(text)
    except ValueError:
        return None
    found = None
    for rewrite in rewrites(rules, seed, GRAPHS):
        found = found or HARMLESS
        try:
            if differs(rewrite, seed):
                return WRONG
        except UnclearError:
            found = UNCLEAR
        except NotRunnableError:
            return None
    return found


def _accepts_exactly(text: str) -> bool:
    """Returns whether the exact layer alone accepts a rule."""
    rules = RuleSet.parse(text)
    try:
        return verify_rule(rules, 0, instances=DEFAULT_SHAPES, float_instances=0, glances=GLANCES).ok
    except (UnsupportedOperatorError, NotInvertibleError):
        return False


def _judgements(count: int, processes: int, path: Path) -> Iterator[Judgement]:
    """Yields all judgements, those of an earlier run first, and adds the new ones to the log."""
    known = [Judgement(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    known = [each for each in known if each.seed < count]
    yield from known
    seeds = sorted(set(range(count)) - {each.seed for each in known})
    path.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(processes) as pool, path.open("a") as log:
        for judgement in pool.imap_unordered(judge, seeds, chunksize=20):
            log.write(json.dumps(judgement._asdict()) + "\n")
            log.flush()
            yield judgement


def report(judgements: Sequence[Judgement], command: str) -> str:
    """Returns the table as Markdown."""
    wrong = [each for each in judgements if each.truth == WRONG]
    missed = [each for each in wrong if each.exact]
    caught = len(wrong) - len(missed)
    fooled = [each for each in wrong if each.accepted]
    lines = [
        "# The verifier, judged by corrupted rules\n",
        f"Written by `{command}` with onnx {onnx.__version__} and ONNX Runtime {ort.__version__}.\n",
        "Each corruption is a random change of a shipped rule that still applies somewhere. It is *wrong* if "
        "`onnx.reference` in float64 computes something else after the rewrite on one of "
        f"{GRAPHS} fresh graphs, whose shapes, seeds and values the verifier never uses; else *harmless* (the change "
        "made no difference, or the rule merely applies elsewhere), or *unclear* where results differ by more than "
        "rounding and less than a mistake would make them.\n",
        "| | corruptions | of the wrong ones |",
        "|---|---:|---:|",
        f"| judged | {len(judgements)} | |",
        f"| wrong | {len(wrong)} | 100 % |",
        f"| rejected by the exact layer alone | {caught} | {_percent(caught, wrong)} |",
        f"| accepted by the exact layer | {len(missed)} | {_percent(len(missed), wrong)} |",
        f"| accepted by all layers | {len(fooled)} | {_percent(len(fooled), wrong)} |",
        f"| harmless | {_count(judgements, HARMLESS)} | |",
        f"| unclear | {_count(judgements, UNCLEAR)} | |\n",
        "| change | judged | wrong | accepted by the exact layer | by all |",
        "|---|---:|---:|---:|---:|",
        *_by_change(judgements),
    ]
    for each in missed:
        lines += [f"\n## Wrong, accepted by the exact layer: number {each.seed}, {each.rule}, {each.change}\n"]
        lines += [f"All layers {'accept' if each.accepted else 'reject'} it.\n", "```", each.text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _by_change(judgements: Iterable[Judgement]) -> Iterator[str]:
    counts: dict[str, Counter[str]] = {}
    for each in judgements:
        for change in each.change.split(" + "):
            count = counts.setdefault(change, Counter())
            count["judged"] += 1
            if each.truth == WRONG:
                count.update(wrong=1, exact=each.exact, accepted=each.accepted)
    for change, count in sorted(counts.items()):
        yield f"| {change} | {count['judged']} | {count['wrong']} | {count['exact']} | {count['accepted']} |"


def _count(judgements: Iterable[Judgement], truth: str) -> int:
    return sum(each.truth == truth for each in judgements)


def _percent(part: int, whole: Sequence[object]) -> str:
    """Returns a percentage that is rounded down, so that 100 % means all."""
    return f"{math.floor(1e4 * part / len(whole)) / 100:.2f} %" if whole else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if the verifier misses the figures that it has to reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    parser.add_argument("--count", type=int, default=CORRUPTIONS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--log", type=Path, help="where judgements are kept; default: named after the rules, in runs/")
    options = parser.parse_args(arguments)
    log = options.log or Path("runs") / f"rule-corruptions-{RuleSet.default().fingerprint[:12]}.jsonl"
    judgements, start = [], time.monotonic()
    for judgement in _judgements(options.count, options.processes, log):
        judgements.append(judgement)
        if len(judgements) % 200 == 0:
            print(f"{len(judgements)} of {options.count}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    judgements.sort(key=lambda each: each.seed)
    text = report(judgements, COMMAND)
    print(text)
    if options.out:
        options.out.write_text(text)
    wrong = [each for each in judgements if each.truth == WRONG]
    good = sum(each.exact for each in wrong) <= 0.001 * len(wrong) and not any(each.accepted for each in wrong)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
