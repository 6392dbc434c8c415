"""Rule sets by name: `default`, `default+partial`, or the path of a rule file."""

from __future__ import annotations

from taso_ext._core import RuleSet

DEFAULT = "default"


def load_rule_set(name: str | None) -> RuleSet:
    """Returns the rules that a name or a path stands for; None stands for the default ones.

    Args:
      name: `default`; `default+FAMILY` for the default set with an optional family (`partial`), or several with a + in
        front of each; or the path of a rule file, which replaces the default set.
    Raises:
      ValueError: if no optional family has this name, or the file cannot be read or has a rule without proof.
    """
    if name is None:
        return RuleSet.default()
    first, *families = name.split("+")
    return RuleSet.default(families) if first == DEFAULT else RuleSet.load(name)
