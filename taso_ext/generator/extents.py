"""The symbolic form of extents that are known as one number for each shape set."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement

from taso_ext.generator.grid import Domain

Values = tuple[int, ...]


@cache
def _table(domain: Domain) -> dict[Values, str]:
    """Text by value: numbers, symbols, then sums and products of two symbols, the first that fits."""
    sets = range(domain.sets)
    table: dict[Values, str] = {tuple(number for _ in sets): str(number) for number in range(5)}
    symbols = [name for name, values in domain.symbols.items() if isinstance(values[0], int)]
    for text in symbols:
        table.setdefault(tuple(domain.extent(text, number) for number in sets), text)
    for joiner in ("+", "*"):
        for pair in combinations_with_replacement(symbols, 2):
            text = joiner.join(pair)
            table.setdefault(tuple(domain.extent(text, number) for number in sets), f" {joiner} ".join(pair))
    return table


def symbolic(domain: Domain, values: Values) -> str | None:
    """The extent that has these values in the domain's shape sets, or None where there is no simple one."""
    return _table(domain).get(values)
