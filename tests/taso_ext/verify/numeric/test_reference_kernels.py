"""The kernels that replace wrong ones of onnx.reference agree with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from taso_ext.verify.numeric.other_dtypes import MaxPool


@pytest.mark.parametrize("seed", range(24))
def test_max_pool_agrees_with_onnx_runtime(seed: int) -> None:
    generator = np.random.default_rng(seed)
    kernel, strides, dilations = (generator.integers(1, high, 2).tolist() for high in (4, 4, 3))
    pads = [int(generator.integers(0, size)) for size in (*kernel, *kernel)]
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    written = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    pool (float[1, 2, 9, 7] x) => (float[1, 2, h, w] y) {{ y = MaxPool<ceil_mode = {seed % 2}, {written}>(x) }}"""
    model = onnx.parser.parse_model(text)
    x = generator.standard_normal((1, 2, 9, 7)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (got,) = ReferenceEvaluator(model, new_ops=[MaxPool]).run(None, {"x": x})
    np.testing.assert_array_equal(got, expected)
