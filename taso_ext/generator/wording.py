"""Laws as rules of the rule language, in several wordings from the most general to the enumerated one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

from taso_ext.generator.grid import AVERAGING_KERNEL, IDENTITY, IDENTITY_KERNEL, ONE, VARIABLE, ZERO, Domain, Operator
from taso_ext.generator.laws import Law, Rewriting, Term

Values = tuple[int, ...]


@cache
def _table(domain: Domain) -> dict[Values, str]:
    """Returns the text of an extent by its values in the shape sets.

    Texts are numbers, symbols, then sums and products of two symbols; the first with the same values is taken.
    """
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
    """Returns the extent that has these values in the domain's shape sets, or None if there is no simple one."""
    return _table(domain).get(values)


ANY_FUNCTION = "Relu | LeakyRelu | Sigmoid | Tanh | Erf | Gelu | Exp | Sqrt | Neg | Abs | HardSwish | Elu"
ZERO_FIXING_FUNCTION = "Relu | LeakyRelu | Tanh | Erf | Gelu | Sqrt | Neg | Abs | HardSwish | Elu"
RESHAPES = frozenset(["Merge", "Unmerge", "Insert", "Drop"])
REDUCTIONS = frozenset(["ReduceSum", "ReduceMean", "ReduceMax"])
WINDOWED = frozenset(["Conv", "AveragePool", "MaxPool", "Pad"])
CONDITIONS = {
    ZERO: "value({0}) == 0 and size({0}) == 1",
    ONE: "value({0}) == 1 and size({0}) == 1",
    IDENTITY: "is_identity({0})",
    IDENTITY_KERNEL: "is_identity_kernel({0})",
    AVERAGING_KERNEL: "is_averaging_kernel({0})",
}


class InexpressibleError(ValueError):
    """The rule language cannot express a law, or only with names that the rule's source does not bind."""


@dataclass(frozen=True)
class Wording:
    """The generality with which a law is written as a rule.

    Attributes:
      shapes: "open" (any), "leading" (any leading extents before those enumerated), "shared" (the same leading extents
        for all), "exact" (as enumerated).
      all_lead: whether all matrices have leading extents, or only the tensors of the highest rank.
      free_axis: whether a symbol stands for the axis, which all operators have in common.
      free_scalars: whether scalars are tensors of any shape; otherwise they are tensors of one element.
      one_group: whether convolutions have one group; otherwise they have any number.
    """

    shapes: str
    all_lead: bool = True
    free_axis: bool = False
    free_scalars: bool = False
    one_group: bool = False


def wordings(law: Law) -> Iterator[Wording]:
    """Yields all wordings that are worth trying, the most general first."""
    operators = law.operators()
    if any(operator.kind in WINDOWED for operator in operators):
        yield Wording("exact")
        yield Wording("exact", one_group=True)
        return
    axes = {operator["axis"] for operator in operators if operator.kind in ("Concat", "Split")}
    matrices = any(operator.kind == "MatMul" for operator in operators)
    ranked = any(operator.kind == "Slice" for operator in operators) or not _alike(law)
    for free_scalars in (True, False):
        if len(axes) == 1 and not ranked and not matrices:
            yield Wording("open", free_axis=True, free_scalars=free_scalars)
        if not ranked:
            yield Wording("open", free_scalars=free_scalars)
    if not ranked:
        yield from (
            Wording("leading"),
            Wording("leading", all_lead=False),
            Wording("shared"),
            Wording("shared", all_lead=False),
        )
    yield Wording("exact")


def _alike(law: Law) -> bool:
    """Returns whether reductions and reshapes together have at most one form, for which one symbol can stand.

    The form of a reduction is its axes and `keepdims`, that of a reshape is the shape of its result.
    """
    terms = [term for side in (law.left, law.right) for term in side.subterms() if not term.is_leaf]
    axes = {
        (law.operator(term)["axes"], law.operator(term)["keepdims"])
        for term in terms
        if law.operator(term).kind in REDUCTIONS
    }
    reshaped = {term.shapes for term in terms if law.operator(term).kind in RESHAPES}
    return len(axes) + len(reshaped) <= 1


def rule_text(rewriting: Rewriting, wording: Wording, name: str) -> str:
    """Returns the rule in the language of taso_ext/rules/README.md.

    Raises:
      InexpressibleError: if the language cannot express it, or its target reads what its source does not bind.
    """
    return _Writer(rewriting, wording).write(name)


class _Writer:
    """A writer of one rule, in which an expression that occurs several times becomes one statement."""

    def __init__(self, rewriting: Rewriting, wording: Wording) -> None:
        self._rewriting, self._wording, self._law = rewriting, wording, rewriting.law
        self._names: dict[Term, str] = {}
        self._variables: dict[Term, str] = {}
        self._conditions: list[str] = []
        self._functions: dict[str, str] = {}
        self._cuts: dict[str, str] = {}
        self._bound: set[str] = set()
        self._in_source = True
        self._leading = self._leading_rank()

    def write(self, name: str) -> str:
        source, target = self._rewriting.source, self._rewriting.target
        for number, term in enumerate(dict.fromkeys(each for top in source for each in top.subterms() if each.is_leaf)):
            self._variables[term] = f"x{number + 1}"
        results = ["y", "z"] if len(source) > 1 else ["y"]
        statements = self._statements(source, results)
        self._in_source = False
        self._names = {}
        rewritten = self._statements(target, results)
        sections = {
            "var": self._declarations(),
            "op": [f"{short}: {choices}" for short, choices in self._functions.items()],
            "source": statements,
            "where": list(dict.fromkeys(self._conditions)),
            "target": rewritten,
        }
        lines = [f"rule {name}"]
        for section, items in sections.items():
            for head, item in zip([section, *[""] * len(items)], items, strict=False):
                lines.append(f"  {head:<6} {item}")
        return "\n".join(lines) + "\n"

    def _leading_rank(self) -> int:
        ranks = [len(each.shapes[0]) for top in self._rewriting.source for each in top.subterms() if each.is_variable]
        return max(ranks, default=0)

    # ---- statements

    def _statements(self, tops: Sequence[Term], results: Sequence[str]) -> list[str]:
        statements: list[str] = []
        last = dict(zip(tops, results, strict=True))
        for top in tops:
            for term in top.subterms():
                if term in self._names:
                    continue
                if term.is_leaf:
                    self._names[term] = self._leaf(term, statements)
                    if term in last:
                        statements.append(f"{last[term]} = {self._names[term]}")
                    continue
                self._names[term] = last.get(term) or self._fresh()
                statements.append(self._statement(term, tops, last))
        return statements

    def _fresh(self) -> str:
        """Returns a new name for a result of one side. A name on both sides would stand for the same tensor."""
        letter = "t" if self._in_source else "u"
        return next(name for number in range(1, 99) if (name := f"{letter}{number}") not in self._names.values())

    def _leaf(self, term: Term, statements: list[str]) -> str:
        known = self._variables.get(term)
        if known is None:
            if self._in_source or term.is_variable:
                raise InexpressibleError("its target reads a variable that its source does not have")
            return self._constant(term, statements)
        if self._in_source and not term.is_variable:
            self._conditions.append(CONDITIONS[term.head].format(known))
        return known

    def _constant(self, term: Term, statements: list[str]) -> str:
        name = f"k{sum('k' in each.split(' = ')[0] for each in statements) + 1}"
        if term.head in (ZERO, ONE):
            statements.append(f"{name} = ConstantOfShape(; shape=[], value={'1.0' if term.head == ONE else '0.0'})")
        elif term.head == IDENTITY:
            statements.append(f"{name} = EyeLike(; size={self._extent(term.shapes, -1)})")
        else:
            raise InexpressibleError("its target makes a kernel")
        return name

    def _statement(self, term: Term, tops: Sequence[Term], last: dict[Term, str]) -> str:
        operator = self._rewriting.operator(term)
        operands = ", ".join(self._names[operand] for operand in term.operands)
        if operator.kind == "Split":
            return self._split(term, operator, tops, last)
        attributes = self._attributes(term, operator)
        op_type = self._op_type(operator)
        return f"{self._names[term]} = {op_type}({operands}{'; ' if attributes else ''}{attributes})"

    def _split(self, term: Term, operator: Operator, tops: Sequence[Term], last: dict[Term, str]) -> str:
        """Returns one statement for both ports, which stands where the first of them is read."""
        ports = {}
        for top in tops:
            for each in top.subterms():
                if (
                    not each.is_leaf
                    and each.operands == term.operands
                    and self._rewriting.operator(each).node == operator.node
                ):
                    ports[self._rewriting.operator(each)["port"]] = each
        if len(ports) < 2:
            raise InexpressibleError("it reads one part of a split only")
        for port in (0, 1):
            self._names[ports[port]] = last.get(ports[port]) or self._names.get(ports[port]) or self._fresh()
        axis = self._axis(operator["axis"], term)
        names = ", ".join(self._names[ports[port]] for port in (0, 1))
        return f"{names} = Split({self._names[term.operands[0]]}; axis={axis}, split={self._parts(operator, ports)})"

    def _parts(self, operator: Operator, ports: Mapping[int, Term]) -> str:
        """Returns the sizes of a split.

        A source takes any sizes. A target has the sizes of the same split in the source, or else those of its results.
        """
        first = operator["first"]
        if self._in_source:
            return self._cuts.setdefault(first, "cut" if not self._cuts else f"cut{len(self._cuts)}")
        if first in self._cuts:
            return self._cuts[first]
        return f"[{', '.join(self._extent(ports[port].shapes, operator['axis']) for port in (0, 1))}]"

    def _op_type(self, operator: Operator) -> str:
        if operator.kind in ("Function", "ZeroFixing"):
            short = "f" if operator.kind == "Function" else "g"
            self._functions[short] = ANY_FUNCTION if operator.kind == "Function" else ZERO_FIXING_FUNCTION
            return short
        return {"Scale": "Mul"}.get(operator.kind, "Reshape" if operator.kind in RESHAPES else operator.kind)

    # ---- attributes

    def _attributes(self, term: Term, operator: Operator) -> str:
        match operator.kind:
            case "Concat":
                return f"axis={self._axis(operator['axis'], term)}"
            case "Transpose":
                return f"perm={self._perm(operator['perm'])}"
            case "Slice":
                return f"axes=[{operator['axis']}], starts=[{operator['start']}], ends=[{operator['end']}], steps=[1]"
        if operator.kind in RESHAPES:
            return f"shape={self._shape(term)}"
        if operator.kind in REDUCTIONS:
            return self._reduction(operator)
        if operator.kind in WINDOWED:
            return self._window(operator)
        return ""

    def _axis(self, axis: int, term: Term) -> str:
        if self._wording.free_axis:
            return self._bind("d")
        return str(axis) if self._wording.shapes == "exact" else str(axis - len(term.shapes[0]))

    def _perm(self, perm: Sequence[int]) -> str:
        perms = {operator["perm"] for operator in self._law.operators() if operator.kind == "Transpose"}
        if self._wording.shapes == "exact" or len(perms) > 1:
            if self._wording.shapes != "exact":
                raise InexpressibleError("permutations of another rank are not known")
            return str(list(perm))
        return self._bind("order")

    def _bind(self, symbol: str) -> str:
        """Returns a symbol that takes any value in the source; a target may only use a symbol of the source."""
        if self._in_source:
            self._bound.add(symbol)
        elif symbol not in self._bound:
            raise InexpressibleError(f"its source does not bind {symbol}")
        return symbol

    def _reduction(self, operator: Operator) -> str:
        axes = operator["axes"]
        if self._wording.shapes != "exact" or axes == "spatial":
            return f"axes={self._bind('axes')}, keepdims={self._bind('keep')}"
        return f"axes={list(axes)}, keepdims={operator['keepdims']}"

    def _window(self, operator: Operator) -> str:
        """Returns the attributes of a window. Operators with equal attributes share one symbol."""
        alike = [each for each in self._law.operators() if each.kind in WINDOWED]
        rest = self._bind(f"r{alike.index(operator)}" if len(alike) > 1 else "r")
        if operator.kind == "Pad":
            return f"@{rest}, value=0"
        return f"@{rest}, group=1" if self._wording.one_group and operator.kind == "Conv" else f"@{rest}"

    def _shape(self, term: Term) -> str:
        if self._wording.shapes != "exact":
            return self._bind("to")
        extents = [self._extent(term.shapes, axis) for axis in range(len(term.shapes[0]))]
        return f"[{', '.join(extents)}]"

    # ---- extents

    def _extent(self, shapes: Sequence[Sequence[int]], axis: int) -> str:
        values = tuple(dims[axis] for dims in shapes)
        if self._wording.shapes == "open":
            return self._extent_of_leaf(values, axis, len(shapes[0]))
        text = symbolic(self._law.domain, values)
        if text is None:
            raise InexpressibleError("an extent has no simple form")
        return text

    def _extent_of_leaf(self, values: tuple[int, ...], axis: int, rank: int) -> str:
        """Returns an extent as that of a source tensor along the same axis; for wordings without symbols of extents."""
        if len(set(values)) == 1:
            return str(values[0])
        for leaf, name in self._variables.items():
            if len(leaf.shapes[0]) == rank and tuple(dims[axis] for dims in leaf.shapes) == values:
                place = "d" if self._wording.free_axis else str(axis - rank if axis >= 0 else axis)
                return f"dims({name})[{place}]"
        raise InexpressibleError("no tensor of its source has an extent that its target needs")

    # ---- variables

    def _declarations(self) -> list[str]:
        names: dict[str, list[str]] = {}
        for term, name in self._variables.items():
            weight = "" if term.is_variable else "weight "
            names.setdefault(f"{weight}float[{self._declared_shape(term, name)}]", []).append(name)
        return ["; ".join(f"{', '.join(alike)}: {declared}" for declared, alike in names.items())]

    def _declared_shape(self, term: Term, name: str) -> str:
        rank = len(term.shapes[0])
        if rank == 0:
            if not self._wording.free_scalars and term.head == VARIABLE:
                self._conditions.append(f"size({name}) == 1")
            return "..."
        if self._wording.shapes == "open":
            return "..."
        ranks = {len(dims) for dims in term.shapes}
        if len(ranks) > 1:
            return self._spatial_shape(term)
        extents = [self._extent(term.shapes, axis) for axis in range(rank)]
        if any(not extent.replace(" ", "").isalnum() for extent in extents):
            raise InexpressibleError("a variable has a composite extent")
        lead = {"leading": "...", "shared": "...z", "exact": ""}[self._wording.shapes]
        leads = rank >= 2 and (self._wording.all_lead or rank == self._leading)
        return ", ".join([lead, *extents] if lead and leads else extents)

    def _spatial_shape(self, term: Term) -> str:
        """Returns the shape of a tensor of a convolution: two extents, then those of the spatial axes."""
        domain = self._law.domain
        leaf = next((leaf for leaf in domain.leaves if _same(domain.native_shapes(leaf.shape), term.shapes)), None)
        if leaf is None:
            raise InexpressibleError("a variable has a composite shape")
        spatial = leaf.shape[-1].removeprefix("*")
        if all(set(extents) == {1} for extents in domain.symbols[spatial]):
            self._conditions.append(f"{spatial} == repeat(1, len({spatial}))")
        return ", ".join([*leaf.shape[:-1], f"...{spatial}"])


def _same(native: list[list[int]], shapes: Sequence[Sequence[int]]) -> bool:
    return [list(dims) for dims in native] == [list(dims) for dims in shapes]
