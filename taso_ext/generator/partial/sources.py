"""The operators that mutants replace, each with the concrete cases on which mutants are tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taso_ext.generator.partial.boxes import Reference
from taso_ext.generator.partial.expressions import Expression, symbol
from taso_ext.generator.partial.programs import Concrete, Dims, IllTypedError, Statement, concrete

RESULT = "y"


@dataclass(frozen=True, eq=False)  # compared by identity
class Case:
    """One concrete instance of a source.

    Attributes:
      env: the values of its symbols, among them `dims(y)[i]`.
      program: the source with these.
    """

    env: Mapping[str, int]
    program: Concrete

    @cached_property
    def reference(self) -> Reference:
        """What mutants are compared to."""
        return Reference(self.program, RESULT)


@dataclass(frozen=True, eq=False)  # compared by identity
class Source:
    """A multilinear operator with free extents and attributes.

    Attributes:
      name: the word for it in names of rules.
      declared: its variables in the rule language, by name.
      extents: the extents of its operands, by the name of the operand; the first one is moved.
      statement: the operator; its result is `y`.
      written: its attributes as a source of a rule writes them.
      draw: draws the values of the symbols from a random generator.
      seed: the seed of the cases.
      count: the number of cases.
      spatial: the number of its last axes that a window slides along.
    """

    name: str
    declared: Mapping[str, str]
    extents: Mapping[str, tuple[Expression, ...]]
    statement: Statement
    written: str
    draw: Callable[[np.random.Generator], dict[str, int]]
    seed: int
    count: int
    spatial: int

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The cases, all different; `count` of them."""
        generator, found = np.random.default_rng(self.seed), dict[tuple[int, ...], Case]()
        while len(found) < self.count:
            env = self.draw(generator)
            leaves: dict[str, Dims] = {
                name: tuple(each.value(env) for each in extents) for name, extents in self.extents.items()
            }
            try:
                program = concrete([self.statement], leaves, env)
            except IllTypedError:
                continue
            dims = {f"dims({RESULT})[{axis}]": extent for axis, extent in enumerate(program.dims(RESULT))}
            found.setdefault(tuple(env.values()), Case({**env, **dims}, program))
        return tuple(found.values())

    @property
    def moved(self) -> str:
        """The operand whose layout mutants change."""
        return next(iter(self.extents))

    @property
    def rank(self) -> int:
        return len(self.extents[self.moved])


def _symbols(*names: str) -> tuple[Expression, ...]:
    return tuple(symbol(name) for name in names)


WINDOW = {
    "dilations": _symbols("d[0]", "d[1]"),
    "kernel_shape": _symbols("a[0]", "a[1]"),
    "pads": _symbols("p[0]", "p[1]", "p[2]", "p[3]"),
    "strides": _symbols("s[0]", "s[1]"),
}
_IMAGE = _symbols("n", "c", "h", "w")


def _draw_window(generator: np.random.Generator, *, least_kernel: int, dilated: bool) -> dict[str, int]:
    """Draws a batch, a plane and a window, in one of the styles of networks or in none."""
    pick = generator.integers
    env = {"n": int(pick(1, 4) * 2), "c": int(pick(1, 3) * 2)}
    style = pick(0, 5)
    for axis, name in enumerate("hw"):
        kernel = int(generator.choice([1, 2, 3, 3, 5][least_kernel - 1 :]))
        rate = int(generator.choice([1, 1, 2, 3])) if dilated else 1
        stride = int(generator.choice([1, 1, 2, 3])) if style >= 3 else 1
        span = (kernel - 1) * rate
        low, high = [(span // 2, span - span // 2), (0, 0), (rate, rate), (int(pick(0, 4)), int(pick(0, 4)))][
            min(int(style), 3)
        ]
        least = max(span - low - high, 0) + 1
        even = int(pick(0, 3)) > 0
        unit = rate * stride * 2 if even else 1
        extent = max(least, 4) + int(pick(0, 6))
        env |= {
            name: (extent + unit - 1) // unit * unit,
            f"a[{axis}]": kernel,
            f"d[{axis}]": rate,
            f"s[{axis}]": stride,
        }
        env |= {f"p[{axis}]": low, f"p[{axis + 2}]": high}
    return env


def _draw_conv(generator: np.random.Generator) -> dict[str, int]:
    env = _draw_window(generator, least_kernel=1, dilated=True)
    group = int(generator.choice([1, 1, 2]))
    return env | {"g": group, "m": env["c"] // group, "o": 2 * group}


def _draw_pool(generator: np.random.Generator) -> dict[str, int]:
    return _draw_window(generator, least_kernel=2, dilated=False) | {"i": int(generator.integers(0, 2))}


def _draw_matmul(generator: np.random.Generator) -> dict[str, int]:
    return {name: int(generator.integers(1, 4) * 2) for name in ("b", "m", "k", "l")}


CONV = Source(
    "conv",
    {"x": "float[n, c, h, w]", "k": "weight float[o, m, ...a]"},
    {"x": _IMAGE, "k": _symbols("o", "m", "a[0]", "a[1]")},
    Statement(RESULT, "Conv", ("x", "k"), {**WINDOW, "group": _symbols("g")}),
    "dilations=d, group=g, kernel_shape=a, pads=p, strides=s",
    _draw_conv,
    seed=1,
    count=48,
    spatial=2,
)
AVERAGE_POOL = Source(
    "average-pool",
    {"x": "float[n, c, h, w]"},
    {"x": _IMAGE},
    Statement(RESULT, "AveragePool", ("x",), {**WINDOW, "count_include_pad": _symbols("i")}),
    "ceil_mode=0, count_include_pad=i, dilations=d, kernel_shape=a, pads=p, strides=s",
    _draw_pool,
    seed=2,
    count=16,
    spatial=2,
)
MATMUL = Source(
    "matmul",
    {"x": "float[b, m, k]", "v": "weight float[k, l]"},
    {"x": _symbols("b", "m", "k"), "v": _symbols("k", "l")},
    Statement(RESULT, "MatMul", ("x", "v")),
    "",
    _draw_matmul,
    seed=3,
    count=12,
    spatial=0,
)
SOURCES = (CONV, AVERAGE_POOL, MATMUL)
