"""Rules written by hand from the specifications of the operators: wrong ones and true ones, each with a witness model.

python -m tests.conformance.rule_corpus [--verify] [--instances N] [--glances N] [--processes N] FILE.toml …

The files are in `corpus/wrong` and `corpus/true`, one for each family of operators. An entry is

    [[rule]]
    name = "leaky-relu-as-max"
    why = "A slope above 1 makes the product the larger one for positive numbers."
    rule = '''
      var    x: float
      source y = LeakyRelu(x; alpha=a)
      target c = ConstantOfShape(; shape=[], value=a); t = Mul(x, c); y = Max(x, t)
    '''
    model = '''
    <ir_version: 10, opset_import: ["" : 21]>
    witness (float[3] x) => (float[3] y) { y = LeakyRelu<alpha: float = 2.0>(x) }
    '''
    inputs.x = [1.0, -1.0, 0.5]
    weights.w = { type = "float", dims = [2], values = [0.0, inf] }

`model` is in ONNX's textual syntax. `inputs` gives the values in row-major order; a single number fills a tensor. A
float input that is not given is drawn from a standard normal distribution. `weights` adds initializers to those in the
text, which cannot be infinite or of float16.

A wrong rule has to match its witness, and the rewritten witness has to give another result. If the engine itself
refuses the match, for example because float16 does not hold a constant of the target, the entry says `refused = true`.
If the rule keeps all that the verifier promises (taso_ext/rules/README.md), and the witness lies beyond that, the entry
says in `unpromised` why; the rule may be accepted.
A true rule has to match its witness and keep the result. onnx.reference runs both models in their own data type. No
part of the verifier takes part, so this is evidence against it.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from taso_ext import CostModel, OnnxModel, RuleSet, State
from taso_ext.verify.prove import DEFAULT_SHAPES, GLANCES, Outcome, prove_rule
from tests.conformance.rule_truth import MENDED

CORPUS = Path(__file__).parent / "corpus"
WRONG, TRUE = "wrong", "true"
MOST_LOCATIONS = 8
TOLERANCES = {np.float16: 1e-2, np.float32: 1e-4, np.float64: 1e-10}
"""The largest difference that rounding explains, relative to the largest finite result of the output."""


class BadEntryError(ValueError):
    """An entry is not what its file promises."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One rule with its witness.

    Attributes:
      name: the name of the rule.
      why: why it is wrong, or why it is true.
      text: the rule without a proof, as in a rule file.
      model: the witness.
      feeds: the inputs of the witness by name.
      refused: whether the engine refuses to match the witness.
      unpromised: why the verifier promises nothing about the witness; "" if it does.
    """

    name: str
    why: str
    text: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    refused: bool
    unpromised: str


def entries(kind: str) -> list[Entry]:
    """Returns all rules of `WRONG` or `TRUE`."""
    return [entry for path in sorted((CORPUS / kind).glob("*.toml")) for entry in read(path)]


def read(path: Path) -> Iterator[Entry]:
    """Yields the rules of a file.

    Raises:
      BadEntryError: an entry lacks something, or its model cannot be read.
    """
    for record in tomllib.loads(path.read_text(encoding="utf-8"))["rule"]:
        try:
            yield _entry(record)
        except Exception as error:
            raise BadEntryError(f"{path.name}: {record.get('name', 'an entry without a name')}: {error}") from error


def _entry(record: Mapping[str, Any]) -> Entry:
    model = onnx.parser.parse_model(record["model"])
    for name, weight in record.get("weights", {}).items():
        dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(weight["type"].upper()))
        model.graph.initializer.append(numpy_helper.from_array(_filled(weight["values"], dtype, weight["dims"]), name))
    onnx.checker.check_model(model, full_check=True)
    given, feeds = record.get("inputs", {}), {}
    for info in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        feeds[info.name] = (
            _filled(given[info.name], dtype, dims) if info.name in given else _drawn(info.name, dtype, dims)
        )
    text = f"rule {record['name']}\n{record['rule'].strip(chr(10))}\n"
    refused, unpromised = record.get("refused", False), record.get("unpromised", "")
    return Entry(record["name"], record["why"], text, model, feeds, refused, unpromised)


def _filled(values: Any, dtype: np.dtype, dims: Sequence[int]) -> np.ndarray:
    given = np.asarray(values, np.float64 if dtype.kind == "f" else None)
    with np.errstate(over="ignore"):
        array = given.astype(dtype)
    return np.full(dims, array) if array.ndim == 0 else array.reshape(dims)


def _drawn(name: str, dtype: np.dtype, dims: Sequence[int]) -> np.ndarray:
    if dtype.kind != "f":
        raise BadEntryError("values of an input that is not floating have to be given")
    return np.random.default_rng(zlib.crc32(f"{name}{dims}".encode())).standard_normal(dims).astype(dtype)


def rewritten(rules: RuleSet, model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Yields the model after one rewrite by the only rule of a set, for every location."""
    loaded = OnnxModel.load(model, clean="none")
    state = State(loaded.graph, rules, CostModel.roofline("xeon"))
    for location in np.flatnonzero(state.location_mask()[0])[:MOST_LOCATIONS]:
        stepped = state.copy()
        stepped.step(0, int(location))
        yield loaded.export(stepped.graph)


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Returns the outputs of onnx.reference."""
    with np.errstate(all="ignore"):
        return [np.asarray(each) for each in ReferenceEvaluator(model, new_ops=MENDED).run(None, dict(feeds))]


def differ(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> bool:
    """Returns whether results differ by more than rounding, in a shape, or in which of them are infinite or NaN."""
    return any(_differs(a, b) for a, b in zip(expected, got, strict=True))


def _differs(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.dtype.kind != "f":
        return bool((a != b).any())
    there, here = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(there)
    if (finite != np.isfinite(here)).any() or not np.array_equal(there[~finite], here[~finite], equal_nan=True):
        return True
    scale = np.abs(there[finite]).max(initial=0.0)
    return bool((np.abs(there[finite] - here[finite]) > TOLERANCES[a.dtype.type] * scale).any())


def fault(entry: Entry, kind: str) -> str:
    """Returns what an entry of `WRONG` or `TRUE` does not keep of its promise; empty if it keeps it."""
    expected = run(entry.model, entry.feeds)
    found = [differ(expected, run(model, entry.feeds)) for model in rewritten(RuleSet.parse(entry.text), entry.model)]
    if entry.refused or not found:
        return "" if entry.refused and not found else f"it {'matches' if found else 'does not match'} its witness"
    return "" if any(found) == (kind == WRONG) else f"its witness {'keeps' if kind == WRONG else 'changes'} the result"


def matches_as_proven(entry: Entry, outcome: Outcome) -> bool:
    """Returns whether a rule is accepted and still matches its witness, with the domain of its proof."""
    if outcome.proof is None:
        return False
    proven = RuleSet.parse(f"{entry.text}  proof  {outcome.proof_text}\n")
    loaded = OnnxModel.load(entry.model, clean="none")
    return bool(State(loaded.graph, proven, CostModel.roofline("xeon")).location_mask()[0].any())


@dataclasses.dataclass(frozen=True)
class _Verdicts:
    """The judgement of one entry: whether it keeps its promise and, if asked, what the verifier makes of it.

    Attributes:
      verify: whether to ask the verifier.
      instances, glances: as for `prove_rule`.
    """

    verify: bool
    instances: int
    glances: int

    def __call__(self, case: tuple[Path, Entry]) -> tuple[str, str, str]:
        """Returns the line of an entry, its fault if it has one, and the verifier's answer."""
        path, entry = case
        try:
            found = fault(entry, path.resolve().parent.name)
        except Exception as error:
            found = " ".join(str(error).split())
        line, answer = f"{path.stem}: {entry.name}: {found or 'as promised'}", ""
        if self.verify and not found:
            outcome = prove_rule(entry.text, instances=self.instances, glances=self.glances)
            matches = matches_as_proven(entry, outcome)
            where = " beyond the promise" if entry.unpromised else ""
            answer = f"accepted{where}" if matches else "accepted elsewhere" if outcome.proof else "refused"
            line += f", {answer}"
            line += "" if outcome.proof else f" ({outcome.refusal.splitlines()[0][:200]})"
        return line, found, answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what is wrong with the entries of files, and counts; returns 1 if something is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--verify", action="store_true", help="also say what the verifier makes of every rule")
    parser.add_argument("--instances", type=int, default=DEFAULT_SHAPES, help="graphs that test each rule")
    parser.add_argument("--glances", type=int, default=GLANCES, help="further graphs, tested at one point")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    verdicts = _Verdicts(options.verify, options.instances, options.glances)
    cases = [(path, entry) for path in options.files for entry in read(path)]
    counts: Counter[tuple[str, str]] = Counter()
    bad = 0
    with get_context("spawn").Pool(options.processes) as pool:
        for (path, _), (line, found, answer) in zip(cases, pool.imap(verdicts, cases), strict=True):
            print(line, flush=True)
            bad += bool(found)
            counts[path.stem, (found and "not as promised") or answer or "as promised"] += 1
    for (family, answer), count in sorted(counts.items()):
        print(f"{count:5d}  {family}: {answer}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
