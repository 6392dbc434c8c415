"""What a world model was trained for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worldmodel.graphs import FeatureSpec


class IncompatibleWorldModel(ValueError):
    """A stored world model does not fit the environment at hand (rule set, feature version, format)."""


@dataclass(frozen=True)
class Signature:
    """What a world model was trained for; it is of no use for anything else.

    Attributes:
      rule_names: of the environment, in order: rule ids are positions in it.
      features: columns of the graph observations.
    """

    rule_names: tuple[str, ...]
    features: FeatureSpec

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Signature:
        """Inverse of `dataclasses.asdict`, also by way of JSON."""
        features = stored["features"]
        lists = {name: tuple(features[name]) for name in ("node_features", "edge_features")}
        return cls(tuple(stored["rule_names"]), FeatureSpec(**(features | lists)))

    def require(self, other: Signature, source: str) -> None:
        """Raises `IncompatibleWorldModel` unless `other`, what is at hand, equals this."""
        mine, theirs = (dataclasses.asdict(self.features) | {"rules": s.rule_names} for s in (self, other))
        theirs |= dataclasses.asdict(other.features)
        differing = [name for name in mine if mine[name] != theirs[name]]
        if differing:
            raise IncompatibleWorldModel(
                f"{source} was trained with other {', '.join(differing)}: {self._difference(other)}. "
                "Use the rule set and version it was trained with, or train a world model anew."
            )

    def _difference(self, other: Signature) -> str:
        mine, theirs = set(self.rule_names), set(other.rule_names)
        if self.rule_names == other.rule_names:
            return f"{self.features} there, {other.features} here"
        if mine == theirs:
            return "the same rules in another order"
        return (
            f"{len(mine)} rules there, {len(theirs)} here; only there: {sorted(mine - theirs)[:5]}, "
            f"only here: {sorted(theirs - mine)[:5]}"
        )
