"""Single changes that make a graph a different one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import assume
from hypothesis import strategies as st
from onnx import TensorProto

from tests.taso_ext.oracles.slow_graph import ABSENT, Operator, PlainGraph, Tensor
from tests.taso_ext.oracles.slow_structure import canonical, structures, twins
from tests.taso_ext.samples.random_graphs import graphs

T = TypeVar("T")
Pick = Callable[[Sequence[Any]], Any]

OTHERS = {"Add": "Mul", "Mul": "Max", "Sub": "Div", "Div": "Sub", "Relu": "Tanh", "Tanh": "Relu", "MatMul": "Gemm"}
ORDERED = ("Sub", "Div", "MatMul", "Concat")


def live(graph: PlainGraph) -> PlainGraph:
    """Returns the graph without dead code."""
    return PlainGraph.of(graph.build())


@st.composite
def mutants(draw: Callable[[st.SearchStrategy[Any]], Any], kind: str) -> tuple[PlainGraph, PlainGraph]:
    """Draws a graph and what a single change of this kind makes of it."""

    def pick(choices: Sequence[T]) -> T:
        assume(choices)
        return draw(st.sampled_from(choices))

    graph = live(draw(graphs(foreign=True)))
    if kind == "reader-moved-to-a-twin":
        graph = live(operator_duplicated(graph, pick))
    mutant = MUTATIONS[kind](graph, pick)
    # A change may lead to an isomorphic graph, for example if the inputs of x + y change places.
    assume(canonical(live(mutant)) != canonical(graph))
    return graph, mutant


def _with(graph: PlainGraph, old: Operator, new: Operator) -> PlainGraph:
    return replace(graph, operators=tuple(new if each is old else each for each in graph.operators))


def _retyped(graph: PlainGraph, id_: int, **changes: Any) -> PlainGraph:
    return replace(graph, tensors={**graph.tensors, id_: replace(graph.tensors[id_], **changes)})


def another_operator(graph: PlainGraph, pick: Pick) -> PlainGraph:
    old = pick(graph.operators)
    return _with(graph, old, replace(old, op_type=OTHERS.get(old.op_type, "Softsign")))


def another_domain(graph: PlainGraph, pick: Pick) -> PlainGraph:
    old = pick(graph.operators)
    return _with(graph, old, replace(old, domain=old.domain + ".other"))


def another_attribute(graph: PlainGraph, pick: Pick) -> PlainGraph:
    old = pick([each for each in graph.operators if each.attributes])
    name = pick(sorted(old.attributes))
    return _with(graph, old, replace(old, attributes={**old.attributes, name: _changed(old.attributes[name])}))


def _changed(attribute: Any) -> Any:
    if isinstance(attribute, list):
        return [*attribute, 1]
    return attribute + ("x" if isinstance(attribute, str) else 1)


def one_attribute_more(graph: PlainGraph, pick: Pick) -> PlainGraph:
    old = pick(graph.operators)
    return _with(graph, old, replace(old, attributes={**old.attributes, "zzz": pick([0, 0.0, "", [0], [0.0]])}))


def another_dtype(graph: PlainGraph, pick: Pick) -> PlainGraph:
    return _retyped(graph, pick(_read_inputs(graph) + _results(graph)), dtype=TensorProto.DOUBLE)


def another_shape(graph: PlainGraph, pick: Pick) -> PlainGraph:
    id_ = pick([id_ for id_ in _read_inputs(graph) + _results(graph) if graph.tensors[id_].dims])
    dims = graph.tensors[id_].dims or ()
    return _retyped(graph, id_, dims=(dims[0] + 1, *dims[1:]))


def another_rank(graph: PlainGraph, pick: Pick) -> PlainGraph:
    id_ = pick([id_ for id_ in _read_inputs(graph) + _results(graph) if graph.tensors[id_].dims is not None])
    return _retyped(graph, id_, dims=(1, *(graph.tensors[id_].dims or ())))


def _read_inputs(graph: PlainGraph) -> list[int]:
    return [id_ for id_ in graph.inputs if graph.readers[id_] or id_ in graph.outputs]


def _results(graph: PlainGraph) -> list[int]:
    return [id_ for operator in graph.operators for id_ in operator.outputs]


def operand_rewired(graph: PlainGraph, pick: Pick) -> PlainGraph:
    """Replaces one operand by an earlier value that is computed differently."""
    index = pick(range(len(graph.operators)))
    old = graph.operators[index]
    place = pick(range(len(old.inputs)))
    alike = structures(graph)
    leaves = [id_ for id_ in graph.tensors if id_ not in graph.producer]
    earlier = leaves + [id_ for operator in graph.operators[:index] for id_ in operator.outputs]
    fresh = pick([id_ for id_ in earlier if alike[id_] != alike[old.inputs[place]]])
    operands = (*old.inputs[:place], fresh, *old.inputs[place + 1 :])
    return _with(graph, old, replace(old, inputs=operands))


def operand_absent(graph: PlainGraph, pick: Pick) -> PlainGraph:
    old = pick(graph.operators)
    place = pick(range(len(old.inputs)))
    return _with(graph, old, replace(old, inputs=(*old.inputs[:place], ABSENT, *old.inputs[place + 1 :])))


def operand_added(graph: PlainGraph, pick: Pick) -> PlainGraph:
    old = pick(graph.operators)
    return _with(graph, old, replace(old, inputs=(*old.inputs, pick([ABSENT, old.inputs[0]]))))


def operands_swapped(graph: PlainGraph, pick: Pick) -> PlainGraph:
    """Swaps two operands of an operator that is not commutative."""
    old = pick([each for each in graph.operators if each.op_type in ORDERED and len(each.inputs) > 1])
    return _with(graph, old, replace(old, inputs=(old.inputs[1], old.inputs[0], *old.inputs[2:])))


def operator_duplicated(graph: PlainGraph, pick: Pick) -> PlainGraph:
    """Undoes common subexpression elimination: one reader gets a copy of an operator of its own."""
    shared = [each for each in graph.operators if not each.weight_only and len(_readers(graph, each)) > 1]
    old = pick(shared)
    fresh = {id_: max(graph.tensors) + 1 + port for port, id_ in enumerate(old.outputs)}
    tensors = {**graph.tensors, **{copy: graph.tensors[id_] for id_, copy in fresh.items()}}
    copied = replace(old, outputs=tuple(fresh.values()))
    reader = pick(_readers(graph, old))
    moved = replace(reader, inputs=tuple(fresh.get(value, value) for value in reader.inputs))
    operators = [each for one in graph.operators for each in ((one, copied) if one is old else (one,))]
    return replace(graph, tensors=tensors, operators=tuple(moved if each is reader else each for each in operators))


def reader_moved_to_a_twin(graph: PlainGraph, pick: Pick) -> PlainGraph:
    """Makes one reader of an operator read another operator that computes the same."""
    old, twin = pick(twins(graph))
    fresh = dict(zip(old.outputs, twin.outputs, strict=True))
    readers = _readers(graph, old)
    reader = pick([each for each in readers if graph.operators.index(twin) < graph.operators.index(each)])
    return _with(graph, reader, replace(reader, inputs=tuple(fresh.get(value, value) for value in reader.inputs)))


def _readers(graph: PlainGraph, operator: Operator) -> list[Operator]:
    found = {reader.outputs: reader for id_ in operator.outputs for reader in graph.readers[id_]}
    return [*found.values()]


def output_dropped(graph: PlainGraph, pick: Pick) -> PlainGraph:
    place = pick(range(len(graph.outputs)) if len(graph.outputs) > 1 else [])
    return replace(graph, outputs=graph.outputs[:place] + graph.outputs[place + 1 :])


def output_added(graph: PlainGraph, pick: Pick) -> PlainGraph:
    """Adds an output, perhaps a value that is an output already."""
    return replace(graph, outputs=(*graph.outputs, pick(_results(graph))))


def outputs_swapped(graph: PlainGraph, pick: Pick) -> PlainGraph:
    place = pick(range(len(graph.outputs) - 1))
    first, second = graph.outputs[place : place + 2]
    return replace(graph, outputs=(*graph.outputs[:place], second, first, *graph.outputs[place + 2 :]))


def inputs_swapped(graph: PlainGraph, pick: Pick) -> PlainGraph:
    place = pick(range(len(graph.inputs) - 1))
    first, second = graph.inputs[place : place + 2]
    return replace(graph, inputs=(*graph.inputs[:place], second, first, *graph.inputs[place + 2 :]))


def another_weight(graph: PlainGraph, pick: Pick) -> PlainGraph:
    id_ = pick([id_ for id_, tensor in graph.tensors.items() if tensor.handle and graph.readers[id_]])
    return _retyped(graph, id_, handle="another")


def weight_for_input(graph: PlainGraph, pick: Pick) -> PlainGraph:
    """Replaces an input that an operator reads by a weight, which is no run-time value."""
    old = pick([each for each in graph.operators if set(each.inputs) & set(graph.inputs)])
    value = pick([value for value in old.inputs if value in graph.inputs])
    fresh, kind = max(graph.tensors) + 1, graph.tensors[value]
    weight = Tensor("w", kind.dtype, kind.dims, "another", weight_only=True)
    operands = tuple(fresh if each == value else each for each in old.inputs)
    graph = replace(graph, tensors={**graph.tensors, fresh: weight})
    return _with(graph, old, replace(old, inputs=operands))


MUTATIONS: Mapping[str, Callable[[PlainGraph, Pick], PlainGraph]] = {
    mutation.__name__.replace("_", "-"): mutation
    for mutation in (
        another_operator,
        another_domain,
        another_attribute,
        one_attribute_more,
        another_dtype,
        another_shape,
        another_rank,
        operand_rewired,
        operand_absent,
        operand_added,
        operands_swapped,
        operator_duplicated,
        reader_moved_to_a_twin,
        output_dropped,
        output_added,
        outputs_swapped,
        inputs_swapped,
        another_weight,
        weight_for_input,
    )
}
