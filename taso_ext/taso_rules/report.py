"""The outcome of loading TASO's rules as a Markdown page."""

from __future__ import annotations

from collections import Counter

from taso_ext.taso_rules.loading import TasoRules, Verdict


def markdown(rules: TasoRules, command: str) -> str:
    """Counts of the verdicts, then one table row for each rule of the file.

    Args:
      command: what prints this page.
    """
    counts = Counter(outcome.verdict for outcome in rules.outcomes)
    lines = [
        f"# Rules of TASO's {rules.file}",
        "",
        f"Printed by `{command}` from the file with SHA-256 `{rules.digest}`.",
        "Tensors `x1`, `x2`, … are TASO's inputs -1, -2, …; an integer behind `;` is an axis.",
        "Every accepted rule was evaluated in two prime fields and in ONNX Runtime on random graphs of its domain.",
        "",
        "| verdict | rules |",
        "|---|---|",
        *(f"| {verdict} | {counts[verdict]} |" for verdict in Verdict),
        f"| of the accepted: refuted for wider domains | {sum(outcome.restricted for outcome in rules.outcomes)} |",
        f"| in the file | {len(rules.outcomes)} |",
        "",
        "| index | rule | verdict | domain or reason |",
        "|---|---|---|---|",
        *(f"| {o.index} | `{o.formula}` | {o.verdict} | {o.detail} |" for o in rules.outcomes),
    ]
    return "\n".join(lines) + "\n"
