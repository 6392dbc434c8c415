"""Named example networks, architecturally exact, with seeded weights: the graphs that the field's papers optimise.

    >>> from environment import zoo
    >>> model = zoo.build("squeezenet1.1")     # an onnx.ModelProto, float32, static shapes, batch 1

| name                     | parameters  | input      | source                                                  |
|--------------------------|-------------|------------|---------------------------------------------------------|
| `squeezenet1.1`          | 1,235,496   | 224 x 224  | Iandola et al. 2016, version 1.1                        |
| `resnet18`               | 11,689,512  | 224 x 224  | He et al. 2016                                          |
| `resnet50`               | 25,557,032  | 224 x 224  | He et al. 2016                                          |
| `resnext50`              | 25,028,904  | 224 x 224  | Xie et al. 2017, 32x4d                                  |
| `inception-v3`           | 23,834,568  | 299 x 299  | Szegedy et al. 2016, without the auxiliary head         |
| `nasnet-a`               | 17,083,560  | 224 x 224  | Zoph et al. 2018, in the arrangement of Jia et al. 2019 |
| `bert-base`              | 109,482,240 | 128 tokens | Devlin et al. 2019                                      |
| `vit-base`               | 86,567,656  | 224 x 224  | Dosovitskiy et al. 2021, ViT-Base/16                    |
| `nasrnn`                 | 4,194,304   | 5 x 512    | Zoph and Le 2017, unrolled as in Jia et al. 2019        |
| `dalle-mini`             | 95,347,712  | 16 tokens  | Dayma et al. 2021, the text encoder, sizes of X-RLflow  |
| `transformer-transducer` | 48,634,909  | 80 x 512   | Zhang et al. 2020, sizes of X-RLflow, and 32 labels     |

| `minilm-l6`              | 22,713,216  | 128 tokens | Wang et al. 2020, 6 layers: all-MiniLM-L6, as PyTorch   |
|                          |             |            | exports its BERT with the pooler                        |
| `bert-l2-h128`           | 4,385,920   | 128 tokens | Turc et al. 2019, called BERT-Tiny                      |
| `t5-small`               | 35,330,816  | 128 tokens | Raffel et al. 2020, the encoder                         |
| `vgg19`                  | 143,667,240 | 224 x 224  | Simonyan and Zisserman 2015, configuration E            |
| `csrnet`                 | 16,263,489  | 224 x 224  | Li et al. 2018, configuration B: dilated convolutions   |
| `mnasnet`                | 4,383,312   | 224 x 224  | Tan et al. 2019, MnasNet-B1                             |
| `unet`                   | 31,030,658  | 572 x 572  | Ronneberger et al. 2015                                 |
| `ssd-mobilenet`          | 6,819,839   | 300 x 300  | Liu et al. 2016 with Howard et al. 2017, 91 classes     |
| `graph-network`          | 485,912     | 1024 edges | Battaglia et al. 2018, encode, process, decode          |
| `dlrm`                   | 4,635,985   | 26 + 13    | Naumov et al. 2019, tables of 10,000 rows               |
| `rnnlm`                  | 108,095,248 | 40 tokens  | Zaremba et al. 2014: LSTMs of 2048, unrolled            |
| `nmt`                    | 170,967,296 | 2 x 40     | Bahdanau et al. 2015 with LSTMs of 1024, unrolled       |

The networks after the gap are no part of the papers' tables. `composed-0` and `composed-1` are random compositions of
the blocks of SqueezeNet, Inception v3 and DALL·E mini, drawn from the seed in the name (`environment.zoo.composed`). No
paper defines them, and tables leave them out by default. `generated-N` is another such composition for every seed N;
`names` does not list them, because there are too many.

A name can be followed by changed sizes: `bert-base:layers=6,sequence=64`, `resnet18:batch=16` (see the configurations
of the families; BERTs, ResNets, Inception v3, `nasrnn` and those from `vgg19` on, but for
`graph-network`, have a batch).

`training` stands for the training graph of a network (`environment.gradients`), with one step of an optimiser or with
gradients alone: `resnet18:training=adam`, `mnasnet:batch=8,training=gradients`. Its loss is the mean square.

`outline` builds a network without the values of its weights, which is enough where only shapes count.

Every network has a `-tiny` variant of the same structure for tests; all BERTs share one. `build` imports a family's
module and builds a network only when it is called. A graph's weights depend on its name alone, so a name stands for the
same bytes everywhere.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from typing import TYPE_CHECKING, Any

import onnx

from taso_ext.errors import near

if TYPE_CHECKING:
    from taso_ext.onnx_io.checked_model import CheckedModel

__all__ = ["ZooError", "build", "contains", "is_trained", "names", "outline", "published_names", "tiny"]

TINY = "-tiny"
_GENERATED = re.compile(r"generated-(0|[1-9][0-9]{0,8})")

# A family is a module of this package with `NETWORKS`, the configuration of each of its names, and
# `build(name, config)`.
_FAMILIES = {
    "squeezenet1.1": "squeezenet",
    "resnet18": "resnet",
    "resnet50": "resnet",
    "resnext50": "resnet",
    "inception-v3": "inception",
    "nasnet-a": "nasnet",
    "bert-base": "bert",
    "vit-base": "vit",
    "nasrnn": "nasrnn",
    "dalle-mini": "dalle_mini",
    "transformer-transducer": "transformer_transducer",
    "composed-0": "composed",
    "composed-1": "composed",
    "t5-small": "t5",
    "vgg19": "vgg",
    "csrnet": "vgg",
    "mnasnet": "mnasnet",
    "unet": "unet",
    "ssd-mobilenet": "ssd_mobilenet",
    "graph-network": "graph_network",
    "dlrm": "dlrm",
    "rnnlm": "lstm",
    "nmt": "lstm",
}
_UNPUBLISHED = (
    *("composed", "t5", "vgg"),
    *("mnasnet", "unet", "ssd_mobilenet", "graph_network", "dlrm", "lstm"),
)
"""Families that are no part of the papers' tables."""
_OPTIMISERS = {"gradients": None, "sgd": "sgd", "adam": "adam", "rmsprop": "rmsprop"}
"""What `training` may be, and the optimiser of the training graph."""
_OTHER_SIZES = {"minilm-l6": "bert", "bert-l2-h128": "bert"}
"""Networks of a family above whose tiny variant is that of another one."""


class ZooError(KeyError):
    """No zoo graph has this name, or it cannot have these sizes."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr, with its quotes


def names() -> list[str]:
    """Returns the names of all networks but the generated ones, each followed by its tiny variant if it has one."""
    return [*(variant for name in _FAMILIES for variant in (name, name + TINY)), *_OTHER_SIZES]


def contains(name: str) -> bool:
    """Returns whether `build` knows the network of a name and its sizes; whether they fit one another, `build` says."""
    try:
        _configured(_untrained(name)[0])
    except ZooError:
        return False
    return True


def is_trained(name: str) -> bool:
    """Returns whether a name stands for a training graph.

    Raises:
      ZooError: see `build`.
    """
    return _untrained(name)[1] is not None


def published_names() -> list[str]:
    """Returns the names of the full-size networks of the papers' tables, which our tables are about by default."""
    return [name for name, family in _FAMILIES.items() if family not in _UNPUBLISHED]


def tiny(name: str) -> str:
    """Returns the name of a tiny network that has the structure of the network called `name`, for tests."""
    base = name.partition(":")[0].removesuffix(TINY)
    if _GENERATED.fullmatch(base):
        return f"composed-0{TINY}"
    family = family_of(base)
    of_family = [each for each, other in _FAMILIES.items() if other == family]
    return f"{base if base in of_family else of_family[0]}{TINY}"


def family_of(name: str) -> str:
    """Returns the family of networks, the module that builds it, of a name that the zoo contains."""
    name = name.partition(":")[0]
    if _GENERATED.fullmatch(name):
        return "composed"
    return (_FAMILIES | _OTHER_SIZES)[name.removesuffix(TINY)]


def build(name: str, **changes: Any) -> onnx.ModelProto:
    """Builds the network called `name`, or its training graph, as a new ModelProto on every call.

    Args:
      changes: changed fields of its configuration, such as `layers=6` for "bert-base"; see the families' modules.
    Raises:
      ZooError: there is no network of this name; the message suggests the nearest one. Or its sizes do not fit one
        another, or its training graph takes more than the 2 GB that a ModelProto can hold.
      TypeError: its configuration has no such field.
    """
    name, training = _untrained(name)
    model = _built(name, changes)
    return model if training is None else _training_graph(name, model, training)


def _built(name: str, changes: dict[str, Any]) -> onnx.ModelProto:
    family, config = _configured(name)
    try:
        model: onnx.ModelProto = family.build(name.partition(":")[0], dataclasses.replace(config, **changes))
    except ValueError as error:
        raise ZooError(f"{name} cannot be built, because its sizes do not fit one another: {error}") from error
    return model


def outline(name: str, **changes: Any) -> CheckedModel:
    """Builds a network, or its training graph, without the values of its weights, which are zeros that take no memory.

    That is enough where only shapes count, and it works for networks of any size.

    Args:
      changes: see `build`.
    Raises:
      ZooError, TypeError: see `build`.
    """
    import onnx_ir as ir  # the zoo is imported where nothing is outlined

    from environment.gradients import training_model
    from environment.zoo.layers import without_values
    from taso_ext.onnx_io.checked_model import CheckedModel

    name, training = _untrained(name)
    with without_values() as weights:
        plain = CheckedModel.from_proto(_built(name, changes))
    model = dataclasses.replace(plain, tensors=plain.tensors | {key: ir.tensor(each) for key, each in weights.items()})
    return model if training is None else training_model(model, optimiser=_OPTIMISERS[training])


def _training_graph(name: str, model: onnx.ModelProto, training: str) -> onnx.ModelProto:
    from environment.gradients import training_graph  # the zoo is imported where nothing is trained

    try:
        return training_graph(model, optimiser=_OPTIMISERS[training])
    except ValueError as error:
        raise ZooError(f"{name} has no training graph in memory: {error}") from error


def _untrained(name: str) -> tuple[str, str | None]:
    """Returns a name without `training`, and what that is; None if it is not there.

    Raises:
      ZooError: it is none of those that there are.
    """
    base, _, text = name.partition(":")
    sizes = [part for part in text.split(",") if not part.startswith("training=")]
    chosen = [part.removeprefix("training=") for part in text.split(",") if part.startswith("training=")]
    if not chosen:
        return name, None
    if len(chosen) > 1 or chosen[0] not in _OPTIMISERS:
        raise ZooError(
            f"no zoo graph is called {name!r}: expected one training={' or training='.join(_OPTIMISERS)}, got "
            f"{', '.join(chosen)}."
        )
    return f"{base}:{','.join(sizes)}" if sizes else base, chosen[0]


def _configured(name: str) -> tuple[Any, Any]:
    """Returns the module that builds a network, and the network's configuration.

    Raises:
      ZooError: there is no network of this name.
    """
    base, _, text = name.partition(":")
    seed = _GENERATED.fullmatch(base)
    if base not in names() and not seed:
        raise ZooError(_unknown(base))
    family = importlib.import_module(f"environment.zoo.{family_of(base)}")
    config = family.generated(int(seed[1])) if seed else family.NETWORKS[base]
    return family, dataclasses.replace(config, **_sizes(name, text, config)) if ":" in name else config


def _sizes(name: str, text: str, config: Any) -> dict[str, int]:
    """Returns the changed sizes that follow a name.

    Raises:
      ZooError: the text is no list of sizes, or the configuration does not have one of them.
    """
    pairs = [part.partition("=") for part in text.split(",")]
    known = [field.name for field in dataclasses.fields(config) if type(getattr(config, field.name)) is int]
    wrong = [key for key, _, value in pairs if key not in known or not re.fullmatch("[1-9][0-9]{0,8}", value)]
    if wrong:
        raise ZooError(
            f"no zoo graph is called {name!r}: expected sizes as in {name.partition(':')[0]}:{known[0]}=8, of which "
            f"there are {', '.join(known)}."
            if known
            else f"no zoo graph is called {name!r}: {name.partition(':')[0]} has no sizes to change."
        )
    return {key: int(value) for key, _, value in pairs}


def _unknown(name: str) -> str:
    found = near(name, names())
    hint = f"; did you mean {found!r}?" if found else "."
    return f"no zoo graph is called {name!r}{hint} The zoo has: {', '.join(names())}, and generated-0, generated-1, ..."
