"""`BodyPlan`: the rewrites of a graph inside an operator, in a form that can be stored and replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taso_ext.onnx_io.subgraphs import Place


@dataclasses.dataclass(frozen=True)
class BodyPlan:
    """The rewrites of one body and of the bodies inside it.

    Attributes:
      place: the place of the body in the model around it.
      actions: pairs (rule, location) that lead from the cleaned body to the rewritten one; rules are those of the run
        that need no newer opset than the model has.
      rule_names: the names of these rules.
      inner: the rewrites of bodies inside the rewritten body.
    """

    place: Place
    actions: tuple[tuple[int, int], ...]
    rule_names: tuple[str, ...]
    inner: tuple[BodyPlan, ...] = ()

    def all_rule_names(self) -> Iterator[str]:
        """Yields the names of the rules, also of those that are used in inner bodies, once for each rewrite."""
        yield from self.rule_names
        for plan in self.inner:
            yield from plan.all_rule_names()

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; `from_json` is the inverse."""
        steps = zip(self.actions, self.rule_names, strict=True)
        return {
            **self.place._asdict(),
            "actions": [{"rule": rule, "location": location, "rule_name": name} for (rule, location), name in steps],
            "inner": [plan.to_json() for plan in self.inner],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> BodyPlan:
        """Returns the plan of `to_json`'s values."""
        return cls(
            Place(fields["op_type"], fields["output"], fields["attribute"]),
            tuple((int(step["rule"]), int(step["location"])) for step in fields["actions"]),
            tuple(str(step["rule_name"]) for step in fields["actions"]),
            plans_from_json(fields["inner"]),
        )


Plans = tuple[BodyPlan, ...]
"""The rewrites of several bodies of one model."""


def plans_from_json(plans: Iterable[Mapping[str, Any]]) -> Plans:
    """Returns the plans of several bodies."""
    return tuple(map(BodyPlan.from_json, plans))
