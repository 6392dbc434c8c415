"""Measures what recognising composites gains: `python -m tests.perf.composites [--out FILE] [--pairs N] [--models]`.

Prints a table and asserts nothing: a clock is no test. Both sides run with ONNX Runtime's full optimisation on one
thread; a ratio is the median of interleaved pairs of CPU times of the calling thread, with its 95 % interval.
`--models` adds BERT-Base and ViT-Base.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime

from environment import zoo
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.runtimes import OnnxRuntime
from taso_ext import OnnxModel
from tests.taso_ext.samples.composite_forms import Form, activations, attentions, norms, recognised, softmaxes

TOKENS, WIDTH, HEADS = 128, 768, 12
ATTENTION_TOKENS = (16, 64, 128, 256, 512, 1024)
MODELS = ("bert-base", "vit-base")
_KEYS, _SCALE = "keys turned once", "scores divided"
_MASKS = ("no mask", "mask of keys")
_LONG = 256  # tokens from which on the runtime's own attention is measured as well


def cases(models: bool) -> Iterator[tuple[str, str, onnx.ModelProto, bool]]:
    """Yields the name of a form, its size, the model, and whether the runtime's own operators are used."""
    for form in (*activations(), *softmaxes(), *norms()):
        yield form.name, f"{TOKENS} × {WIDTH}", form.model(TOKENS, WIDTH, HEADS), False
    by_name: dict[str, Form] = {form.name: form for form in attentions()}
    for mask in _MASKS:
        form = by_name[f"attention, {_KEYS}, {_SCALE}, {mask}"]
        for tokens in ATTENTION_TOKENS:
            for fuse in (False, True) if tokens >= _LONG and not form.inputs else (False,):
                yield form.name, f"{tokens} × {HEADS} × {WIDTH // HEADS}", form.model(tokens, WIDTH, HEADS), fuse
    for name in MODELS if models else ():
        yield name, "whole network", zoo.build(name), False


def compare(original: onnx.ModelProto, pairs: int, *, fuse: bool) -> Timing:
    """Times what the rules make of a model against the original."""
    model = OnnxModel.load(original)
    candidate = Variant("recognised", OnnxRuntime(), model.export_checked(recognised(model.graph, fuse=fuse)))
    effort = Effort(resolution=None, pairs=pairs, sessions=3, control=False)
    return measure(Variant("original", OnnxRuntime(), model.source), [candidate], effort)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--pairs", type=int, default=30, help="interleaved pairs of each measurement (default: 30)")
    parser.add_argument("--models", action="store_true", help="measure whole networks too")
    options = parser.parse_args()
    arguments = " ".join(argument for argument in sys.argv[1:])
    lines = [
        "# Composite operators, recognised",
        "",
        f"Written by `python -m tests.perf.composites {arguments}` with ONNX Runtime {onnxruntime.__version__}.",
        "Ratio of CPU time, below 1 is faster, against ONNX Runtime's own optimisation of what the exporter wrote.",
        "",
        "| written as | size | operators | ms | ratio | 95 % interval |",
        "|---|---|---|---:|---:|---|",
    ]
    print("\n".join(lines), flush=True)
    for name, size, model, fuse in cases(options.models):
        found = compare(model, options.pairs, fuse=fuse)
        kind = "the runtime's own" if fuse else "standard"
        ratio, original_ms = found.ratio, found.reference.ms.value
        interval = f"{ratio.low:.3f}–{ratio.high:.3f}"
        lines.append(f"| {name} | {size} | {kind} | {original_ms:.3f} | {ratio.value:.3f} | {interval} |")
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
