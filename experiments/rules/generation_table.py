"""The counts of a generation of rules as a table, beside those of TASO."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from taso_ext.files import write_text
from taso_ext.generator.domains import DOMAINS
from taso_ext.generator.generate import Generated
from taso_ext.generator.grid import Domain

TASO = {
    "expressions evaluated": "16,400,000",
    "evaluated per second and thread": "155,000",
    "equal pairs": "1,620,000",
    "rules": "619",
}
"""The counts of TASO's generator, as reported by Jia et al. 2019; the rate per second was measured."""


def grid_text() -> str:
    """Returns what is enumerated, as text: in each domain, every operator with its attributes, and every tensor."""
    return "\n".join(_domain_text(domain) for domain in DOMAINS)


def _domain_text(domain: Domain) -> str:
    names: dict[str, list[str]] = {}
    for leaf in domain.leaves:
        shape = ", ".join(leaf.shape)
        names.setdefault(f"{'' if leaf.content == 'variable' else leaf.content + ' '}[{shape}]", []).append(leaf.name)
    attributes: dict[str, list[str]] = {}
    for operator in domain.operators:
        written = " ".join(f"{key}={value}" for key, value in operator.attributes if key != "port")
        attributes.setdefault(operator.kind, []).append(written)
    lines = [f"{domain.name}: up to {domain.most_operators} operators"]
    if domain.most_linear_operators > domain.most_operators:
        lines[0] += f", {domain.most_linear_operators} of {' '.join(sorted(domain.linear))}"
    lines.append("  extents    " + "; ".join(f"{name} = {values}" for name, values in domain.symbols.items()))
    lines.append("  tensors    " + "; ".join(f"{' '.join(of)}: {shape}" for shape, of in names.items()))
    for kind, all_written in attributes.items():
        lines.append(f"  {kind:<10} " + " | ".join(each for each in dict.fromkeys(all_written) if each))
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True)
class GenerationTable:
    """The counts of one generation of rules.

    Attributes:
      generated: the rules and the counts of every stage.
      command: the command that generated the rules.
      memory_mb: peak memory of the process in MB.
    """

    generated: Generated
    command: str
    memory_mb: float

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns rows (stage, here, TASO)."""
        report = self.generated.report
        cpu = report.total("cpu_seconds")
        stages: list[tuple[str, float]] = [
            ("expressions enumerated", report.total("enumerated")),
            ("expressions evaluated", report.total("evaluated")),
            ("evaluated per second and thread", report.total("evaluated") / cpu if cpu else 0),
            ("zero or one whatever the variables are", report.total("constant")),
            ("classes (buckets)", report.total("classes")),
            ("equal pairs", report.total("pairs")),
            ("after renaming", report.pruned("after_renaming")),
            ("after degenerate ones", report.pruned("after_degenerate")),
            ("after those that others imply", report.pruned("after_implied")),
            ("after common subgraphs", report.pruned("after_common")),
            *sorted(report.wordings.items(), key=_place),
            ("rules", len(self.generated.rules)),
            ("seconds of enumeration", report.seconds["enumeration"]),
            ("seconds of choosing rules", report.seconds["rules"]),
            ("MB of memory", self.memory_mb),
        ]
        return [(stage, f"{value:,.0f}", TASO.get(stage, "")) for stage, value in stages]

    def levels(self) -> list[tuple[str, ...]]:
        """Returns rows (domain, operators, evaluated, per second and thread, classes, equal pairs)."""
        return [
            (
                name,
                f"{row['operators']}{' (linear)' if row['linear'] else ''}",
                f"{row['evaluated']:,}",
                f"{row['evaluated'] / row['cpu_seconds']:,.0f}" if row["cpu_seconds"] else "",
                f"{row['classes']:,}",
                f"{row['pairs']:,}",
            )
            for name, rows in self.generated.report.levels.items()
            for row in rows
        ]

    def markdown(self) -> str:
        """Returns both tables as Markdown."""
        levels = ("domain", "operators", "evaluated", "per second and thread", "classes", "equal pairs")
        return "\n".join(
            [
                "# What the rule generator finds",
                "",
                f"Made by `{self.command}`.",
                "",
                *_table(("stage", "here", "TASO"), self.rows()),
                "",
                *_table(levels, self.levels()),
                "",
            ]
        )

    def write(self, path: Path) -> None:
        """Writes both tables to `path`, and the first one as CSV beside it."""
        write_text(path, self.markdown())
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(
            [("stage", "here", "taso"), *((a, b.replace(",", ""), c.replace(",", "")) for a, b, c in self.rows())]
        )
        write_text(path.with_suffix(".csv"), text.getvalue())


_ORDER = (
    "laws",
    "laws worded",
    "rewritings",
    "not shipped",
    "not expressible",
    "wordings refuted",
    "worded so",
    "worded like",
    "implied",
    "refused",
    "shipped",
)


def _place(row: tuple[str, int]) -> tuple[int, str]:
    """Returns the sort key of a count of rewritings: the order in which they are dropped, then the name."""
    places = [place for place, head in enumerate(_ORDER) if row[0] == head or (place > 2 and row[0].startswith(head))]
    return (places[0] if places else len(_ORDER), row[0])


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]] | list[tuple[str, str, str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
