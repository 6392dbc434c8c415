"""The command `rlflow`: a process that carries out one command, and what ends it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from experiments.commands.outcome import BAD_INPUT, carried_out
from experiments.commands.parser import build_parser, command_of
from experiments.runs.supervision import supervised, watch


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: None means those of the command line; the command then runs in a child process, see
        `experiments.runs.supervision`.
    Returns:
      0 if the command did what was asked; 1 if `rlflow check` finds that two models differ, or `rlflow validate` that
      a run is not as it was recorded; 2 for bad input or a training that comes to NaN or infinity, with one paragraph
      on standard error and no output file; 2 also if `rlflow rules verify` rejects a rule; 3 if nothing could be proved
      of what `rlflow optimise` wrote or of what `rlflow check` compared; 130 after Ctrl-C and 143 after SIGTERM; 128
      and the number of a signal if native code crashed and there was no going on.
    """
    from experiments.runs.signals import Interrupted, listening

    def listened() -> int:
        with listening():
            try:
                return _main(arguments)
            except ImportError as error:
                if error.name != "taso_ext._core":
                    raise
                print(f"rlflow: {error}", file=sys.stderr)
                return BAD_INPUT

    try:
        return supervised(listened) if arguments is None else listened()
    except Interrupted as interruption:
        return _stopped(str(interruption), interruption.signal)
    except KeyboardInterrupt:  # it came before `listening` took over, or a library raised it
        return _stopped("SIGINT", signal.SIGINT)


def _main(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(f"rlflow {version('rlflow')}")
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    options.arguments = tuple(sys.argv[1:] if arguments is None else arguments)
    if watch() is not None and options.command != "zoo":  # which runs no model, and lists them at once
        from taso_ext.onnx_io.session import set_watch

        set_watch(watch())
    return carried_out(lambda: command_of(options.command).run(options))


def _stopped(name: str, number: int) -> int:
    """Says that a signal has ended the command, and returns the exit status that shells report: 130 after Ctrl-C."""
    print(f"rlflow: stopped by {name}. The same command resumes where this one stopped.", file=sys.stderr)
    return 128 + number


if __name__ == "__main__":
    sys.exit(main())
