"""Named example networks, architecturally exact, with seeded weights.

    >>> from environment import zoo
    >>> model = zoo.build("squeezenet1.1")     # an onnx.ModelProto, float32, static shapes, batch 1

Every network has a `-tiny` variant of the same structure for tests. Nothing is built, and no family's module imported,
before `build` asks for it; a graph's weights depend on its name alone, so a name stands for the same bytes everywhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

import onnx

__all__ = ["ZooError", "build", "names"]


class ZooError(KeyError):
    """No zoo graph has this name."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr, with its quotes


def _squeezenet(name: str) -> onnx.ModelProto:
    from environment.zoo import squeezenet

    configs = {"squeezenet1.1": squeezenet.SQUEEZENET_1_1, "squeezenet1.1-tiny": squeezenet.SQUEEZENET_1_1_TINY}
    return squeezenet.build_squeezenet(name, configs[name])


def _bert(name: str) -> onnx.ModelProto:
    from environment.zoo import bert

    configs = {"bert-base": bert.BERT_BASE, "bert-base-tiny": bert.BERT_BASE_TINY}
    return bert.build_bert(name, configs[name])


_BUILDERS: dict[str, Callable[[str], onnx.ModelProto]] = {
    "squeezenet1.1": _squeezenet,
    "squeezenet1.1-tiny": _squeezenet,
    "bert-base": _bert,
    "bert-base-tiny": _bert,
}


def names() -> list[str]:
    """All names that `build` accepts, each network followed by its tiny variant."""
    return list(_BUILDERS)


def build(name: str) -> onnx.ModelProto:
    """Builds the network called `name`; a new ModelProto on every call.

    Raises:
      ZooError: if there is none of this name; the text suggests the nearest one.
    """
    if name not in _BUILDERS:
        raise ZooError(_unknown(name))
    return _BUILDERS[name](name)


def _unknown(name: str) -> str:
    nearest = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"no zoo graph is called {name!r}{hint} The zoo has: {', '.join(names())}."
