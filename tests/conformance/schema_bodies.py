"""Judges the verifier by rules that are true: `python -m tests.conformance.schema_bodies [--out FILE]`.

For every ONNX operator whose schema has a function body, the body is the source of a rule and the operator its target;
then the other way round. The ordinary import brings both into the engine's normal form. No operator is treated in a way
of its own. What cannot be asked (integer operators, control flow, random numbers) is listed with the reason.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, inliner

from taso_ext import Graph, ModelError, OnnxModel
from taso_ext.onnx_io.weights.content import known
from taso_ext.verify.exact.fields import NotInvertibleError
from taso_ext.verify.exact.finite_field import compare_exactly
from taso_ext.verify.exact.tensor import UnsupportedOperatorError
from taso_ext.verify.numeric.differential import compare_floats
from taso_ext.verify.numeric.float_session import RefusedGraphError

COMMAND = "python -m tests.conformance.schema_bodies --out experiments/results/rule-judge-true/table.md"
OPSET = 23  # the newest that ONNX Runtime has kernels for
ACCEPTED, REJECTED, NOT_ASKED = "accepted", "rejected", "not asked"


_HISTORY = onnx.defs.get_all_schemas_with_history()


class Case(NamedTuple):
    """One operator with attributes and input shapes."""

    op_type: str
    attributes: dict[str, object]
    shapes: tuple[tuple[int, ...], ...]


def _cases() -> Iterator[Case]:
    """Yields cases for ranks 1 to 5, all axes, and the attributes that change what an operator computes."""
    shapes = [(7,), (3, 4), (2, 3, 5), (2, 3, 4, 2), (2, 1, 3, 2, 2)]
    for name in ("Celu", "Elu", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Softplus", "Softsign"):
        yield from (Case(name, {}, (shape,)) for shape in shapes)
    for name, value in (("Celu", 0.5), ("Elu", 2.0), ("LeakyRelu", 0.2), ("ThresholdedRelu", 1.5), ("Swish", 1.7)):
        yield from (Case(name, {"alpha": value}, (shape,)) for shape in shapes[:3])
    yield from (Case("ThresholdedRelu", {}, (shape,)) for shape in shapes)
    for attributes in ({}, {"alpha": 0.3}, {"alpha": 0.25, "beta": 0.4}):
        yield from (Case("HardSigmoid", attributes, (shape,)) for shape in shapes[:3])
    for attributes in ({}, {"lambd": 1.0}, {"lambd": 0.5, "bias": 0.25}):
        yield from (Case("Shrink", attributes, (shape,)) for shape in shapes[:3])
    for approximate in ("none", "tanh"):
        yield from (Case("Gelu", {"approximate": approximate}, (shape,)) for shape in shapes)
    for name in ("Softmax", "LogSoftmax"):
        yield from (Case(name, {"axis": axis}, (s,)) for s in shapes for axis in range(-1, len(s)))
    for name in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"):
        yield from (Case(name, {"keepdims": keep}, (shape,)) for shape in shapes for keep in (0, 1))
    for name in ("LayerNormalization", "RMSNormalization"):
        for shape in shapes[1:]:
            for axis in range(-1, len(shape)):
                affine = shape[axis:]
                operands = (shape, affine, affine) if name == "LayerNormalization" else (shape, affine)
                yield Case(name, {"axis": axis, "epsilon": 1e-3}, operands)
                yield Case(name, {"axis": axis}, operands[:2])
    for shape in ((2, 4, 3), (2, 6, 3, 2), (1, 4, 2, 3, 2)):
        yield from (Case("GroupNormalization", {"num_groups": g}, (shape, (shape[1],), (shape[1],))) for g in (1, 2))
    yield Case("MeanVarianceNormalization", {}, ((2, 3, 4, 5),))
    yield Case("MeanVarianceNormalization", {"axes": [1, 2]}, ((2, 3, 4, 5),))
    for a, b in (((2, 3), (2, 3)), ((2, 3, 4), (3, 4)), ((2, 3, 4), (4,))):
        yield Case("PRelu", {}, (a, b))
        yield Case("GreaterOrEqual", {}, (a, b))
        yield Case("LessOrEqual", {}, (a, b))
        yield Case("CastLike", {}, (a, b))
    yield from (Case("Clip", {}, (shape, (), ())) for shape in shapes)
    for causal in (0, 1):
        yield Case("Attention", {"is_causal": causal}, ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7)))
        yield Case("Attention", {"is_causal": causal, "scale": 0.3}, ((1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 4, 3), (4, 4)))
        grouped = {"is_causal": causal, "q_num_heads": 4, "kv_num_heads": 2}
        yield Case("Attention", grouped, ((2, 3, 12), (2, 5, 6), (2, 5, 8)))
    for interleaved in (0, 1):
        yield Case("RotaryEmbedding", {"interleaved": interleaved}, ((2, 3, 4, 6), (2, 4, 3), (2, 4, 3)))
        yield Case("RotaryEmbedding", {"interleaved": interleaved, "num_heads": 3}, ((2, 4, 18), (2, 4, 3), (2, 4, 3)))
        part = {"interleaved": interleaved, "rotary_embedding_dim": 4, "num_heads": 2}
        yield Case("RotaryEmbedding", part, ((2, 4, 12), (2, 4, 2), (2, 4, 2)))
    for mode in ("DCR", "CRD"):
        yield Case("DepthToSpace", {"blocksize": 2, "mode": mode}, ((2, 8, 3, 2),))
    yield Case("SpaceToDepth", {"blocksize": 2}, ((2, 3, 4, 6),))
    yield Case("CenterCropPad", {"axes": [0, 2]}, ((4, 3, 5), (2,)))


class Verdict(NamedTuple):
    """The judgement of one case.

    Attributes:
      outcome: the outcome of the rule that replaces the body by the operator.
      reason: why that rule is rejected or was not asked.
      narrows: why the rule the other way round is rejected, for example because the body overflows earlier.
    """

    case: Case
    outcome: str
    reason: str = ""
    narrows: str = ""


def judge(case: Case) -> Verdict:
    """Judges an operator and its body by both layers; ONNX builds the body, even if it depends on types."""
    try:
        model = _model(case)
        body = _inlined(model, case.op_type)
    except Exception as error:
        return Verdict(case, NOT_ASKED, _short(error))
    if body is None:
        return Verdict(case, NOT_ASKED, "no body at this opset, or one that calls the operator itself")
    try:
        operator, expanded = (_graph(each) for each in (model, body))
    except ModelError as error:
        return Verdict(case, NOT_ASKED, f"the body cannot be loaded: {_short(error)}")
    nodes = [node for graph in (operator, expanded) for node in graph.nodes()]
    unsayable = [node for node in nodes if node.domain or (node.op_type == "ConstantOfShape" and node.inputs)]
    if raw := sorted({node.op_type for node in unsayable}):
        return Verdict(case, NOT_ASKED, f"no rule can say it: {', '.join(raw)} with an empty or unknown form")
    unknown = [v.name for v in expanded.values().values() if v.handle is not None and known(v.content) is None]
    if unknown:
        return Verdict(case, NOT_ASKED, f"no rule can say what these constants hold: {', '.join(unknown)}")
    found = [_rejection(*pair) for pair in ((expanded, operator), (operator, expanded))]
    if found[0]:
        return Verdict(case, REJECTED, found[0], narrows=found[1])
    return Verdict(case, ACCEPTED, narrows=found[1])


def _rejection(source: Graph, target: Graph) -> str:
    """Returns why the layers refuse to replace `source` by `target`; empty if they accept it."""
    try:
        agreement = compare_exactly(source, target)
        if agreement.mismatch is not None:
            return f"exact layer: {agreement.mismatch}"
        comparison = compare_floats(source, target)
        return "" if comparison.mismatch is None else f"ONNX Runtime: {comparison.mismatch}"
    except (UnsupportedOperatorError, NotInvertibleError, RefusedGraphError) as error:
        return _short(error)


def _model(case: Case) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(case.shapes))]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, case.shapes, strict=True)]
    opset = max(OPSET, min(s.since_version for s in _HISTORY if s.name == case.op_type and not s.domain))
    schema = onnx.defs.get_schema(case.op_type, opset)
    # Bodies read attributes by name, and the inliner leaves out those that the node does not have.
    defaults = {
        name: helper.get_attribute_value(a.default_value)
        for name, a in schema.attributes.items()
        if a.default_value.name
    }
    node = helper.make_node(case.op_type, names, ["y"], **{**defaults, **case.attributes})
    dtype = (
        TensorProto.BOOL
        if schema.outputs[0].type_str == "tensor(bool)" or case.op_type.endswith("OrEqual")
        else TensorProto.FLOAT
    )
    graph = helper.make_graph([node], "operator", inputs, [helper.make_tensor_value_info("y", dtype, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    if not model.graph.output[0].type.tensor_type.HasField("shape"):  # without inference, it is that of the input
        model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    onnx.checker.check_model(model)
    return model


def _inlined(model: onnx.ModelProto, op_type: str) -> onnx.ModelProto | None:
    body = inliner.inline_selected_functions(model, [("", op_type)], inline_schema_functions=True)
    if any(node.op_type == op_type for node in body.graph.node):
        return None
    return onnx.shape_inference.infer_shapes(body)


def _graph(model: onnx.ModelProto) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        return OnnxModel.load(str(path), clean="basic").graph


def _short(error: BaseException) -> str:
    return re.sub(r"\S*/model\.onnx", "it", " ".join(str(error).split()))[:160]


def report(verdicts: Sequence[Verdict]) -> str:
    """Returns the table as Markdown."""
    asked = [each for each in verdicts if each.outcome != NOT_ASKED]
    rejected = [each for each in asked if each.outcome == REJECTED]
    names = sorted({each.case.op_type for each in asked})
    lines = [
        "# The verifier, judged by the function bodies of ONNX's schemas\n",
        f"Written by `{COMMAND}` with onnx {onnx.__version__} and ONNX Runtime {ort.__version__}, opset {OPSET}.\n",
        "The source is the function body of an operator, as `onnx.defs` has it, the target the operator. "
        f"{len(asked)} pairs of {len(names)} operators were judged by the exact layer and by ONNX Runtime: "
        f"{len(asked) - len(rejected)} accepted, {len(rejected)} rejected "
        f"({100 * len(rejected) / max(1, len(asked)):.1f} %).\n",
        "| operator | pairs | accepted |",
        "|---|---:|---:|",
    ]
    for name in names:
        outcomes = [each.outcome for each in asked if each.case.op_type == name]
        lines.append(f"| {name} | {len(outcomes)} | {outcomes.count(ACCEPTED)} |")
    narrowing = [Verdict(e.case, e.outcome, e.narrows) for e in asked if e.outcome == ACCEPTED and e.narrows]
    lines += _listed("Rejected", rejected)
    lines += _listed("Not asked", [each for each in verdicts if each.outcome == NOT_ASKED])
    lines += _listed("Not the other way round: the body overflows, or rounds, where the operator does not", narrowing)
    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    bodied = {s.name for s in schemas if s.has_function or s.has_context_dependent_function}
    left = ", ".join(sorted(bodied - {each.case.op_type for each in verdicts}))
    lines += ["\n## No case\n", f"They make integers, windows, losses or random numbers, or loop: {left}."]
    return "\n".join(lines) + "\n"


def _listed(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """Returns a section with a line for each verdict."""
    lines = [f"- {e.case.op_type} {e.case.attributes} {list(e.case.shapes)}: {e.reason}" for e in verdicts]
    return [f"\n## {title}\n", *(lines or ["None."])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if more than one pair in a hundred is rejected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    options = parser.parse_args(arguments)
    verdicts = [judge(case) for case in _cases()]
    text = report(verdicts)
    print(text)
    if options.out:
        options.out.write_text(text)
    asked = [each for each in verdicts if each.outcome != NOT_ASKED]
    return 0 if 100 * sum(each.outcome == REJECTED for each in asked) <= len(asked) else 1


if __name__ == "__main__":
    sys.exit(main())
