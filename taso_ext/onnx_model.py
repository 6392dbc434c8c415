"""An ONNX model in the engine, and its way back out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property

import onnx

from taso_ext._core import Graph
from taso_ext.cleanup import clean_up
from taso_ext.detached import DetachedModel, attach, detach
from taso_ext.onnx_export import ExportSource, export_model
from taso_ext.onnx_file import read_model
from taso_ext.onnx_import import import_model


class OnnxModel:
    """A model loaded into the engine; its weights are held once, in `original`.

        model = OnnxModel.load("bert.onnx", dims={"batch": 1})
        state = State(model.graph, rules, costs)
        ...
        onnx.save(model.export(state.graph), "bert.opt.onnx")

    Attributes:
      original: the model as given, with symbolic dimensions bound.
      graph: the cleaned model as the engine sees it.
    """

    def __init__(self, original: onnx.ModelProto, cleaned: DetachedModel, inputs: list[onnx.ValueInfoProto]) -> None:
        """Use `load`."""
        self.original = original
        self._cleaned = cleaned
        imported = import_model(cleaned)
        self.graph: Graph = imported.graph
        listed = [value.name for value in cleaned.skeleton.graph.input]
        defaults = {listed.index(name): tensor for name, tensor in cleaned.defaults.items()}
        self._source = ExportSource(original, cleaned.skeleton, imported, inputs, defaults)

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str] | onnx.ModelProto,
        *,
        dims: Mapping[str, int] | None = None,
        clean: str = "full",
        freeze_initializers: bool = False,
    ) -> OnnxModel:
        """Reads, checks and cleans a model and hands it to the engine.

        Args:
          source: a path (external data is read from beside it) or a model, which is not changed.
          dims: sizes of symbolic dimensions by name.
          clean: how much to clean up: "full", "basic" or "none" (see `taso_ext.cleanup`).
          freeze_initializers: treat initializers that a caller could override as constants.
        Raises:
          ModelError: the model cannot be used; the message says why and what to do.
        """
        original = read_model(source, dims)
        detached = detach(original, freeze_initializers)
        inputs = [value for value in original.graph.input if value.name not in detached.tensors]
        return cls(original, clean_up(detached, clean), inputs)

    @cached_property
    def cleaned(self) -> onnx.ModelProto:
        """The model after clean-up, before any rewrite, as a model of its own."""
        return attach(self._cleaned)

    def export(self, graph: Graph) -> onnx.ModelProto:
        """A graph that descends from `self.graph`, as an ONNX model with the original's inputs, outputs and metadata.

        Values that depend on weights alone are computed now, by ONNX Runtime with its optimisations off.

        Raises:
          ModelError: an operator that a rewrite created does not exist in the model's opset.
        """
        return export_model(graph, self._source)
