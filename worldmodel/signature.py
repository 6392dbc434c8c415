"""What a world model was trained for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worldmodel.data.graphs import FeatureSpec
from worldmodel.errors import IncompatibleWorldModel

if TYPE_CHECKING:
    from environment import GraphSubstitutionEnv


@dataclass(frozen=True)
class Signature:
    """What a world model was trained for; it is of no use for anything else.

    Attributes:
      rule_names: of the environment, in order: rule ids are positions in it.
      features: columns of the graph observations.
      rules: fingerprint of what the rules say (`RuleSet.fingerprint`); empty if that is not known, and then only their
        names are compared.
    """

    rule_names: tuple[str, ...]
    features: FeatureSpec
    rules: str = ""

    @classmethod
    def of(cls, env: GraphSubstitutionEnv) -> Signature:
        """Of what is at hand: an environment's rules and this version's features."""
        return cls(tuple(env.rule_names), FeatureSpec.current(), env.rules.fingerprint)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Signature:
        """Inverse of `dataclasses.asdict`, also by way of JSON."""
        features = stored["features"]
        lists = {name: tuple(features[name]) for name in ("node_features", "edge_features")}
        return cls(tuple(stored["rule_names"]), FeatureSpec(**(features | lists)), stored["rules"])

    def require(self, other: Signature, source: str) -> None:
        """Raises `IncompatibleWorldModel` unless `other`, what is at hand, equals this."""
        differences = [*self._rule_differences(other), *self._feature_differences(other)]
        if differences:
            raise IncompatibleWorldModel(
                f"{source} was trained with other rules or features: {'; '.join(differences)}. Use the rule set and "
                "version that it was trained with, or train a world model anew."
            )

    def _rule_differences(self, other: Signature) -> Iterator[str]:
        mine, theirs = set(self.rule_names), set(other.rule_names)
        if mine != theirs:
            yield (
                f"{len(mine)} rules there, {len(theirs)} here; only there: {sorted(mine - theirs)[:5]}, "
                f"only here: {sorted(theirs - mine)[:5]}"
            )
        elif self.rule_names != other.rule_names:
            yield "the same rules in another order"
        elif self.rules and other.rules and self.rules != other.rules:
            fingerprints = f"fingerprint {self.rules} there, {other.rules} here"
            yield f"rules of the same names that say something else ({fingerprints})"

    def _feature_differences(self, other: Signature) -> Iterator[str]:
        mine, theirs = (dataclasses.asdict(each.features) for each in (self, other))
        for name in mine:
            if mine[name] != theirs[name]:
                yield f"{name} of the features is {mine[name]} there, {theirs[name]} here"
