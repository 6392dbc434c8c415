"""`rlflow gradients MODEL -o OUT` writes the training graph of a model."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

LOSSES = ("mean-square", "cross-entropy", "sum")
OPTIMISERS = ("sgd", "adam", "rmsprop")
EXAMPLES = """\
examples:
  rlflow gradients model.onnx -o gradients.onnx
  rlflow gradients resnet50:batch=32 -o step.onnx --loss cross-entropy --optimiser adam
  rlflow gradients bert-base -o last.onnx --train encoder.layer.11.* --output pooler_output
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow gradients`."""
    parser.description = (
        "Writes the forward pass of MODEL, a loss, and the gradients of the loss by the weights, or a step of an "
        "optimiser, as an ONNX file of standard operators."
    )
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or a zoo name (see: rlflow zoo)")
    parser.add_argument("-o", dest="out", metavar="OUT", type=Path, required=True, help="the ONNX file to write")
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")
    parser.add_argument("--loss", choices=LOSSES, default=LOSSES[0], help="the loss of each output (mean-square)")
    parser.add_argument("--optimiser", choices=OPTIMISERS, help="write a step of an optimiser (gradients only)")
    parser.add_argument(
        "--train",
        metavar="PATTERN",
        action="append",
        help="train only weights of this name, or of names that match a pattern such as layer4.* (repeatable)",
    )
    parser.add_argument(
        "--output", metavar="NAME", action="append", help="an output that has a loss (repeatable; all of floats)"
    )
    parser.add_argument("--axis", metavar="N", type=int, default=-1, help="the axis of classes of cross-entropy (-1)")
    parser.add_argument(
        "--dim", metavar="NAME=SIZE", action="append", default=[], help="size of a symbolic dimension (repeatable)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the training graph, and says what it reads and returns.

    Raises:
      UserError: the file cannot be written, or an option is written in another way.
      ModelError: see `environment.gradients.training_model`.
    """
    from environment import zoo
    from environment.gradients import training_model
    from experiments.output_file import require_not_read, require_writable
    from experiments.pipeline.loading.load import find_model
    from taso_ext.onnx_io.model_file import data_file, write_model
    from taso_ext.onnx_io.reading import external_files

    require_writable(options.out, force=options.force)
    path = find_model(options.model).path
    if path is not None:
        written = [file for file in (options.out, data_file(options.out)) if file.exists()]
        require_not_read(written, [path, *external_files(path)], options.model)
    made = training_model(
        zoo.build(options.model) if path is None else path,
        loss=options.loss,
        optimiser=options.optimiser,
        outputs=options.output,
        train=options.train,
        axis=options.axis,
        dims=_sizes(options.dim),
    )
    write_model(made, options.out)
    print("\n".join([f"Wrote {options.out}.", *_lines(made.skeleton.graph, made.defaults, options.optimiser)]))
    return 0


def _sizes(given: Iterable[str]) -> dict[str, int]:
    """Returns the sizes of symbolic dimensions by name.

    Raises:
      UserError: one is not written NAME=SIZE.
    """
    from experiments.errors import UserError

    sizes = {}
    for text in given:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise UserError(f"--dim is written NAME=SIZE, with a whole number as the size; got '{text}'.")
        sizes[name] = int(size)
    return sizes


def _lines(graph: onnx.GraphProto, defaults: Mapping[str, object], optimiser: str | None) -> Iterable[str]:
    operators = sum(node.op_type != "Constant" for node in graph.node)
    fed = [value.name for value in graph.input if value.name not in defaults]
    trained = sum(value.name.endswith(".gradient") for value in graph.output)
    yield f"It has {operators:,} operators and reads {', '.join(fed) or 'nothing but the weights'}."
    if optimiser is None:
        yield f"It returns the loss and the gradients of {trained:,} weights."
    else:
        yield f"It returns the loss and the values after a step of {optimiser}: feed each output X.updated as X."
