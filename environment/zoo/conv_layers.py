"""The layers of convolutional networks, as PyTorch's exporter writes them in inference mode.

Batch norms stay operators of their own. An import clean-up may fold them; a comparison without it needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from environment.zoo.layers import Array, Layers, require

Draw = Callable[[str, Sequence[int]], Array]  # how a kernel is drawn: its name and shape -> its values
Window = int | tuple[int, int]  # [height, width]; one number means a square


class Features(NamedTuple):
    """An activation [batch, channels, size, size].

    Attributes:
      value: its name in the graph.
      channels: its second dimension, which the layers that read it need for their weights.
      size: its height and width, in pixels.
    """

    value: str
    channels: int
    size: int


class ConvLayers(Layers):
    """Convolutions, norms, pools and the classifier; `module` is the path of a layer's PyTorch module.

    A layer whose window is larger than what is left of the image, or whose groups do not divide its channels, raises a
    ValueError.
    """

    def image(self, size: int, batch: int = 1) -> Features:
        """Declares the graph input `input`: float32 [batch, 3, size, size]."""
        return Features(self.writer.input("input", [batch, 3, size, size]), 3, size)

    def conv(
        self,
        x: Features,
        module: str,
        filters: int,
        *,
        kernel: Window = 1,
        stride: int = 1,
        pad: Window = 0,
        groups: int = 1,
        dilation: int = 1,
        bias: bool = False,
        draw: Draw | None = None,
    ) -> Features:
        """Writes a convolution to `filters` channels; its weights suit a ReLU before it and a batch norm after it.

        `draw`, if given, draws the kernel instead.
        """
        require(filters > 0, f"expected channels for {module}, got {filters}.")
        require(
            x.channels % groups == filters % groups == 0,
            f"expected groups that divide the channels of {module}, got {groups} groups, and {x.channels} channels "
            f"before and {filters} after it.",
        )
        weight_name, bias_name, window = f"{module}.weight", f"{module}.bias", _pair(kernel)
        values = (draw or self.weights.centred_kernel)(weight_name, (filters, x.channels // groups, *window))
        parameters = [self.writer.weight(weight_name, values)]
        if bias:
            parameters.append(self.writer.weight(bias_name, self.weights.bias(bias_name, filters)))
        value = self.writer.node(
            "Conv",
            x.value,
            *parameters,
            scope=self.scope(module),
            dilations=[dilation, dilation],
            group=groups,
            kernel_shape=window,
            pads=_pair(pad) * 2,
            strides=[stride, stride],
        )
        return Features(value, filters, _shrunk(x.size, window[0], stride, _pair(pad)[0], dilation=dilation))

    def batch_norm(self, x: Features, module: str, *, epsilon: float = 1e-5, gain: float = 1.0) -> Features:
        """Writes a batch norm with statistics of its own; its scales are spread around `gain`."""
        weights, size = self.weights, x.channels
        parameters = {
            "weight": weights.norm_scale(f"{module}.weight", size, centre=gain),
            "bias": weights.bias(f"{module}.bias", size),
            "running_mean": weights.bias(f"{module}.running_mean", size),
            "running_var": weights.norm_variance(f"{module}.running_var", size),
        }
        names = [self.writer.weight(f"{module}.{name}", tensor) for name, tensor in parameters.items()]
        value = self.writer.node(
            "BatchNormalization",
            x.value,
            *names,
            scope=self.scope(module),
            epsilon=epsilon,
            momentum=0.9,
            training_mode=0,
        )
        return x._replace(value=value)

    def relu(self, x: Features, module: str) -> Features:
        return x._replace(value=self.writer.node("Relu", x.value, scope=self.scope(module)))

    def add(self, left: Features, right: Features, module: str) -> Features:
        return left._replace(value=self.writer.node("Add", left.value, right.value, scope=self.scope(module)))

    def concat(self, parts: list[Features], module: str) -> Features:
        """Writes the concatenation of the parts along the channels."""
        value = self.writer.node("Concat", *(part.value for part in parts), scope=self.scope(module), axis=1)
        return Features(value, sum(part.channels for part in parts), parts[0].size)

    def max_pool(
        self, x: Features, module: str, *, kernel: int = 3, stride: int = 2, pad: int = 0, ceil_mode: bool = False
    ) -> Features:
        value = self.writer.node(
            "MaxPool",
            x.value,
            scope=self.scope(module),
            ceil_mode=int(ceil_mode),
            dilations=[1, 1],
            kernel_shape=[kernel, kernel],
            pads=[pad] * 4,
            strides=[stride, stride],
        )
        return Features(value, x.channels, _shrunk(x.size, kernel, stride, pad, ceil_mode=ceil_mode))

    def average_pool(
        self, x: Features, module: str, *, kernel: int = 3, stride: int = 1, pad: int = 1, count_pad: bool = True
    ) -> Features:
        """Writes an average pool; `count_pad` tells whether the zeros of the padding count in the mean."""
        value = self.writer.node(
            "AveragePool",
            x.value,
            scope=self.scope(module),
            ceil_mode=0,
            count_include_pad=int(count_pad),
            kernel_shape=[kernel, kernel],
            pads=[pad] * 4,
            strides=[stride, stride],
        )
        return Features(value, x.channels, _shrunk(x.size, kernel, stride, pad))

    def classify(self, x: Features, pool: str, module: str, classes: int, batch: int = 1) -> None:
        """Writes a global average pool, a linear classifier and the output `output`: float32 [batch, classes]."""
        value = self.writer.node("GlobalAveragePool", x.value, scope=self.scope(pool))
        value = self.writer.node("Flatten", value, axis=1)
        self.writer.output("output", self.gemm(value, module, x.channels, classes), [batch, classes])


def _pair(window: Window) -> list[int]:
    return [window, window] if isinstance(window, int) else list(window)


def _shrunk(size: int, kernel: int, stride: int, pad: int, *, dilation: int = 1, ceil_mode: bool = False) -> int:
    """Returns how many places a window has along an image.

    Raises:
      ValueError: it has none.
    """
    room = size + 2 * pad - dilation * (kernel - 1) - 1
    places = (-(-room // stride) if ceil_mode else room // stride) + 1
    require(places > 0, f"expected a larger image: a window of {kernel} pixels finds {size} left.")
    return places
