"""Loads and exports every model of ONNX's own backend tests: `python -m tests.conformance.onnx_backend [--out FILE]`.

Prints the counts, and writes them as Markdown together with every model that does not pass and why.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime as ort

from tests.conformance.cases import KINDS, Case, cases_of
from tests.conformance.judging import DIFFERENT, EQUAL, EXPECTED, NOT_RUN, REFERENCE, REFUSED, RUNTIME, Verdict, judge
from tests.conformance.runtimes import NEWEST_RUNNABLE_OPSET

COMMAND = "python -m tests.conformance.onnx_backend --out experiments/results/onnx-backend/table.md"

Results = list[tuple[Case, Verdict]]

COLUMNS = {
    "equal in ONNX Runtime": (EQUAL, RUNTIME),
    "equal to the expected outputs": (EQUAL, EXPECTED),
    "equal in onnx.reference": (EQUAL, REFERENCE),
    "runs nowhere": (NOT_RUN, ""),
}
_INTRODUCTION = """# ONNX's own test models, loaded and exported again

Written by `{command}` with {versions}.

Every model is loaded at the clean-up levels full, basic and none, exported, checked by `onnx.checker` and run on the
test's inputs.

- *Equal in ONNX Runtime*: all three give what the original gives there, without optimisation.
- *Equal to the expected outputs*: ONNX Runtime does not run the original, mostly because it is older than opset 7; it
  runs the exported models, and they give the outputs that come with the test.
- *Equal in onnx.reference*: it runs neither; both agree in the standard's reference implementation.

Outputs of random operators agree in type and shape. Models of an opset above {opset} run as that opset where they are
valid in it. `older` are the node models again, in every older opset from 7 on that had another version of the operator
and in which the model is valid. The kind `real` needs a network and is left out; `light` has the same networks with
constant weights.
"""
_REASONS = {
    r"needs an operator of opset": "an operator of opset 27 or 28, which it does not have yet",
    r"Could not find an implementation|Failed to find kernel": "no kernel for the operator or its types",
    r"is not a registered function/op": "operator of a preview domain",
    r"Exception during initialization": "kernel refuses the attributes",
    r"bound to different types|invalid model": "rejects types or inputs that the standard allows",
    r"Non-zero status code": "kernel fails on the inputs",
}


def reason_class(error: str) -> str:
    """Returns in few words why ONNX Runtime does not run a model."""
    return next((words for pattern, words in _REASONS.items() if re.search(pattern, error)), error)


def report(results: Results) -> Iterator[str]:
    """Yields the Markdown text, line by line."""
    versions = f"onnx {onnx.__version__} and ONNX Runtime {ort.__version__}"
    yield _INTRODUCTION.format(command=COMMAND, versions=versions, opset=NEWEST_RUNNABLE_OPSET)
    yield from _counts(results)
    yield from _failures(results)
    yield from _not_runnable(results)


def _counts(results: Results) -> Iterator[str]:
    yield "| kind | models | " + " | ".join(COLUMNS) + " | different | refused |"
    yield "|---|" + "---:|" * (len(COLUMNS) + 3)
    for kind in (*KINDS, "all"):
        of_kind = [verdict for case, verdict in results if kind in (case.kind, "all")]
        found = Counter((verdict.outcome, verdict.judge) for verdict in of_kind)
        outcomes = Counter(verdict.outcome for verdict in of_kind)
        cells = [len(of_kind), *(found[key] for key in COLUMNS.values()), outcomes[DIFFERENT], outcomes[REFUSED]]
        yield f"| {kind} | " + " | ".join(f"{cell:,}" for cell in cells) + " |"


def _failures(results: Results) -> Iterator[str]:
    yield ""
    yield "## Not equal"
    yield ""
    failed = [(case, verdict) for case, verdict in results if verdict.outcome != EQUAL]
    for case, verdict in failed:
        yield f"- {case.kind} `{case.name}`: {verdict.outcome}. {verdict.reason or reason_class(verdict.runtime_error)}"
    if not failed:
        yield "None."


def _not_runnable(results: Results) -> Iterator[str]:
    yield ""
    yield "## What ONNX Runtime does not run as it is, and why"
    yield ""
    yield "| reason | models | examples |"
    yield "|---|---:|---|"
    classes: dict[str, list[str]] = {}
    for case, verdict in results:
        if verdict.runtime_error:
            classes.setdefault(reason_class(verdict.runtime_error), []).append(f"`{case.name}`")
    for reason, names in sorted(classes.items(), key=lambda item: -len(item[1])):
        yield f"| {reason} | {len(names)} | {', '.join(names[:3])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the report")
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND")
    arguments = parser.parse_args()
    results: Results = []
    for kind in arguments.kinds:
        results += [(case, judge(case)) for case in cases_of(kind)]
        print(f"{kind}: {Counter(verdict.outcome for case, verdict in results if case.kind == kind)}", flush=True)
    text = "\n".join(report(results)) + "\n"
    if arguments.out:
        arguments.out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
