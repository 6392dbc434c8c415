"""Which zoo graphs a table is about."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from environment import zoo
from experiments.errors import UserError, nearest_match


def add_option(parser: argparse.ArgumentParser, default: str = "the full-size ones") -> None:
    """Graphs by name; `default` is for the help."""
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help=f"zoo graphs (default: {default})")


def chosen(named: Sequence[str]) -> list[str]:
    """Those named, or the full-size ones that a paper defines.

    Raises:
      UserError: if there is no such graph.
    """
    for name in named:
        if name not in zoo.names():
            raise UserError(f"No zoo graph is called {name!r}. {nearest_match(name, zoo.names())}")
    return list(named) or zoo.published_names()
