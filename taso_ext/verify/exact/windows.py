"""Sliding windows of convolutions and pools, as index arithmetic that is the same for every element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

ScalarT = TypeVar("ScalarT", bound=np.generic)


@dataclass(frozen=True)
class WindowGeometry:
    """Windows over the trailing (spatial) axes, in ONNX's terms.

    Attributes:
      kernel, strides, dilations: per spatial axis.
      pads: all begins, then all ends.
      outputs: windows per spatial axis. Given rather than derived, since ceil mode may add windows that reach beyond
        the padded input.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    outputs: Sequence[int]

    def pad(self, x: npt.NDArray[ScalarT], fill: ScalarT | int = 0) -> npt.NDArray[ScalarT]:
        """`x` with its declared pads filled in."""
        spatial = len(self.kernel)
        widths = list(zip(self.pads[:spatial], self.pads[spatial:], strict=True))
        return np.pad(x, [(0, 0)] * (x.ndim - spatial) + widths, constant_values=fill)

    def gather(self, padded: npt.NDArray[ScalarT], fill: ScalarT | int = 0) -> npt.NDArray[ScalarT]:
        """All windows of an already padded input: [*leading, *outputs, *kernel]; `fill` beyond its end."""
        leading = padded.ndim - len(self.kernel)
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        needed = [(o - 1) * s + r for o, s, r in zip(self.outputs, self.strides, reach, strict=True)]
        missing = [(0, max(0, n - have)) for n, have in zip(needed, padded.shape[leading:], strict=True)]
        extended = np.pad(padded, [(0, 0)] * leading + missing, constant_values=fill)
        axes = tuple(range(leading, padded.ndim))
        windows = np.lib.stride_tricks.sliding_window_view(extended, reach, axis=axes)
        starts = [slice(0, (o - 1) * s + 1, s) for o, s in zip(self.outputs, self.strides, strict=True)]
        taps = [slice(None, None, d) for d in self.dilations]
        return windows[(slice(None),) * leading + (*starts, *taps)]
