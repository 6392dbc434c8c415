"""The engine infers the shapes that ONNX Runtime computes, for operators that rules create."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from taso_ext import KNOWN_OPERATORS, CostModel, OnnxModel, RuleSet, State

OPSET = 23
POOL = "strides=[2, 1], pads=[1, 0, 1, 0], dilations=[1, 2]"
# An operator as a rule writes it, and the dims of its operands x0, x1, ...; negative dims mark a tensor of bools.
CASES: list[tuple[str, list[list[int]]]] = [
    ("Gelu(x0)", [[2, 3]]),
    ('Gelu(x0; approximate="tanh")', [[]]),
    ("LayerNormalization(x0, x1, x2; axis=-2, epsilon=1e-5)", [[2, 3, 4], [3, 4], [4]]),
    ("LayerNormalization(x0, x1; axis=2, epsilon=1e-5)", [[2, 3, 4], [4]]),
    ("RMSNormalization(x0, x1; axis=-1, epsilon=1e-6)", [[2, 3, 4], [4]]),
    ("RotaryEmbedding(x0, x1, x2)", [[2, 3, 5, 8], [2, 5, 4], [2, 5, 4]]),
    ("RotaryEmbedding(x0, x1, x2; num_heads=2, interleaved=1)", [[2, 5, 8], [2, 5, 2], [2, 5, 2]]),
    ("RotaryEmbedding(x0, x1, x2; rotary_embedding_dim=4)", [[2, 3, 5, 8], [2, 5, 2], [2, 5, 2]]),
    ("Attention(x0, x1, x2; scale=0.5)", [[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 6]]),
    ("Attention(x0, x1, x2, x3; scale=0.5)", [[2, 4, 3, 8], [2, 2, 5, 8], [2, 2, 5, 6], [3, 5]]),
    ("Attention(x0, x1, x2; scale=0.5, is_causal=1)", [[2, 4, 5, 8], [2, 4, 5, 8], [2, 4, 5, 8]]),
    ("Attention(x0, x1, x2; scale=1, q_num_heads=4, kv_num_heads=2)", [[2, 3, 16], [2, 5, 8], [2, 5, 6]]),
    (f"MaxPool(x0; kernel_shape=[3, 2], {POOL})", [[2, 3, 8, 7]]),
    (f"MaxPool(x0; kernel_shape=[3, 2], {POOL}, ceil_mode=1)", [[2, 3, 8, 7]]),
    (f"AveragePool(x0; kernel_shape=[3, 2], {POOL}, count_include_pad=1)", [[2, 3, 9, 7]]),
    ("AveragePool(x0; kernel_shape=[2], strides=[3], pads=[1, 1], dilations=[1], ceil_mode=1)", [[1, 2, 6]]),
    ("GlobalAveragePool(x0)", [[2, 3, 4, 5]]),
    ("ConvTranspose(x0, x1; kernel_shape=[3], strides=[2], pads=[1, 0], dilations=[2])", [[2, 4, 5], [4, 3, 3]]),
    ("ConvTranspose(x0, x1, x2; group=2, strides=[2, 3], output_padding=[1, 0])", [[1, 4, 3, 2], [4, 3, 2, 2], [6]]),
    ("ArgMax(x0; axis=-2, keepdims=0)", [[2, 3, 4]]),
    ("ArgMax(x0)", [[2, 3]]),
    ('DepthToSpace(x0; blocksize=2, mode="CRD")', [[1, 8, 2, 3]]),
    ("SpaceToDepth(x0; blocksize=3)", [[2, 2, 6, 3]]),
    ("LRN(x0; size=3)", [[2, 4, 3, 3]]),
    ('Einsum(x0, x1; equation="bij, bkj -> ikb")', [[2, 3, 4], [2, 5, 4]]),
    ('Einsum(x0, x1; equation="ij,kj")', [[3, 4], [2, 4]]),
    ('Einsum(x0; equation="iBi -> B")', [[3, 2, 3]]),
    ('Einsum(x0, x1; equation="ij,kl->")', [[3, 4], [2, 5]]),
    ("Dropout(x0)", [[2, 3]]),
    ("GlobalMaxPool(x0)", [[2, 3, 4]]),
    ("Gemm(x0, x1)", [[2, 3], [3, 4]]),
    ("Gemm(x0, x1, x2; transA=1, transB=1, alpha=0.5, beta=2)", [[3, 2], [4, 3], [4]]),
    ("ReduceSum(x0; axes=[-1, 0], keepdims=1)", [[2, 3, 4]]),
    ("ReduceMean(x0; axes=[1], keepdims=0)", [[2, 3, 4]]),
    ("ReduceMax(x0; axes=[0, 1], keepdims=0)", [[2, 3, 4]]),
    ("Slice(x0; starts=[1, 0], ends=[4, 3], axes=[0, 2], steps=[2, 1])", [[5, 2, 3]]),
    ("Expand(x0; shape=[4, 2, 3])", [[2, 1]]),
    ("Pow(x0, x1)", [[2, 3], [3]]),
    ("Where(x0, x1, x2)", [[-3], [2, 1], [2, 3]]),
    ("Equal(x0, x1)", [[2, 3], [3]]),
    ("Less(x0, x1)", [[2, 3], [2, 1]]),
    ("Not(x0)", [[-2]]),
    ("And(x0, x1)", [[-2], [-2]]),
    ("PRelu(x0, x1)", [[2, 3], [3]]),
    ("BatchNormalization(x0, x1, x2, x3, x4; epsilon=1e-5)", [[2, 3, 4], [3], [3], [3], [3]]),
    ("InstanceNormalization(x0, x1, x2; epsilon=1e-5)", [[2, 3, 4], [3], [3]]),
    ("GroupNormalization(x0, x1, x2; epsilon=1e-5, num_groups=2)", [[2, 4, 5], [4], [4]]),
    ("com.microsoft.FusedMatMul(x0, x1; transA=1, alpha=0.5)", [[2, 3, 4], [3, 5]]),
    ("com.microsoft.FusedMatMul(x0, x1; transB=1)", [[2, 3, 4], [2, 5, 4]]),
    ('com.microsoft.FusedGemm(x0, x1, x2; activation="Relu")', [[2, 3], [3, 4], [4]]),
    (
        'com.microsoft.FusedConv(x0, x1, x2; activation="Relu", group=1, kernel_shape=[3, 3], strides=[2, 2],'
        " pads=[1, 1, 0, 0], dilations=[1, 1])",
        [[1, 2, 7, 8], [4, 2, 3, 3], [4]],
    ),
    ("com.microsoft.BiasGelu(x0, x1)", [[2, 3], [3]]),
    ("com.microsoft.FastGelu(x0, x1)", [[2, 3], [3]]),
    ("com.microsoft.QuickGelu(x0; alpha=1.702)", [[2, 3]]),
    ("com.microsoft.SkipLayerNormalization(x0, x1, x2, x3; epsilon=1e-5)", [[2, 3, 4], [2, 3, 4], [4], [4]]),
    ("com.microsoft.SkipSimplifiedLayerNormalization(x0, x1, x2; epsilon=1e-5)", [[2, 3, 4], [2, 3, 4], [4]]),
    ("com.microsoft.MultiHeadAttention(x0, x1, x2; num_heads=2, scale=0.5)", [[2, 3, 8], [2, 5, 8], [2, 5, 6]]),
]


def model_of(dims: list[list[int]]) -> onnx.ModelProto:
    """Returns a model that flattens and concatenates all inputs and negates the result."""
    kinds = [TensorProto.BOOL if min([*each, 0]) < 0 else TensorProto.FLOAT for each in dims]
    shapes = [[abs(size) for size in each] for each in dims]
    inputs = [helper.make_tensor_value_info(f"x{i}", k, s) for i, (k, s) in enumerate(zip(kinds, shapes, strict=True))]
    minus_one = helper.make_tensor("all", TensorProto.INT64, [1], [-1])
    nodes, parts = [], []
    for i, kind in enumerate(kinds):
        name = f"x{i}"
        if kind == TensorProto.BOOL:
            nodes.append(helper.make_node("Cast", [name], [f"c{i}"], to=TensorProto.FLOAT))
            name = f"c{i}"
        nodes.append(helper.make_node("Reshape", [name, "all"], [f"r{i}"]))
        parts.append(f"r{i}")
    nodes.append(helper.make_node("Concat", parts, ["joined"], axis=0))
    nodes.append(helper.make_node("Neg", ["joined"], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [sum(map(prod, shapes))])
    graph = helper.make_graph(nodes, "g", inputs, [output], [minus_one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def rule_of(call: str, dims: list[list[int]], rank: int) -> str:
    """Returns a rule that adds the sum of all elements of `call`, a result of rank `rank`, to the model's output."""
    flatten, parts = [], []
    for i, each in enumerate(dims):
        source = f"x{i}"
        truths = min([*each, 0]) < 0
        if truths:
            flatten.append(f"c{i} = Cast({source}; to=1)")
            source = f"c{i}"
        if truths or len(each) != 1:  # otherwise the clean-up removes the model's Reshape
            flatten.append(f"r{i} = Reshape({source}; shape=[{abs(prod(each))}])")
            source = f"r{i}"
        parts.append(source)
    joined = [*flatten, f"j = Concat({', '.join(parts)}; axis=0)"] if len(parts) > 1 else flatten
    last = "j" if len(parts) > 1 else parts[0]
    source = "; ".join([*joined, f"y = Neg({last})"])
    made = f"t = {call}; u = Cast(t; to=1); s = ReduceSum(u; axes={list(range(rank))}, keepdims=0)"
    again = source.replace("y =", "v =")
    declared = ", ".join(f"x{i}" for i in range(len(dims)))
    return f"rule r\n var {declared}: any\n source {source}\n target {made}; {again}; y = Add(v, s)\n"


@pytest.mark.parametrize(("call", "dims"), CASES, ids=[call for call, _ in CASES])
def test_inferred_shapes_are_computed(call: str, dims: list[list[int]]) -> None:
    model = OnnxModel.load(model_of(dims))
    states = []
    for rank in range(5):  # of the result: an axis too many makes the rule illegal, one too few no scalar
        state = State(model.graph, RuleSet.parse(rule_of(call, dims, rank)), CostModel.roofline("rtx2070"))
        states += [state] if len(state.legal_actions()) == 1 else []
    assert states, f"{call} is never legal"
    state = states[-1]
    state.step(0, 0)
    name = call.split("(")[0].split(".")[-1]
    values = state.graph.values()
    inferred = next(values[node.outputs[0]] for node in state.graph.nodes() if node.op_type == name)
    exported = model.export(state.graph)
    onnx.checker.check_model(exported)
    result = next(node.output[0] for node in exported.graph.node if node.op_type == name)
    exported.graph.output.add(name=result)
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds = {}
    for each in session.get_inputs():
        numbers = generator.uniform(0.5, 1.5, each.shape).astype(np.float32)
        feeds[each.name] = numbers > 1 if "bool" in each.type else numbers
    computed = session.run([result], feeds)[0]
    assert list(computed.shape) == inferred.dims
    assert helper.np_dtype_to_tensor_dtype(computed.dtype) == inferred.dtype


MISFITS = [
    ("Attention(x0, x1, x2; scale=-0.5)", [[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 6]]),
    ("Attention(x0, x1, x2; scale=0)", [[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 6]]),
    ("Attention(x0, x1, x2; scale=0.5)", [[2, 4, 3, 8], [2, 3, 5, 8], [2, 3, 5, 6]]),
    ("Attention(x0, x1, x2; scale=0.5)", [[2, 3, 16], [2, 5, 8], [2, 5, 6]]),
    ("RotaryEmbedding(x0, x1, x2)", [[2, 3, 5, 8], [2, 5, 3], [2, 5, 3]]),
    ("RotaryEmbedding(x0, x1, x2; rotary_embedding_dim=8)", [[2, 3, 5, 4], [2, 5, 4], [2, 5, 4]]),
    ("LayerNormalization(x0, x1; axis=-1, epsilon=1e-5)", [[2, 3, 4], [3]]),
    ("com.microsoft.FusedMatMul(x0, x1; transA=1)", [[2, 3, 4], [4, 5]]),
    ("com.microsoft.BiasGelu(x0, x1)", [[2, 3], [2]]),
    ("Expand(x0; shape=[2])", [[2, 1]]),
    ("Where(x0, x1, x2)", [[3], [3], [3]]),
    ("And(x0, x1)", [[2], [2]]),
    ("ConvTranspose(x0, x1)", [[1, 4, 3], [3, 4, 3]]),
    ("ConvTranspose(x0, x1; group=3)", [[1, 4, 3], [4, 4, 3]]),
    ("ConvTranspose(x0, x1; output_padding=[1])", [[1, 4, 3], [4, 4, 3]]),
    ("ConvTranspose(x0, x1; pads=[3, 2])", [[1, 4, 3], [4, 4, 3]]),
    ("ArgMax(x0; axis=2)", [[2, 3]]),
    ("DepthToSpace(x0; blocksize=2)", [[1, 6, 2, 3]]),
    ('Einsum(x0, x1; equation="ij,jk")', [[3, 4], [5, 2]]),
    ('Einsum(x0, x1; equation="ij,jk")', [[3, 4], [4, 2, 1]]),
    ('Einsum(x0; equation="ij,jk")', [[3, 4]]),
    ('Einsum(x0; equation="ij->ik")', [[3, 4]]),
    ('Einsum(x0; equation="ij->ii")', [[3, 4]]),
    ('Einsum(x0; equation="i1")', [[3, 4]]),
    ("Dropout(x0, x1)", [[2, 3], [3]]),
    ("SpaceToDepth(x0; blocksize=2)", [[1, 6, 2, 3]]),
    ("BatchNormalization(x0, x1, x2, x3, x4; epsilon=1e-5)", [[2, 3, 4], [3], [3], [3], [2]]),
]


@pytest.mark.parametrize(("call", "dims"), MISFITS, ids=[f"{call} {dims}" for call, dims in MISFITS])
def test_operands_that_do_not_fit_make_a_match_illegal(call: str, dims: list[list[int]]) -> None:
    model = OnnxModel.load(model_of(dims))
    for rank in range(5):
        state = State(model.graph, RuleSet.parse(rule_of(call, dims, rank)), CostModel.roofline("rtx2070"))
        assert not len(state.legal_actions())


def test_first_versions_are_those_of_onnx() -> None:
    """Only operators that targets can create are checked, from opset 7 on, the oldest opset that is imported."""
    for name in KNOWN_OPERATORS:
        if "." in name or name in ("Constant", "ConstantOfShape", "EyeLike", "Upsample"):
            continue  # other domains have one version; constants are written as every opset has them
        first = min(schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if schema.name == name)
        rule = f"rule r\n var x: any\n source y = Relu(x)\n target y = {name}(x)\n"
        if name != "Relu":
            assert max(RuleSet.parse(rule).opset(0), 7) == max(first, 7), name


def test_rules_are_restricted_by_opset_and_domain() -> None:
    rules = RuleSet.parse(
        "rule old\n var x: any\n source y = Relu(x)\n target y = Tanh(x)\n"
        "rule new\n var x: any\n source y = Relu(x)\n target y = Gelu(x)\n"
        "rule there\n var x: any\n source y = Gelu(x; @r)\n target t = Neg(x); y = Gelu(t; @r)\n"
        "rule foreign\n var x: any\n source y = Relu(x)\n target y = com.microsoft.QuickGelu(x; alpha=1)\n"
    )
    assert [rules.opset(i) for i in range(4)] == [1, 20, 1, 1]
    assert [rules.domains(i) for i in range(4)] == [{""}, {""}, {""}, {"com.microsoft"}]
    assert rules.restricted().names == rules.names
    assert rules.restricted(max_opset=19).names == ["old", "there", "foreign"]
    assert rules.restricted(domains=["ai.onnx"]).names == ["old", "new", "there"]
    assert rules.restricted(max_opset=19, domains=[""]).names == ["old", "there"]
    assert rules.restricted(domains=[""], names={"new", "foreign"}).names == ["new"]
    with pytest.raises(ValueError, match="no rule is left"):
        RuleSet.parse(rules.text(1)).restricted(max_opset=13)
