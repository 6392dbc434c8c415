"""An ONNX model in the engine, and the export of rewritten graphs as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import onnx

from taso_ext._core import Graph, Waypoints
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.cleanup.passes import clean_up
from taso_ext.onnx_io.dimensions import bind_dims, require_sizes
from taso_ext.onnx_io.exporting import ExportSource, Sketch, export_model, sketch_model
from taso_ext.onnx_io.importing import import_model
from taso_ext.onnx_io.model_file import write_model
from taso_ext.onnx_io.reading import Source, name_of, read_model


class OnnxModel:
    """A model that is loaded into the engine; its weights stay in the memory-mapped file or in the given model.

        model = OnnxModel.load("bert.onnx", dims={"batch": 1})
        state = State(model.graph, rules, costs)
        ...
        model.save(state.graph, "bert.opt.onnx")

    A file or a model in memory that holds the weights must not be changed while this object is in use. It is safe to
    replace a file by a new one.

    Attributes:
      given: the model as given; its weights are handles.
      source: the same with symbolic dimensions bound.
      cleaned: the model after clean-up, before any rewrite.
      graph: the cleaned model as the engine sees it.
      waypoints: graphs that compute what `graph` does, to which a step may go; see `taso_ext.State`. There are none at
        first.
    """

    def __init__(self, given: CheckedModel, dims: Mapping[str, int], clean: str, sizes_last: bool, name: str) -> None:
        """Takes a model that `load` has read; use `load` instead."""
        self.given, self._clean, self._sizes_last, self._name = given, clean, sizes_last, name
        self.source: CheckedModel = bind_dims(given, dims, name)
        self.cleaned: CheckedModel = (
            bind_dims(clean_up(given, clean), dims, name) if sizes_last else clean_up(self.source, clean)
        )
        require_sizes(self.cleaned.skeleton.graph, self.cleaned.types, name)
        imported = import_model(self.cleaned)
        self.graph: Graph = imported.graph
        self.waypoints = Waypoints()
        self._export_source = ExportSource(self.source, self.cleaned, imported)

    @classmethod
    def load(
        cls,
        source: Source,
        *,
        dims: Mapping[str, int] | None = None,
        clean: str = "full",
        freeze_initializers: bool = False,
        sizes_last: bool = False,
    ) -> OnnxModel:
        """Reads, checks and cleans a model and hands it to the engine.

        Args:
          source: a path (external data is read from its directory), the bytes of a file, or a model, which is not
            changed.
          dims: sizes of symbolic dimensions by name. A dimension needs no size if no operator's price depends on it.
          clean: how much to clean up: "full", "basic" or "none" (see `taso_ext.onnx_io.cleanup.passes`).
          freeze_initializers: whether initializers that a caller could override become constants.
          sizes_last: whether the clean-up does not see the sizes in `dims`, so that it folds nothing that depends on
            them.
        Raises:
          ModelError: the model cannot be used; the message says why and what to do.
        """
        given = read_model(source, freeze_initializers=freeze_initializers)
        return cls(given, dims or {}, clean, sizes_last, name_of(source))

    def at(self, dims: Mapping[str, int]) -> OnnxModel:
        """Returns the model as given, loaded in the same way with other sizes of its symbolic dimensions.

        Raises:
          ModelError: see `load`.
        """
        return OnnxModel(self.given, dims, self._clean, self._sizes_last, self._name)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators that the model uses; the export raises it if rewrites need that."""
        return self.cleaned.opset

    def export(self, graph: Graph) -> onnx.ModelProto:
        """Returns the model of `export_checked` as one message, which holds a copy of every weight.

        Raises:
          ModelError: see `export_checked`.
          ValueError: the weights take more than the 2 GB that protobuf can hold; use `save`.
        """
        return self.export_checked(graph).to_proto()

    def export_checked(self, graph: Graph) -> CheckedModel:
        """Returns a graph as a model with the inputs, outputs and metadata of the original.

        Values that depend on weights alone are computed now, by ONNX Runtime with its optimisations off; all other
        weights stay where they are.

        Args:
          graph: a graph that descends from `self.graph`.
        Raises:
          ModelError: the graph can be written neither in the model's opset nor in a newer one.
        """
        return export_model(graph, self._export_source)

    def sketch(self, graph: Graph, near: Collection[int] = (), distance: int = 0) -> Sketch:
        """Exports a graph like `export_checked`, but with zeros for large weights that would have to be computed.

        Args:
          near, distance: the part of the graph that is wanted, if not all; see `sketch_model`.
        Raises:
          ModelError: see `export_checked`.
        """
        return sketch_model(graph, self._export_source, near, distance)

    def save(self, graph: Graph, path: str | os.PathLike[str]) -> None:
        """Writes the model of `export_checked` to a file, weights straight from where they are; see `write_model`."""
        write_model(self.export_checked(graph), Path(path))
