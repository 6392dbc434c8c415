"""A fuzz target for ONNX models: any file is refused with ModelError, or loaded, rewritten and exported."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import zlib
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["taso_ext"]):
    from taso_ext import CostModel, ModelError, OnnxModel, RuleSet, State

import onnx
from google.protobuf.message import DecodeError
from mutate_message import mutate_message

FILE = Path(tempfile.mkdtemp()) / "model.onnx"
CLEANING = ("none", "basic", "full")
RULES = RuleSet.default()
COSTS = CostModel.roofline("rtx2070")


def run(data: bytes) -> None:
    FILE.write_bytes(data)
    choice = zlib.crc32(data)
    try:
        model = OnnxModel.load(FILE, clean=CLEANING[choice % 3])
        state = State(model.graph, RULES, COSTS)
        actions = state.legal_actions()
        if len(actions):
            state.step(*actions[choice % len(actions)])
        state.features()
        model.export(state.graph)
    except ModelError:
        return


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    model = onnx.ModelProto()
    rng = random.Random(seed)
    try:
        model.ParseFromString(data)
    except DecodeError:
        return atheris.Mutate(data, max_size)
    if rng.random() < 0.2:
        return atheris.Mutate(data, max_size)
    for _ in range(rng.randint(1, 3)):
        mutate_message(model, rng)
    return model.SerializePartialToString()[:max_size]


if __name__ == "__main__":
    # ONNX Runtime would print what it refuses, too.
    os.environ.setdefault("ORT_DISABLE_ALL_LOGS", "1")
    atheris.Setup(sys.argv, run, custom_mutator=mutate)
    atheris.Fuzz()
