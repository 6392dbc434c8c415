"""The version of the program, by its sources: machines of equal versions make equal units of equal settings."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

PACKAGES = ("controller", "environment", "experiments", "taso_ext", "worldmodel")
SUFFIXES = (".py", ".toml", ".rules", ".gz", ".cpp", ".hpp")
"""Sources, presets, rules and prices that come with the program."""


@functools.cache
def version_of_sources(root: Path = Path(__file__).parents[2]) -> str:
    """Returns a digest of the names and contents of all sources in the packages below a folder.

    An installed wheel has no C++ sources, so that its version is not that of a clone. What was compiled of the C++
    sources is not looked at: build before you compare.
    """
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
