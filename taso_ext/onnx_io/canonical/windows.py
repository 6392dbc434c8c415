"""Normal forms of operators that slide a window: convolutions and pooling, with automatic padding made explicit."""

from __future__ import annotations

from taso_ext.onnx_io.canonical.form import Attribute, Lifter, NormalForm, RawNode

Window = dict[str, Attribute]


def _conv(node: RawNode) -> NormalForm | None:
    weight = node.inputs[1].dims
    if node.dims is None or weight is None or len(weight) != len(node.dims):
        return None
    window = _window(node, list(weight[2:]))
    if window is None or window["kernel_shape"] != list(weight[2:]):
        return None
    return NormalForm("Conv", window | {"group": node.integer("group", 1)}, (0, 1, 2) if node.given(2) else (0, 1))


def _max_pool(node: RawNode) -> NormalForm | None:
    window = _pool_window(node)
    return None if window is None else NormalForm("MaxPool", window, (0,))


def _average_pool(node: RawNode) -> NormalForm | None:
    window = _pool_window(node)
    if window is None:
        return None
    return NormalForm(
        "AveragePool", window | {"count_include_pad": int(node.integer("count_include_pad", 0) != 0)}, (0,)
    )


def _pool_window(node: RawNode) -> Window | None:
    kernel = node.integers("kernel_shape")
    if node.dims is None or kernel is None or len(node.outputs) != 1:
        return None
    window = _window(node, kernel)
    return None if window is None else window | {"ceil_mode": int(node.integer("ceil_mode", 0) != 0)}


def _window(node: RawNode, kernel: list[int]) -> Window | None:
    """kernel_shape, strides, pads and dilations, complete; None where they do not fit the input or are unusual."""
    assert node.dims is not None
    sizes = node.dims[2:]
    ones = [1] * len(sizes)
    kernel = node.integers("kernel_shape") or kernel
    strides, dilations = node.integers("strides") or ones, node.integers("dilations") or ones
    if not sizes or not len(sizes) == len(kernel) == len(strides) == len(dilations):
        return None
    if min(*kernel, *strides, *dilations, *sizes) < 1:
        return None
    pads = _pads(node, list(sizes), kernel, strides, dilations)
    if pads is None or len(pads) != 2 * len(sizes) or min(pads) < 0:
        return None
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}


def _pads(
    node: RawNode, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> list[int] | None:
    """Explicit pads. Automatic ones together with dilations, ceil_mode or pads are read differently by runtimes."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    given = node.integers("pads") or [0] * (2 * len(sizes))
    if mode in ("NOTSET", ""):
        return given
    if any(given) or node.integer("ceil_mode", 0):
        return None
    if mode == "VALID":
        return given
    if mode not in ("SAME_UPPER", "SAME_LOWER") or any(step != 1 for step in dilations):
        return None
    begin, end = [], []
    for size, width, stride in zip(sizes, kernel, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + width - size, 0)
        small = total // 2
        begin.append(small if mode == "SAME_UPPER" else total - small)
        end.append(total - begin[-1])
    return begin + end


LIFTERS: dict[str, Lifter] = {"Conv": _conv, "MaxPool": _max_pool, "AveragePool": _average_pool}
