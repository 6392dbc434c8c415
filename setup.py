"""Builds the native modules `taso_ext._core` (engine) and `taso_ext._generator` (rule generator).

Everything else about the distribution stands in pyproject.toml.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pybind11
from pybind11.setup_helpers import ParallelCompile
from setuptools import Extension, setup

SOURCE_ROOT = Path("taso_ext/src")


def files(pattern: str, *, of_generator: bool) -> list[str]:
    """Files of the engine, in all its rooms, or of the rule generator, which is a module of its own."""
    found = (path for path in SOURCE_ROOT.rglob(pattern) if ("generator" in path.parts) == of_generator)
    return sorted(str(path) for path in found)


# -isystem: warnings inside pybind11's and Python's own headers must not fail our -Werror build.
SYSTEM_INCLUDES = [
    flag for path in (pybind11.get_include(), sysconfig.get_path("include")) for flag in ("-isystem", path)
]
COMPILE_FLAGS = [
    *("-std=c++20", "-O3", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"),
    "-MMD",  # each object records the headers it was compiled from, see `is_outdated`
    *SYSTEM_INCLUDES,
]
LINK_FLAGS: list[str] = []

# `make sanitize` sets it to address,undefined, `make sanitize-threads` to thread; each builds into a folder of its own.
if SANITIZERS := os.environ.get("RLFLOW_SANITIZE"):
    LINK_FLAGS = [f"-fsanitize={SANITIZERS}"]
    COMPILE_FLAGS += [*LINK_FLAGS, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g1"]
    # g++ 12 raises these falsely in instrumented code.
    COMPILE_FLAGS += ["-Wno-maybe-uninitialized", "-Wno-free-nonheap-object"]


def is_outdated(object_path: str, source_path: str) -> bool:
    """Whether an object is older than its source, a header that it includes, or the flags in this file."""
    dependency_file = Path(object_path).with_suffix(".d")
    if not dependency_file.is_file():
        return True
    inputs = dependency_file.read_text().replace("\\\n", " ").split()[1:]
    built = Path(object_path).stat().st_mtime
    return any(
        not Path(path).is_file() or Path(path).stat().st_mtime > built for path in (*inputs, source_path, __file__)
    )


# `make` sets it where it installs the Python part only: it builds the engine by a rule of its own, and once is enough.
MODULES = [] if os.environ.get("RLFLOW_PYTHON_ONLY") else [("taso_ext._core", False), ("taso_ext._generator", True)]

with ParallelCompile("RLFLOW_BUILD_JOBS", needs_recompile=is_outdated):
    setup(
        ext_modules=[
            Extension(
                name,
                files("*.cpp", of_generator=of_generator),
                include_dirs=[str(SOURCE_ROOT)],
                language="c++",
                extra_compile_args=COMPILE_FLAGS,
                extra_link_args=LINK_FLAGS,
                depends=[*files("*.hpp", of_generator=of_generator), "setup.py"],
            )
            for name, of_generator in MODULES
        ]
    )
