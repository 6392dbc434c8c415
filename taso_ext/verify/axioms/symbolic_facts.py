"""What is known of the symbols of one rule, and what follows from it: linear and polynomial arithmetic by z3.

Integers are taken for reals: what holds for all reals holds for all integers.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable

import z3

from taso_ext.verify.axioms.symbolic_expressions import Scope, evaluate
from taso_ext.verify.axioms.symbolic_values import Attributes, Number, Row, UnknownError, Value

_EFFORT = 200_000
"""z3's own count of steps: unlike a time limit, it gives the same answer on every machine."""


class Facts:
    """Premises, and questions whether they imply something; "no" may also mean that z3 did not find out."""

    def __init__(self) -> None:
        self._solver = z3.Solver()
        self._solver.set("rlimit", _EFFORT)
        self._atoms: dict[Hashable, z3.ArithRef] = {}
        self._rows: dict[Row, z3.ExprRef] = {}
        self._row_sort = z3.DeclareSort("Row")
        self._answers: dict[tuple[Value, Value], bool] = {}

    def suppose(self, premise: z3.BoolRef) -> None:
        self._solver.add(premise)
        self._answers.clear()

    def suppose_condition(self, condition: ast.expr, scope: Scope) -> None:
        """Takes a rule's condition for true, as far as it can be said here."""
        if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
            for each in condition.values:
                self.suppose_condition(each, scope)
            return
        try:
            self.suppose(self.formula(condition, scope))
        except UnknownError:
            return  # fewer premises prove less

    def imply_condition(self, condition: ast.expr, scope: Scope) -> bool:
        """Whether a condition certainly holds."""
        try:
            return self.imply(self.formula(condition, scope))
        except UnknownError:
            return False

    def imply(self, conclusion: z3.BoolRef) -> bool:
        self._solver.push()
        self._solver.add(z3.Not(conclusion))
        found = self._solver.check()
        self._solver.pop()
        return bool(found == z3.unsat)

    def contradictory(self) -> bool:
        return bool(self._solver.check() == z3.unsat)

    def same(self, a: Value, b: Value) -> bool:
        """Whether two values are certainly equal."""
        if a == b:
            return True
        if isinstance(a, (str, Attributes)) or isinstance(b, (str, Attributes)):
            return False
        if isinstance(a, Number) != isinstance(b, Number):
            return False
        if isinstance(a, Number) and isinstance(b, Number) and (a - b).literal is not None:
            return False  # they differ by a number
        if (a, b) not in self._answers:
            self._answers[a, b] = self.imply(self.equation(a, b))
        return self._answers[a, b]

    def formula(self, condition: ast.expr, scope: Scope) -> z3.BoolRef:
        """A condition in z3's language.

        Raises:
          UnknownError: if it cannot be said there.
        """
        match condition:
            case ast.BoolOp(op=ast.And(), values=values):
                return z3.And([self.formula(value, scope) for value in values])
            case ast.BoolOp(op=ast.Or(), values=values):
                return z3.Or([self.formula(value, scope) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return z3.Not(self.formula(operand, scope))
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self._comparison(sign, evaluate(left, scope), evaluate(right, scope))
        raise UnknownError

    def _comparison(self, sign: ast.cmpop, a: Value, b: Value) -> z3.BoolRef:
        if isinstance(sign, (ast.Eq, ast.NotEq)):
            equal = self.equation(a, b)
            return equal if isinstance(sign, ast.Eq) else z3.Not(equal)
        if not isinstance(a, Number) or not isinstance(b, Number):
            raise UnknownError
        left, right = self.real(a), self.real(b)
        match sign:
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
        raise UnknownError

    def equation(self, a: Value, b: Value) -> z3.BoolRef:
        """That two values are equal: lists if their entries are, or if they are said to be."""
        if isinstance(a, Number) and isinstance(b, Number):
            return self.real(a) == self.real(b)
        if isinstance(a, tuple) and isinstance(b, tuple):
            return self._row_equation(a, b)
        if isinstance(a, str) and isinstance(b, str):
            return z3.BoolVal(a == b)
        raise UnknownError

    def _row_equation(self, a: Row, b: Row) -> z3.BoolRef:
        if a == b:
            return z3.BoolVal(True)
        plain = all(isinstance(item, Number) for item in (*a, *b))
        if plain and len(a) != len(b):
            return z3.BoolVal(False)
        entries = z3.BoolVal(False)
        if len(a) == len(b) and all(isinstance(x, Number) == isinstance(y, Number) for x, y in zip(a, b, strict=True)):
            pairs = zip(a, b, strict=True)
            entries = z3.And(
                [
                    self.real(x) == self.real(y)
                    if isinstance(x, Number) and isinstance(y, Number)
                    else self._row((x,)) == self._row((y,))
                    for x, y in pairs
                ]
            )
        return entries if plain else z3.Or(self._row(a) == self._row(b), entries)

    def real(self, number: Number) -> z3.ArithRef:
        """A number in z3's language."""
        terms = []
        for monomial, coefficient in number.terms:
            term: z3.ArithRef = z3.RealVal(str(coefficient))
            for atom, power in monomial:
                for _ in range(power):
                    term = term * self._atom(atom)
            terms.append(term)
        return z3.Sum(terms) if terms else z3.RealVal(0)

    def _atom(self, name: Hashable) -> z3.ArithRef:
        if name not in self._atoms:
            self._atoms[name] = z3.Real(f"a{len(self._atoms)}")
            match name:
                case ("quotient", Number() as a, Number() as b):  # of integers it is exact, else nothing matches
                    divisor = self.real(b)
                    self._solver.add(z3.Implies(divisor != 0, self._atoms[name] * divisor == self.real(a)))
                case ("sqrt", Number() as square):
                    root, inside = self._atoms[name], self.real(square)
                    self._solver.add(z3.Implies(inside >= 0, z3.And(root * root == inside, root >= 0)))
                case ("len" | "prod", _):
                    self._solver.add(self._atoms[name] >= 0)
        return self._atoms[name]

    def _row(self, row: Row) -> z3.ExprRef:
        if row not in self._rows:
            self._rows[row] = z3.Const(f"r{len(self._rows)}", self._row_sort)
        return self._rows[row]
