"""`rlflow report RUN`: the HTML page of a run; `rlflow report results`: that of a folder of tables.

Importing this module imports nothing heavy, because `rlflow report --help` does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

RESULTS = "results"
"""The word that stands for the results of this project, where no folder has this name."""
KEPT = Path(__file__).parents[1] / "results"
TABLES_PAGE = "results.html"
PAGES = (".html", ".htm")
EXAMPLES = """\
examples:
  rlflow report runs/squeezenet1.1-taso-1a2b3c4d
  rlflow report runs/reproduce -o tables.html
  rlflow report results
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow report`."""
    parser.description = (
        "Builds one HTML page that opens from disk, without a server. For a run: what was gained, and the graph before "
        "and after each rewrite. For a folder: all tables that `rlflow reproduce` has written in it."
    )
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "target",
        metavar="RUN|DIR",
        help=f"a run directory, or a folder of tables; {RESULTS}: those that are kept in experiments/results",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PAGE",
        type=Path,
        help=f"the file to write (RUN/report.html; for tables: {TABLES_PAGE})",
    )
    parser.add_argument("--force", action="store_true", help="overwrite PAGE if it exists")
    parser.add_argument("--model", metavar="MODEL", help="where the model of the run is now (where the run found it)")
    parser.add_argument("--reward", metavar="MODULE:FUNCTION", help="the run's own reward function, to be imported")


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints its path.

    Raises:
      UserError and similar errors: the extra is missing, or the input is bad; nothing was written.
    """
    from experiments.errors import UserError
    from experiments.output_file import require_writable
    from experiments.runs.directory import RunDirectory

    target = Path(options.target)
    is_tables = not RunDirectory.holds_run(target) and _names_tables(options.target)
    if is_tables:
        options.output = options.output or Path(TABLES_PAGE)
    if options.output is not None:  # else it is the page of the run directory, which is the run's own
        if options.output.suffix not in PAGES:  # with --force, RUN/result.json would be gone
            raise UserError(
                f"-o expects the name of an HTML page, such as tables.html, got '{options.output}'. Name a file that "
                f"ends in {' or '.join(PAGES)}."
            )
        require_writable(options.output, force=options.force)
    path = _write_results_page(options, target) if is_tables else _write_run_page(options, target)
    print(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB). Open it in a browser.")
    return 0


def _write_run_page(options: argparse.Namespace, target: Path) -> Path:
    """Writes the page of a run and returns its path."""
    from experiments.pipeline.stored import StoredRun
    from experiments.reports.page import extra

    run = StoredRun(target, model=options.model, reward=options.reward)
    run.require_done("nothing to report")
    extra.require()
    from experiments.reports.page.run_page import write_run_page

    return write_run_page(run.directory, run.config, *run.model_and_rules(), options.output)


def _write_results_page(options: argparse.Namespace, target: Path) -> Path:
    """Writes the page of a folder of tables and returns its path."""
    from experiments.errors import UserError
    from experiments.reports.page import extra

    if options.model or options.reward:
        raise UserError(f"--model and --reward belong to a run, but {target} is a folder of tables. Leave them out.")
    extra.require()
    from experiments.reports.page.results_page import write_results_page

    write_results_page(target if target.is_dir() else KEPT, options.output)
    return Path(options.output)


def _names_tables(target: str) -> bool:
    """Returns whether a folder with tables is meant."""
    folder = Path(target)
    if target == RESULTS and not folder.exists():
        folder = KEPT
    return folder.is_dir() and next(folder.rglob("table.csv"), None) is not None
