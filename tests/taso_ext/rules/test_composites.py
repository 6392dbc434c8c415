"""Rules recognise composite operators in every form that exporters write, and the exported models compute the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo
from environment.verification import verify
from taso_ext import Graph, OnnxModel
from tests.taso_ext.samples.composite_forms import FORMS, Form, attentions, recognised

PYTORCH = Path(__file__).parents[1] / "samples" / "data" / "pytorch"


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for node in graph.nodes() if not node.weight_only)


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_forms_are_recognised_and_exported(form: Form) -> None:
    model = OnnxModel.load(form.model())
    graph = recognised(model.graph)
    left = operators(graph)
    assert left[form.operator] == 1, str(left)
    assert sum(left.values()) <= sum(operators(model.graph).values())
    exported = model.export(graph)
    onnx.checker.check_model(exported, full_check=True)
    found = verify(model.source, model.export_checked(graph))
    assert found.equal and found.reacts, found.reason


def test_attention_is_recognised_without_the_operators_that_separate_heads() -> None:
    for form in attentions():
        left = operators(recognised(OnnxModel.load(form.model()).graph))
        assert not left["Transpose"] and not left["Reshape"] and not left["Softmax"], form.name


def test_attention_becomes_the_runtimes_own() -> None:
    for form in attentions():
        model = OnnxModel.load(form.model())
        graph = recognised(model.graph, fuse=True)
        expected = "Attention" if form.inputs else "MultiHeadAttention"
        assert operators(graph)[expected] == 1, form.name
        if not form.inputs:
            found = verify(model.source, model.export_checked(graph), num_inputs=1)
            assert found.equal, f"{form.name}: {found.reason}"


@pytest.mark.parametrize("lowest", [-1e4, float(np.finfo(np.float32).min)])
def test_rows_that_are_masked_out_entirely_stay_as_they_are(lowest: float) -> None:
    """Such a row stays the mean of all values; ONNX Runtime's Attention gives zeros for a mask of the lowest float."""
    for form in attentions():
        if not form.inputs:
            continue
        model = OnnxModel.load(form.model())
        feeds = {"x": np.random.default_rng(0).standard_normal((1, 6, 8), dtype=np.float32)}
        shape = [dim.dim_value for dim in model.source.skeleton.graph.input[1].type.tensor_type.shape.dim]
        feeds["mask"] = np.full(shape, lowest, np.float32)
        expected, got = (
            onnxruntime.InferenceSession(each.SerializeToString()).run(None, feeds)[0]
            for each in (model.source.to_proto(), model.export(recognised(model.graph)))
        )
        np.testing.assert_allclose(got, expected, atol=1e-4 if lowest > -1e5 else 1e-6, err_msg=form.name)


def exported(name: str) -> onnx.ModelProto:
    return onnx.load(PYTORCH / f"{name}.onnx")


@pytest.mark.parametrize(
    ("build", "name", "found", "gone"),
    [
        (zoo.build, "bert-base-tiny", {"Gelu", "Attention"}, {"Erf", "Softmax"}),
        (zoo.build, "vit-base-tiny", {"Gelu", "Attention"}, {"Erf", "Softmax"}),
        (exported, "encoder-torchscript", {"Gelu", "Attention"}, {"Erf", "Softmax", "Mul"}),
        (exported, "encoder-dynamo", {"Gelu", "Attention"}, {"Erf", "Softmax", "Mul"}),
        (exported, "unet-torchscript", {"Gelu"}, {"Erf"}),
    ],
)
def test_composites_of_whole_networks_are_found(
    build: Callable[[str], onnx.ModelProto], name: str, found: set[str], gone: set[str]
) -> None:
    """`found` are operators that must be there in the end, and `gone` are operators that must not."""
    loaded = OnnxModel.load(build(name))
    graph = recognised(loaded.graph)
    left = set(operators(graph))
    assert found <= left
    assert not gone & left
    verification = verify(loaded.source, loaded.export_checked(graph))
    assert verification.equal and verification.reacts, verification.reason
