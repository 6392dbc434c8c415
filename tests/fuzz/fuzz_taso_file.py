"""A fuzz target for TASO's rule files: any bytes are read or refused with TasoFileError, and nothing else is raised."""

from __future__ import annotations

import random
import sys
import tempfile
import zlib
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["taso_ext"]):
    from taso_ext import RuleSet
    from taso_ext.taso_rules import TasoFileError, load_taso_rules
    from taso_ext.taso_rules.file import collection_class, read_taso_file
    from taso_ext.taso_rules.loading import domains, rule_text
    from taso_ext.taso_rules.substitution import (
        InexpressibleError,
        changes_nothing,
        output_terms,
        same_rule,
        substitution,
    )

from google.protobuf.message import DecodeError
from mutate_message import mutate_message

FILE = Path(tempfile.mkdtemp()) / "rules.pb"
ONE_IN = 64  # inputs whose rules are verified, which takes a thousand times as long as translating


def run(data: bytes) -> None:
    FILE.write_bytes(data)
    try:
        rules = read_taso_file(FILE)
    except TasoFileError:
        return
    for rule in rules:
        try:
            translated = substitution(rule)
            output_terms(translated)
            changes_nothing(translated)
            same_rule(translated, translated)
            texts = [rule_text(translated, domain) for domain in domains(translated)]
        except InexpressibleError:
            continue
        for text in texts:
            try:
                RuleSet.parse(text)
            except ValueError:  # `load_taso_rules` reports these as not expressible
                break
    if zlib.crc32(data) % ONE_IN == 0:
        load_taso_rules(FILE, instances=1)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    message = collection_class()()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return atheris.Mutate(data, max_size)
    rng = random.Random(seed)
    if rng.random() < 0.2:
        return atheris.Mutate(data, max_size)
    for _ in range(rng.randint(1, 3)):
        mutate_message(message, rng)
    return message.SerializePartialToString()[:max_size]


if __name__ == "__main__":
    atheris.Setup(sys.argv, run, custom_mutator=mutate)
    atheris.Fuzz()
