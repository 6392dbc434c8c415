"""The graph of the engine that a choice of terms is."""

from __future__ import annotations

from controller.saturation.choices import Choices, add_term
from controller.saturation.egraph import Classes, Term
from controller.saturation.vocabulary import ABSENT, Vocabulary
from taso_ext import Graph, GraphBuilder


def graph_of(graph: Graph, classes: Classes, vocabulary: Vocabulary, choices: Choices, chosen: dict[int, int]) -> Graph:
    """Returns the graph that chosen terms make, with the inputs, weights and outputs of a start graph."""
    builder = GraphBuilder()
    values, made = graph.values(), {result for node in graph.nodes() for result in node.outputs}
    known: dict[int, int] = {}
    for identifier in graph.inputs:
        value = values[identifier]
        known[classes.values[identifier]] = builder.input(value.name, value.dtype, value.dims)
    for identifier, value in values.items():
        if identifier not in made and value.handle is not None:
            weight = builder.weight(value.name, value.handle, value.dtype, value.dims or [], value.content)
            known.setdefault(classes.values[identifier], weight)

    def term_of(number: int) -> Term:
        return choices.terms[chosen[number]] if number in chosen else choices.weights[number]

    for output in graph.outputs:
        pending = [classes.values[output]]
        while pending:
            if pending[-1] in known:
                pending.pop()
                continue
            term = term_of(pending[-1])
            missing = [number for number in term.operands if number != ABSENT and number not in known]
            if missing:
                pending += missing
                continue
            results = add_term(builder, term, known, classes, vocabulary)
            for number, result in zip(term.results, results, strict=True):
                known.setdefault(number, result)
    for output in graph.outputs:
        builder.output(known[classes.values[output]])
    return builder.build()
