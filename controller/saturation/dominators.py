"""Classes that a class needs whatever terms are chosen.

Without them the linear program divides a class among many terms, each of which needs other classes in part only; what
all of them need in the end would count but in part.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.saturation.choices import Choices


class Dominators:
    """By class, the classes that every selection of which it is a part holds.

    They are the greatest solution of: a class needs itself, and what all its terms need; a term needs what any of the
    classes that it reads needs.
    """

    def __init__(self, choices: Choices) -> None:
        self._numbers = list(choices.members)
        places = {number: place for place, number in enumerate(self._numbers)}
        everything = (1 << len(places)) - 1
        self._sets = [everything] * len(places)
        needs = [
            [[places[each] for each in choices.needs[term] if each in places] for term in choices.members[number]]
            for number in self._numbers
        ]
        readers: list[set[int]] = [set() for _ in places]
        for place, terms in enumerate(needs):
            for classes in terms:
                for each in classes:
                    readers[each].add(place)
        pending = dict.fromkeys(range(len(places)))
        while pending:
            place = next(iter(pending))
            del pending[place]
            common = everything
            for classes in needs[place]:
                united = 0
                for each in classes:
                    united |= self._sets[each]
                common &= united
            found = common | 1 << place
            if found != self._sets[place]:
                self._sets[place] = found
                pending |= dict.fromkeys(readers[place])

    def of(self, number: int) -> list[int]:
        """Returns the classes that a class needs in any case, itself among them."""
        return [self._numbers[place] for place in _bits(self._sets[self._numbers.index(number)])]

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yields each class with those that it needs in any case and not only because of another such class."""
        for place, whole in enumerate(self._sets):
            others = whole & ~(1 << place)
            implied = 0
            for other in _bits(others):
                implied |= self._sets[other] & ~(1 << other)
            for other in _bits(others & ~implied):
                yield self._numbers[place], self._numbers[other]


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
