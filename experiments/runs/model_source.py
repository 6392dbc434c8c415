"""Models as the command line names them: paths of ONNX files, or names of the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from environment import zoo
from experiments.errors import UserError


@dataclass(frozen=True)
class ModelSource:
    """
    Attributes:
      name: for titles and files.
      path: of the file; None for a graph of the zoo.
    """

    name: str
    path: Path | None

    def build(self) -> onnx.ModelProto | Path:
        """What `OnnxModel.load` takes."""
        return self.path or zoo.build(self.name)


def find_model(model: str) -> ModelSource:
    """The file of this path, or else the zoo graph of this name.

    Raises:
      UserError: no file, and it can only have been meant as a name; lists the zoo.
    """
    path = Path(model)
    if path.is_file() or model not in zoo.names():
        _require_file_or_name(path, model)
        return ModelSource(path.stem, path)
    return ModelSource(model, None)


def find_models(models: Sequence[str]) -> list[ModelSource]:
    """Those named, or the full-size graphs of the zoo."""
    return [find_model(model) for model in models or zoo.published_names()]


def _require_file_or_name(path: Path, model: str) -> None:
    if not path.exists() and path.suffix != ".onnx" and path.name == model:
        try:
            zoo.build(model)
        except zoo.ZooError as error:
            raise UserError(f"There is no file '{model}', and {error}") from error
