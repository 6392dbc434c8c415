"""`rlflow explain`: where a rule applies, or how far it is from applying."""

from __future__ import annotations

import argparse

from experiments.config.flags import OF_EXPLAIN, add_some_flags


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow explain`."""
    parser.description = (
        "Names the operators of each match of a rule; if there is none, the largest part of the rule that "
        "fits somewhere, what is missing, and which conditions do not hold."
    )
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or a zoo name")
    parser.add_argument("--rule", metavar="RULE", required=True, help="the rule's name (see: rlflow rules show)")
    parser.add_argument("--at", metavar="NODE", default="", help="the name of an operator that has to take part")
    add_some_flags(parser, OF_EXPLAIN)


def run(options: argparse.Namespace) -> int:
    """Prints the matches of the rule, or what is missing."""
    from experiments.pipeline.explain import explanation
    from experiments.request import settings_of

    print("\n".join(explanation(options.model, options.rule, options.at, settings_of(options)).lines()))
    return 0
