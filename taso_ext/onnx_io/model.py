"""An ONNX model in the engine, and its way back out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import onnx

from taso_ext._core import Graph
from taso_ext.onnx_io.cleanup.passes import clean_up
from taso_ext.onnx_io.detached import DetachedModel, attach
from taso_ext.onnx_io.exporting import ExportSource, Sketch, export_model, opset_of, sketch_model
from taso_ext.onnx_io.importing import import_model
from taso_ext.onnx_io.reading import Source, name_of, read_model
from taso_ext.onnx_io.shapes import value_types
from taso_ext.onnx_io.unsized import require_sizes
from taso_ext.onnx_io.writing import write_model


class OnnxModel:
    """A model loaded into the engine; its weights stay in the mapped file, or in the given model.

        model = OnnxModel.load("bert.onnx", dims={"batch": 1})
        state = State(model.graph, rules, costs)
        ...
        model.save(state.graph, "bert.opt.onnx")

    Files, and models in memory, that hold weights must not be changed while this one is in use; replacing files by new
    ones is safe.

    Attributes:
      source: the model as given, with symbolic dimensions bound; its weights are handles.
      graph: the cleaned model as the engine sees it.
    """

    def __init__(self, source: DetachedModel, cleaned: DetachedModel, name: str) -> None:
        """Use `load`."""
        self.source = source
        self._cleaned = cleaned
        types = value_types(cleaned)
        require_sizes(cleaned.skeleton.graph, types, name)
        imported = import_model(cleaned, types)
        self.graph: Graph = imported.graph
        listed = [value.name for value in cleaned.skeleton.graph.input]
        defaults = {listed.index(name): tensor for name, tensor in cleaned.defaults.items()}
        inputs = list(source.skeleton.graph.input)
        self._export_source = ExportSource(source.skeleton, cleaned.skeleton, imported, inputs, defaults)

    @classmethod
    def load(
        cls,
        source: Source,
        *,
        dims: Mapping[str, int] | None = None,
        clean: str = "full",
        freeze_initializers: bool = False,
    ) -> OnnxModel:
        """Reads, checks and cleans a model and hands it to the engine.

        Args:
          source: a path (external data is read from beside it), the bytes of a file, or a model, which is not changed.
          dims: sizes of symbolic dimensions by name. A dimension may stay open where no operator is priced on it.
          clean: how much to clean up: "full", "basic" or "none" (see `taso_ext.onnx_io.cleanup.passes`).
          freeze_initializers: treat initializers that a caller could override as constants.
        Raises:
          ModelError: the model cannot be used; the message says why and what to do.
        """
        given = read_model(source, dims, freeze_initializers)
        return cls(given, clean_up(given, clean), name_of(source))

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators that the model uses; `export` raises it where rewrites need it."""
        return opset_of(self._cleaned.skeleton)

    @cached_property
    def original(self) -> onnx.ModelProto:
        """`source` as a model that holds a copy of every weight."""
        return attach(self.source)

    @cached_property
    def cleaned(self) -> onnx.ModelProto:
        """The model after clean-up, before any rewrite, as a model that holds a copy of every weight."""
        return attach(self._cleaned)

    def export(self, graph: Graph) -> onnx.ModelProto:
        """`export_detached` as a model that holds a copy of every weight."""
        return attach(self.export_detached(graph))

    def export_detached(self, graph: Graph) -> DetachedModel:
        """A graph that descends from `self.graph`, as an ONNX model with the original's inputs, outputs and metadata.

        Values that depend on weights alone are computed now, by ONNX Runtime with its optimisations off; all other
        weights stay where they are.

        Raises:
          ModelError: an operator that a rewrite created does not exist in the model's opset.
        """
        return export_model(graph, self._export_source)

    def sketch(self, graph: Graph) -> Sketch:
        """As `export_detached`, but with zeros in place of large weights that would have to be computed.

        Raises:
          ModelError: as `export_detached`.
        """
        return sketch_model(graph, self._export_source)

    def save(self, graph: Graph, path: str | os.PathLike[str]) -> None:
        """Writes `export_detached`, weights straight from where they are; see `write_model`."""
        write_model(self.export_detached(graph), Path(path))
