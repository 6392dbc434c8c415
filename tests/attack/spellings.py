"""Twists that write the same model in another way: names, constants, initializers, declarations and domains."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.attack.bodies import FLOAT


def overridable(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Some initializers are inputs too, so that a caller may override them."""
    chosen = [each for each in model.graph.initializer if rng.random() < 0.4]
    model.graph.input.extend(
        helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)) for each in chosen
    )
    return bool(chosen)


def without_names(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Nodes have empty names."""
    for node in model.graph.node:
        node.name = ""
    return True


def with_equal_names(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """All nodes have the name of a value."""
    for node in model.graph.node:
        node.name = model.graph.output[0].name
    return True


def strange_names(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Values are called by numbers, slashes, spaces and signs of other scripts."""
    names = {name: f"/{k} ü·{name}:0" for k, node in enumerate(model.graph.node) for name in node.output if name}
    outputs = {value.name for value in model.graph.output}
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [name if name in outputs else names.get(name, name) for name in values]
    return not any(attribute.type == AttributeProto.GRAPH for node in model.graph.node for attribute in node.attribute)


def unused_results(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Operators whose results nothing reads, and an initializer that nothing reads."""
    name = model.graph.node[0].output[0]
    model.graph.node.append(helper.make_node("Neg", [name], ["unread"]))
    model.graph.node.append(helper.make_node("Neg", ["unread"], ["unread too"]))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "never read"))
    return True


def outputs_in_the_middle(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Values that rewrites would like to remove are outputs, and so is an input's copy."""
    outputs = {value.name for value in model.graph.output}
    made = [name for node in model.graph.node[: len(model.graph.node) // 2] for name in node.output]
    chosen = [name for name in made if name not in outputs and rng.random() < 0.3]
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    model.graph.output.extend(inferred[name] for name in chosen if name in inferred)
    copied = model.graph.input[0]
    model.graph.node.append(helper.make_node("Identity", [copied.name], ["copied"]))
    model.graph.output.add(name="copied", type=copied.type)
    return True


def outputs_of_nothing(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """An initializer and a Constant are outputs, and one input is read by nothing."""
    model.graph.initializer.append(numpy_helper.from_array(np.arange(3.0), "stored"))
    model.graph.node.append(helper.make_node("Constant", [], ["written"], value_floats=[1.0, float("nan")]))
    model.graph.input.append(helper.make_tensor_value_info("ignored", TensorProto.INT64, [2]))
    model.graph.output.append(helper.make_tensor_value_info("stored", TensorProto.DOUBLE, [3]))
    model.graph.output.append(helper.make_tensor_value_info("written", FLOAT, [2]))
    return True


def constants_as_nodes(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Initializers are Constant nodes, as old exporters write them."""
    nodes = [helper.make_node("Constant", [], [each.name], value=each) for each in model.graph.initializer]
    body = list(model.graph.node)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend([*nodes, *body])
    return bool(nodes)


def constants_through_nodes(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Constants are read through a chain of Identity and double transposition or casting."""
    chosen = [each for each in model.graph.initializer if rng.random() < 0.5]
    body = list(model.graph.node)
    del model.graph.node[:]
    for each in chosen:
        name, middle = each.name, f"{each.name} stored"
        each.name = f"{each.name} first"
        model.graph.node.append(helper.make_node("Identity", [each.name], [middle]))
        model.graph.node.append(helper.make_node("Cast", [middle], [name], to=each.data_type))
    model.graph.node.extend(body)
    return bool(chosen)


def numbers_in_fields(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """The numbers of initializers stand in typed fields, as text-based exporters write them."""
    kept = list(model.graph.initializer)
    del model.graph.initializer[:]
    for each in kept:
        array = numpy_helper.to_array(each)
        if each.data_type in (FLOAT, TensorProto.DOUBLE, TensorProto.INT64):
            each = helper.make_tensor(each.name, each.data_type, each.dims, array.reshape(-1).tolist())
        model.graph.initializer.append(each)
    return bool(kept)


def sparse_weights(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A vector is stored as a sparse initializer."""
    found = next((each for each in model.graph.initializer if len(each.dims) == 1 and each.data_type == FLOAT), None)
    if found is None:
        return False
    array = numpy_helper.to_array(found)
    places = np.flatnonzero(array)
    values = numpy_helper.from_array(array[places], found.name)
    indices = numpy_helper.from_array(places.astype(np.int64), f"{found.name} places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, list(found.dims)))
    model.graph.initializer.remove(found)
    return bool(places.size)


def meaningless_symbols(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Shapes of outputs are declared by symbols of no meaning."""
    for value in model.graph.output:
        for position, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"unknown_{position}"
    return True


def stale_declarations(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Values are declared by their element type alone, and so are values that do not exist."""
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    del model.graph.value_info[:]
    for value in inferred:
        if value.type.HasField("tensor_type"):
            model.graph.value_info.append(
                helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, None)
            )
    model.graph.value_info.append(helper.make_tensor_value_info("of an earlier export", FLOAT, ["n"]))
    return True


def other_domains(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Domains that no operator uses are imported."""
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    model.opset_import.append(helper.make_opsetid("com.example.unused", 1))
    return True


def notes(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Documentation, metadata and producer of any form."""
    model.doc_string = "a\0b\n" + "ü" * 1000
    model.producer_name, model.model_version = "", 2**40
    helper.set_model_props(model, {"": "empty key", "key": ""})
    for node in model.graph.node:
        node.doc_string = "x = y\n"
    return True


SPELLINGS = (
    *(overridable, without_names, with_equal_names, strange_names, unused_results, outputs_in_the_middle),
    *(outputs_of_nothing, constants_as_nodes, constants_through_nodes, numbers_in_fields, sparse_weights),
    *(meaningless_symbols, stale_declarations, other_domains, notes),
)
