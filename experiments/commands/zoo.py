"""`rlflow zoo`: the built-in models."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow zoo`."""
    parser.add_argument("name", nargs="?", help="the model to write")
    parser.add_argument("-o", "--output", type=Path, help="the ONNX file to write")
    parser.add_argument("--force", action="store_true", help="overwrite an existing output file")


def run(options: argparse.Namespace) -> int:
    """Lists the names, or writes the named model.

    Raises:
      UserError, ZooError: the name is unknown, or the file cannot be written.
    """
    from environment import zoo
    from experiments.errors import UserError
    from experiments.output_file import require_writable
    from taso_ext.onnx_io.model_file import write_model
    from taso_ext.onnx_io.reading import read_model

    if options.name is None:
        if options.output is not None or options.force:
            raise UserError("-o and --force write a graph of the zoo, but no graph is named: rlflow zoo NAME -o OUT.")
        print("\n".join(zoo.names()))
        return 0
    output = options.output or Path(f"{options.name}.onnx")
    require_writable(output, force=options.force)
    write_model(read_model(zoo.build(options.name)), output)
    print(f"Wrote {output}.")
    return 0
