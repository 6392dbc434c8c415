"""Named example networks, architecturally exact, with seeded weights: the graphs that the field's papers optimise.

    >>> from environment import zoo
    >>> model = zoo.build("squeezenet1.1")     # an onnx.ModelProto, float32, static shapes, batch 1

| name            | parameters  | input      | source                                                  |
|-----------------|-------------|------------|---------------------------------------------------------|
| `squeezenet1.1` | 1,235,496   | 224 x 224  | Iandola et al. 2016, version 1.1                        |
| `bert-base`     | 109,482,240 | 128 tokens | Devlin et al. 2019                                      |

Every network has a `-tiny` variant of the same structure for tests. Nothing is built, and no family's module imported,
before `build` asks for it; a graph's weights depend on its name alone, so a name stands for the same bytes everywhere.
"""

from __future__ import annotations

import difflib
import importlib

import onnx

__all__ = ["ZooError", "build", "names"]

TINY = "-tiny"

# A family is a module of this package with `NETWORKS`, the configuration of each of its names, and
# `build(name, config)`.
_FAMILIES = {
    "squeezenet1.1": "squeezenet",
    "bert-base": "bert",
}


class ZooError(KeyError):
    """No zoo graph has this name."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr, with its quotes


def names() -> list[str]:
    """All names that `build` accepts, each network followed by its tiny variant."""
    return [variant for name in _FAMILIES for variant in (name, name + TINY)]


def build(name: str) -> onnx.ModelProto:
    """Builds the network called `name`; a new ModelProto on every call.

    Raises:
      ZooError: if there is none of this name; the text suggests the nearest one.
    """
    if name not in names():
        raise ZooError(_unknown(name))
    family = importlib.import_module(f"environment.zoo.{_FAMILIES[name.removesuffix(TINY)]}")
    model: onnx.ModelProto = family.build(name, family.NETWORKS[name])
    return model


def _unknown(name: str) -> str:
    nearest = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"no zoo graph is called {name!r}{hint} The zoo has: {', '.join(names())}."
