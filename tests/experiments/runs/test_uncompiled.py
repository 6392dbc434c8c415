"""TensorFlow compiles nothing inside `uncompiled`, and afterwards does what it did before."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
import tensorflow as tf

from experiments.executors.local import Unit
from experiments.reproduce import options as shared
from experiments.runs.progress import make_progress
from experiments.runs.run import import_tensorflow, uncompiled


@pytest.mark.parametrize("before", [False, True])
def test_what_was_before_is_again_afterwards(before: bool) -> None:
    was = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(before)
    try:
        with uncompiled():
            assert tf.config.functions_run_eagerly()
            import_tensorflow()
        assert tf.config.functions_run_eagerly() == before
        import_tensorflow()
        assert tf.config.functions_run_eagerly() == before
    finally:
        tf.config.run_functions_eagerly(was)


def test_tensorflow_that_is_imported_inside_compiles_afterwards() -> None:
    program = (
        "from experiments.runs.run import import_tensorflow, uncompiled\n"
        "with uncompiled():\n"
        "    import_tensorflow()\n"
        "    import tensorflow as tf\n"
        "    inside = tf.config.functions_run_eagerly()\n"
        "print(inside, tf.config.functions_run_eagerly())"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "True False\n"


@pytest.mark.parametrize(
    ("scale", "measures", "times_tensorflow", "compiles"),
    [
        ("full", False, None, True),
        ("smoke", False, None, False),
        ("smoke", True, None, True),
        ("smoke", True, False, False),
    ],
)
def test_only_units_of_a_quick_look_that_time_nothing_compile_nothing(
    scale: str, measures: bool, times_tensorflow: bool | None, compiles: bool
) -> None:
    options = argparse.Namespace(scale=scale, table="t", processes=1, address=None, executor="local")
    unit = Unit("one", lambda _: {"eagerly": tf.config.functions_run_eagerly()})
    (record,) = shared.run_units([unit], options, make_progress(), measures=measures, times_tensorflow=times_tensorflow)
    assert record["eagerly"] == (not compiles)
