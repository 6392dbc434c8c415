"""`rlflow explain`: where a rule applies in a model, or how far it is from applying."""

from __future__ import annotations

from environment.substitution.nearest_match import Explanation, explain
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.pipeline.loading.load import find_model, load_rules
from taso_ext import OnnxModel
from taso_ext.errors import did_you_mean


def explanation(model: str, rule: str, node: str, config: RunConfig) -> Explanation:
    """Returns what keeps a rule from applying to a model, or where it applies.

    Args:
      model: path of an ONNX file, or zoo name.
      rule: the name of the rule.
      node: the name of an operator that has to take part; empty if any may.
      config: settings, of which dims, clean and rules matter here.
    Raises:
      UserError, ModelError: the input is bad; the message says what is wrong and what to do.
    """
    rules = load_rules(config.rules)
    if rule not in rules.names:
        raise UserError(f"There is no rule '{rule}'{did_you_mean(rule, rules.names)}. `rlflow rules show` lists them.")
    loaded = OnnxModel.load(find_model(model).build(), dims=config.bound_dims(), clean=config.clean)
    try:
        return explain(loaded.graph, rules, rules.names.index(rule), node)
    except ValueError as error:  # there is no such operator
        raise UserError(f"{model}, after its clean-up: {error}. Name an operator of the cleaned model.") from error
