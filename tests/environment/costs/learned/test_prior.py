"""The shipped prices: provenance, and files that cannot be read."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest

from environment.costs.learned.prior import FILE, read_prior, shipped_prior, write_prior
from environment.costs.measured.kernel_prices import split_key
from environment.costs.prices.sqlite_file import DatabaseError


def test_the_shipped_file_is_small_and_says_where_it_is_from() -> None:
    prior = shipped_prior()
    assert FILE.stat().st_size < 1e6
    assert prior.setting.processor and prior.setting.version and prior.date and prior.command.startswith("rlflow")
    assert len(prior.kernels) > 500 and all(each.ratio > 0 and each.families for each in prior.kernels)
    assert {family for each in prior.kernels for family in each.families} == set(range(len(prior.families)))


def test_a_written_file_is_read_as_it_was_and_equal_ones_are_equal(tmp_path: Path) -> None:
    prior = replace(shipped_prior(), kernels=shipped_prior().kernels[:20])
    for name in ("a", "b"):
        write_prior(prior, tmp_path / name)
    assert read_prior(tmp_path / "a") == prior
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert split_key(prior.kernels[0].key)


def of_version_99(data: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data).replace(b'"format": 2', b'"format": 99', 1))


def without_errors(data: bytes) -> bytes:
    return gzip.compress(re.sub(rb'"errors": \[[^]]*\]', b'"errors": []', gzip.decompress(data), count=1))


def without_its_end(data: bytes) -> bytes:
    return gzip.compress(b"\n".join(gzip.decompress(data).splitlines()[:-3]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data[:-100], "cannot be read"),
        (lambda data: b"no such format", "cannot be read"),
        (without_its_end, "kernels of"),
        (of_version_99, "version 99"),
        (without_errors, "no errors"),
    ],
    ids=["truncated", "something else", "without its end", "newer", "without errors"],
)
def test_a_bad_file_is_one_error(spoil: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "prior.json.gz"
    path.write_bytes(spoil(FILE.read_bytes()))  # type: ignore[operator]
    with pytest.raises(DatabaseError, match=said) as caught:
        read_prior(path)
    assert "rlflow costs prior" in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="Install RLFlow anew"):
        read_prior(tmp_path / "prior.json.gz")
