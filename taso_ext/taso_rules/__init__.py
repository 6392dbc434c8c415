"""TASO's generated substitutions as rules: only those that the rule language can express and the verifier accepts.

taso = load_taso_rules("graph_subst.pb")
state = State(graph, taso.rules, cost_model)
for index, reason in taso.rejected:
    print(index, reason)
"""

from __future__ import annotations

from taso_ext.taso_rules.file import TasoFileError
from taso_ext.taso_rules.loading import Outcome, TasoRules, Verdict, load_taso_rules

__all__ = ["Outcome", "TasoFileError", "TasoRules", "Verdict", "load_taso_rules"]
