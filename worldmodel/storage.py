"""Storage of world models as directories: `world_model.json` describes the tables, embeddings and weights beside it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from taso_ext.files import UNREADABLE_ARRAYS, write_arrays
from worldmodel.config import FORMAT_VERSION, EncoderConfig, MdnRnnConfig
from worldmodel.dynamics.mdn_rnn import MdnRnn
from worldmodel.dynamics.start_graphs import ModelSizes, StartGraph, Statistics
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.errors import IncompatibleWorldModel
from worldmodel.signature import Signature

ANEW = "Train a world model anew, in another run directory, or go on with the RLFlow that wrote this one."


class Parts(NamedTuple):
    """The parts of a world model, see `WorldModel`; `embeddings` are the known raw embeddings by graph hash."""

    signature: Signature
    encoder: GraphEncoder
    mdn_rnn: MdnRnn
    statistics: Statistics
    start_graphs: Sequence[StartGraph]
    embeddings: Mapping[str, np.ndarray]


def write(directory: Path, parts: Parts) -> None:
    """Writes all files into an existing directory."""
    description = {
        "format_version": FORMAT_VERSION,
        "signature": dataclasses.asdict(parts.signature),
        "encoder": dataclasses.asdict(parts.encoder.config),
        "mdn_rnn": dataclasses.asdict(parts.mdn_rnn.config),
        "sizes": parts.mdn_rnn.sizes._asdict(),
    }
    (directory / "world_model.json").write_text(json.dumps(description, indent=1), encoding="utf-8")
    arrays = {f"statistics/{name}": value for name, value in parts.statistics.to_arrays().items()}
    for number, graph in enumerate(parts.start_graphs):
        arrays |= {f"start_graph{number}/{name}": value for name, value in graph.to_arrays().items()}
    write_arrays(directory / "tables.npz", arrays, compress=True)
    hashes, raw = np.array(list(parts.embeddings), np.str_), np.array(list(parts.embeddings.values()), np.float32)
    write_arrays(directory / "embeddings.npz", {"hashes": hashes, "raw": raw}, compress=True)
    with checkpoint_written(directory):
        _checkpoint(parts).write(str(directory / "weights"))


@contextlib.contextmanager
def checkpoint_written(directory: Path) -> Iterator[None]:
    """Turns TensorFlow's errors of writing a checkpoint into OSError, as a full disk raises it elsewhere."""
    try:
        yield
    except tf.errors.OpError as error:
        number = next((number for kind, number in _REASONS.items() if isinstance(error, kind)), errno.EIO)
        raise OSError(number, os.strerror(number), str(directory)) from error


_REASONS = {
    tf.errors.ResourceExhaustedError: errno.ENOSPC,
    tf.errors.OutOfRangeError: errno.EFBIG,
    tf.errors.PermissionDeniedError: errno.EACCES,
}


def read(directory: Path, signature: Signature | None = None) -> Parts:
    """Reads what `write` has written, except the weights.

    Args:
      signature: the signature of the environment at hand; checked if given.
    Raises:
      IncompatibleWorldModel: if the model was trained for another signature, or has another format. `readable` turns
        the other errors of a damaged directory into it as well.
    """
    description = json.loads((directory / "world_model.json").read_text(encoding="utf-8"))
    if not isinstance(description, dict):
        raise ValueError("world_model.json does not hold an object")
    version = description.get("format_version", "none")
    if version != FORMAT_VERSION:
        raise IncompatibleWorldModel(f"{directory} has format {version}, expected {FORMAT_VERSION}. {ANEW}")
    stored = Signature.from_json(description["signature"])
    if signature is not None:
        stored.require(signature, f"the world model {directory}")
    with np.load(directory / "tables.npz") as arrays:
        statistics, start_graphs = _read_tables(dict(arrays))
    with np.load(directory / "embeddings.npz") as arrays:
        embeddings = dict(zip(arrays["hashes"].tolist(), arrays["raw"], strict=True))
    encoder = GraphEncoder(EncoderConfig(**description["encoder"]), stored.features)
    mdn_rnn = MdnRnn(_read_mdn_rnn_config(description["mdn_rnn"]), ModelSizes(**description["sizes"]))
    return Parts(stored, encoder, mdn_rnn, statistics, start_graphs, embeddings)


def read_weights(directory: Path, parts: Parts) -> None:
    """Reads the weights that `write` has written into the model's variables, all of which have to exist."""
    _checkpoint(parts).read(str(directory / "weights")).assert_consumed()


@contextlib.contextmanager
def readable(directory: Path) -> Iterator[None]:
    """Turns the errors of reading a damaged directory into `IncompatibleWorldModel`, which says what to do."""
    try:
        yield
    except IncompatibleWorldModel:
        raise
    except (*UNREADABLE_ARRAYS, TypeError, AssertionError, tf.errors.OpError) as error:
        said = (str(error).splitlines() or [""])[0]
        raise IncompatibleWorldModel(
            f"{directory} is of format {FORMAT_VERSION} but cannot be read ({type(error).__name__}: {said}): it was "
            f"written by another version, or is damaged. {ANEW}"
        ) from error


def replace_directory(directory: Path, fill: Callable[[Path], None]) -> None:
    """Lets `fill` write a directory, then puts it in place of `directory`.

    The old directory is moved aside first and removed last. If the process is killed in between, the old directory
    still exists, as a hidden neighbour whose name ends in `.old`.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    aside = temporary.with_name(f"{temporary.name}.old")
    try:
        fill(temporary)
        if directory.exists():
            directory.rename(aside)
        try:
            temporary.rename(directory)
        except BaseException:
            if aside.exists():
                aside.rename(directory)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _checkpoint(parts: Parts) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(encoder=parts.encoder, mdn_rnn=parts.mdn_rnn)


def _read_mdn_rnn_config(stored: Mapping[str, Any]) -> MdnRnnConfig:
    low, high = stored["log_sigma_range"]
    return MdnRnnConfig(**{**stored, "log_sigma_range": (low, high)})


def _read_tables(arrays: Mapping[str, np.ndarray]) -> tuple[Statistics, list[StartGraph]]:
    groups: dict[str, dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = value
    statistics = Statistics.from_arrays(groups.pop("statistics"))
    return statistics, [StartGraph.from_arrays(groups[f"start_graph{number}"]) for number in range(len(groups))]
