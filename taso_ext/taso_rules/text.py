"""Substitutions as text of the rule language (taso_ext/rules/README.md), for one domain of shapes and groups.

A rule of TASO says less than a rule here: its convolutions take their number of groups from the shapes, its splits cut
where a concatenation joined, and it was only ever tested on tensors of one shape each. The text writes out what is
implied, and `Domain` restricts to which shapes the rule applies. Strides, pads, dilations and kernels of a convolution
are whatever the source has (`@r`), which includes the stride 1 and SAME padding that TASO asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from taso_ext.taso_rules.substitution import InexpressibleError, Operator, Substitution


class Groups(StrEnum):
    """Groups of the convolutions of a source."""

    ANY = "any groups"
    BALANCED = "equally many filters in every group"
    ONE = "one group"


@dataclass(frozen=True)
class Domain:
    """Where a rule applies.

    Attributes:
      broadcast: whether operands of additions, products and matrix products may broadcast, as in ONNX. Otherwise their
        shapes, or those of the stacked matrices, are equal, as in TASO.
      groups: of the convolutions; of no meaning without any.
    """

    broadcast: bool
    groups: Groups

    def describe(self, substitution: Substitution) -> str:
        """The domain in words, without what has no meaning for this rule."""
        restrictions = []
        if substitution.combines:
            restrictions.append("operands may broadcast" if self.broadcast else "operands of equal shapes")
        if substitution.operators("Conv"):
            restrictions.append(str(self.groups))
        return ", ".join(restrictions) or "any shapes"


def domains(substitution: Substitution) -> list[Domain]:
    """Domains in which to try a rule, wider ones first; the last is no wider than what TASO itself matches.

    Operands of a rule with convolutions never broadcast: an extent of 1 would be taken for a group, or padded.
    """
    convolutions = len(substitution.operators("Conv"))
    if convolutions:
        groups = [Groups.ANY, Groups.BALANCED, Groups.ONE] if convolutions > 1 else [Groups.ANY, Groups.ONE]
        return [Domain(False, group) for group in groups]
    return [Domain(broadcast, Groups.ANY) for broadcast in ([True, False] if substitution.combines else [True])]


def rule_name(substitution: Substitution) -> str:
    """The name of the rule in the text."""
    return f"taso-{substitution.index}"


def rule_text(substitution: Substitution, domain: Domain) -> str:
    """The rule in the language of taso_ext/rules/README.md.

    Raises:
      InexpressibleError: a convolution of the target is like none of the source, or a split of the target cuts where
        no output of the source tells its sizes.
    """
    writer = _Writer(substitution, domain)
    sections = {
        "var": [f"{', '.join(substitution.variables)}: float[...]"],
        "source": [writer.source_statement(position) for position in range(len(substitution.source))],
        "where": list(dict.fromkeys(writer.conditions())),
        "target": [writer.target_statement(operator) for operator in substitution.target],
    }
    lines = [f"rule {rule_name(substitution)}"]
    for section, items in sections.items():
        heads = [section, *[""] * len(items)]
        lines += [f"  {head:<6} {item}" for head, item in zip(heads, items, strict=False)]
    return "\n".join(lines) + "\n"


class _Writer:
    """Statements and conditions of one rule in one domain."""

    def __init__(self, substitution: Substitution, domain: Domain) -> None:
        self._substitution = substitution
        self._domain = domain
        windows = dict.fromkeys(operator.window for operator in substitution.operators("Conv"))
        self._windows = {window: f"@r{number}" for number, window in enumerate(windows)}

    def source_statement(self, position: int) -> str:
        operator = self._substitution.source[position]
        match operator.op_type:
            case "Conv":
                group = "1" if self._domain.groups is Groups.ONE else f"g{position}"
                return self._statement(operator, f"{self._windows[operator.window]}, group={group}")
            case "Split":
                return self._statement(operator, f"{self._axis(operator)}, split=n{position}")
        return self._statement(operator, self._attributes(operator))

    def target_statement(self, operator: Operator) -> str:
        match operator.op_type:
            case "Conv":
                if operator.window not in self._windows:
                    raise InexpressibleError(
                        "its target has a convolution whose stride, padding and kernel no convolution of its source has"
                    )
                x, w = operator.inputs
                group = f"group=dims({x})[1] / dims({w})[1]"  # as TASO infers it
                return self._statement(operator, f"{self._windows[operator.window]}, {group}")
            case "Split":
                if not set(operator.outputs) <= set(self._substitution.outputs):
                    raise InexpressibleError("no results of its source tell the sizes of a split in its target")
                axis = self._axis(operator)
                sizes = ", ".join(f"dims({name})[{axis.removeprefix('axis=')}]" for name in operator.outputs)
                return self._statement(operator, f"{axis}, split=[{sizes}]")
        return self._statement(operator, self._attributes(operator))

    def _statement(self, operator: Operator, attributes: str) -> str:
        call = ", ".join(operator.inputs) + ("; " if attributes else "") + attributes
        return f"{', '.join(operator.outputs)} = {operator.op_type}({call})"

    def _attributes(self, operator: Operator) -> str:
        if operator.perm is not None:
            return f"perm={list(operator.perm)}"
        return "" if operator.axis is None else self._axis(operator)

    def _axis(self, operator: Operator) -> str:
        return f"axis={self._substitution.axis(operator, 0)}"  # negative where it counts from the end

    def conditions(self) -> Iterator[str]:
        """What must hold of the tensors of the source."""
        substitution = self._substitution
        for operator in substitution.source:
            if operator.scalar:
                yield f"size({operator.inputs[1]}) == 1"
            if not self._domain.broadcast:
                yield from _equal_shapes(operator)
        if self._domain.groups is Groups.BALANCED:
            convolutions = [(n, op) for n, op in enumerate(substitution.source) if op.op_type == "Conv"]
            for (i, a), (j, b) in pairwise(convolutions):
                yield f"dims({a.inputs[1]})[0] * g{j} == dims({b.inputs[1]})[0] * g{i}"


def _equal_shapes(operator: Operator) -> Iterator[str]:
    a, b = operator.inputs[0], operator.inputs[-1]
    if operator.op_type == "MatMul":
        yield f"take(dims({a}), rank({a}) - 2) == take(dims({b}), rank({b}) - 2)"
    elif operator.op_type in ("Add", "Mul") and not operator.scalar:
        yield f"dims({a}) == dims({b})"
