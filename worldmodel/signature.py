"""The signature of a world model: the rules and features that it was trained for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worldmodel.errors import IncompatibleWorldModel

if TYPE_CHECKING:
    from environment import GraphSubstitutionEnv

TIME, LOG_TIME_UNIT = "log_time", 5.0
"""The node feature that is ln(1 + time in microseconds), and its unit, see `environment.substitution.features`."""


@dataclass(frozen=True)
class FeatureSpec:
    """The meaning of the columns of a graph observation; a model is only valid for the features it was trained with.

    Attributes:
      node_features, edge_features: column names; column 0 is the operator id of a node and the dtype id of an edge.
      num_operators, num_dtypes: how many different ids there are.
      version: the version of the columns' meaning.
    """

    node_features: tuple[str, ...]
    edge_features: tuple[str, ...]
    num_operators: int
    num_dtypes: int
    version: int = 1

    @classmethod
    def current(cls) -> FeatureSpec:
        """Returns the features of this version of `environment`."""
        from environment.substitution import features

        return cls(
            tuple(features.NODE_FEATURES),
            tuple(features.EDGE_FEATURES),
            features.NUM_OPERATORS,
            features.NUM_DTYPES,
            features.FEATURES_VERSION,
        )


@dataclass(frozen=True)
class Signature:
    """The rules and features that a world model was trained for; it is of no use for others.

    Attributes:
      rule_names: the names of the environment's rules; a rule id is a position in this list.
      features: the columns of the graph observations.
      rules: fingerprint of what the rules say (`RuleSet.fingerprint`); empty if it is not known, and then only the
        names of the rules are compared.
      log_cost_rewards: whether every reward is 100 · ln(cost before / cost after) of costs that are sums of the node
        feature `TIME`, apart from the noise of drawn costs. If so, z can hold what rewards add up to. The environment
        declares this; it is not compared.
      telescopes: whether rewards are differences of a cost, so that what is undone is paid back; not compared either.
    """

    rule_names: tuple[str, ...]
    features: FeatureSpec
    rules: str = ""
    log_cost_rewards: bool = False
    telescopes: bool = True

    @classmethod
    def of(cls, env: GraphSubstitutionEnv) -> Signature:
        """Returns the signature of an environment: its rules and rewards, and the features of this version."""
        return cls(
            rule_names=tuple(env.rule_names),
            features=FeatureSpec.current(),
            rules=env.rules.fingerprint,
            log_cost_rewards=env.log_cost_rewards,
            telescopes=env.reward.telescopes,
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Signature:
        """Inverts `dataclasses.asdict`, also after a round trip through JSON."""
        features = stored["features"]
        lists = {name: tuple(features[name]) for name in ("node_features", "edge_features")}
        return cls(
            rule_names=tuple(stored["rule_names"]),
            features=FeatureSpec(**(features | lists)),
            rules=stored["rules"],
            log_cost_rewards=stored["log_cost_rewards"],
            telescopes=stored.get("telescopes", True),  # not known of older models
        )

    def require(self, other: Signature, source: str) -> None:
        """Raises `IncompatibleWorldModel` unless `other`, the signature at hand, has the same rules and features."""
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
