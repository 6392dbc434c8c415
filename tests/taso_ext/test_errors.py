"""Hints name what is like a misspelt name, and nothing else."""

from __future__ import annotations

import pytest

from taso_ext.errors import did_you_mean, near

KNOWN = ("bert-base", "bert-l2-h128", "roofline:rtx2070", "unet", "ViT")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("bert-bas", "bert-base"),
        ("BERT-Base", "bert-base"),
        ("vit", "ViT"),
        ("rtx2070", "roofline:rtx2070"),
        ("ber", "bert-base"),  # it begins so
        ("nope", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_found(name: str, found: str | None) -> None:
    assert near(name, KNOWN) == found
    assert did_you_mean(name, KNOWN) == (f" (did you mean '{found}'?)" if found else "")
