"""Random corruptions of rewrite rules, as changes of their text."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from taso_ext.verify.rule_reader import split_items

SECTIONS = ("var", "op", "source", "given", "where", "unordered", "least", "target")

# Operators of equal arity and result shape, which may replace one another.
_ALIKE = (
    ("Add", "Sub", "Mul", "Div"),
    ("Relu", "Tanh", "Sigmoid", "Exp", "Neg", "Abs", "Erf", "Sqrt", "LeakyRelu", "Gelu", "Elu", "HardSwish"),
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"),
    ("MaxPool", "AveragePool"),
    ("GlobalMaxPool", "GlobalAveragePool"),
    ("Softmax", "LogSoftmax"),
)


@dataclass
class Call:
    """A statement `results = op(arguments; attributes)`; an alias has the op ""."""

    results: list[str]
    op: str
    arguments: list[str]
    attributes: list[str]

    def text(self) -> str:
        if not self.op:
            return f"{', '.join(self.results)} = {self.arguments[0]}"
        attributes = f"; {', '.join(self.attributes)}" if self.attributes else ""
        return f"{', '.join(self.results)} = {self.op}({', '.join(self.arguments)}{attributes})"


@dataclass
class Draft:
    """A rule that is being changed; `calls` are the statements of source, given and target."""

    name: str
    items: dict[str, list[str]]
    calls: dict[str, list[Call]] = field(default_factory=dict)

    @staticmethod
    def read(text: str) -> Draft:
        """Reads a rule without proof."""
        bodies: dict[str, str] = {}  # in the order of the text, because the source may read what is given
        name = section = ""
        for line in text.splitlines():
            words = line.split("#")[0].split(None, 1)
            if words and words[0] == "rule":
                name = words[1].strip()
                continue
            if words and words[0] in SECTIONS:
                section, words = words[0], words[1:]
            if words:
                bodies[section] = bodies.get(section, "") + " ".join(words) + "\n"
        items = {
            key: [" ".join(i.split()) for i in split_items(body, ";\n") if i.strip()] for key, body in bodies.items()
        }
        calls = {side: [_call(item) for item in items.get(side, [])] for side in ("source", "given", "target")}
        items |= {section: [] for section in SECTIONS if section not in items}
        return Draft(name, items, calls)

    def text(self) -> str:
        lines = [f"rule {self.name}"]
        for section in self.items:
            items = [call.text() for call in self.calls[section]] if section in self.calls else self.items[section]
            lines += [f"  {section if at == 0 else '':9} {item}" for at, item in enumerate(items)]
        return "\n".join(lines) + "\n"


def _call(item: str) -> Call:
    left, right = item.split("=", 1)
    results = [name.strip() for name in left.split(",")]
    found = re.fullmatch(r"\s*([\w.]+)\s*\((.*)\)\s*", right)
    if found is None:
        return Call(results, "", [right.strip()], [])
    arguments, *behind = split_items(found[2], ";")
    attributes = [each.strip() for each in split_items(behind[0], ",")] if behind else []
    return Call(results, found[1], [each.strip() for each in arguments.split(",") if each.strip()], attributes)


def _any(
    rng: random.Random, draft: Draft, fits: Callable[[Call], bool], sides: tuple[str, ...] = ("target",)
) -> Call | None:
    """Draws a statement of `sides` for which `fits` holds; None if there is none."""
    found = [call for side in sides for call in draft.calls[side] if fits(call)]
    return rng.choice(found) if found else None


def swap_inputs(rng: random.Random, draft: Draft) -> bool:
    call = _any(rng, draft, lambda c: len(set(c.arguments)) > 1)
    if call is None:
        return False
    i, j = rng.sample(range(len(call.arguments)), 2)
    call.arguments[i], call.arguments[j] = call.arguments[j], call.arguments[i]
    return True


def replace_input(rng: random.Random, draft: Draft) -> bool:
    """Replaces an operand in the target by another tensor that can be read there."""
    target = draft.calls["target"]
    at = rng.randrange(len(target))
    names = [name.strip() for item in draft.items["var"] for name in item.split(":")[0].split(",")]
    names += [result for call in target[:at] for result in call.results]
    call = target[at]
    if not call.arguments:
        return False
    place = rng.randrange(len(call.arguments))
    others = [
        n for n in names if n != call.arguments[place] and n.startswith("*") == call.arguments[place].startswith("*")
    ]
    if not others:
        return False
    call.arguments[place] = rng.choice(others)
    return True


def swap_results(rng: random.Random, draft: Draft) -> bool:
    call = _any(rng, draft, lambda c: len(c.results) > 1)
    if call is None:
        return False
    call.results.reverse()
    return True


def drop_operator(rng: random.Random, draft: Draft) -> bool:
    """Removes an operator of the target; one of its operands stands for its result."""
    call = _any(rng, draft, lambda c: bool(c.op) and bool(c.arguments) and len(c.results) == 1)
    if call is None:
        return False
    operands = [a for a in call.arguments if a.startswith("*") == call.results[0].startswith("*")]
    if not operands:
        return False
    call.op, call.arguments, call.attributes = "", [rng.choice(operands)], []
    return True


def change_operator(rng: random.Random, draft: Draft) -> bool:
    call = _any(rng, draft, lambda c: any(c.op in group for group in _ALIKE))
    if call is None:
        return False
    group = next(group for group in _ALIKE if call.op in group)
    call.op = rng.choice([name for name in group if name != call.op])
    return True


def fix_operator(rng: random.Random, draft: Draft) -> bool:
    """Replaces an operator variable in the target by one of its operators."""
    variables = {item.split(":")[0].strip(): item.split(":")[1].split("|") for item in draft.items["op"]}
    call = _any(rng, draft, lambda c: c.op in variables)
    if call is None:
        return False
    call.op = rng.choice(variables[call.op]).strip()
    return True


def widen_operator(rng: random.Random, draft: Draft) -> bool:
    """Adds one more operator, of other laws, to those that an operator variable stands for."""
    if not draft.items["op"]:
        return False
    at = rng.randrange(len(draft.items["op"]))
    choices = draft.items["op"][at].split(":")[1]
    group = next((g for g in _ALIKE if choices.split("|")[0].strip() in g), ())
    others = [name for name in group if name not in choices]
    if not others:
        return False
    draft.items["op"][at] += f" | {rng.choice(others)}"
    return True


def drop_condition(rng: random.Random, draft: Draft) -> bool:
    items = draft.items["where"]
    if not items:
        return False
    at = rng.randrange(len(items))
    parts = re.split(r"\s+and\s+", items[at])
    parts.pop(rng.randrange(len(parts)))
    items[at : at + 1] = [" and ".join(parts)] if parts and all(p.count("(") == p.count(")") for p in parts) else []
    return True


def loosen_condition(rng: random.Random, draft: Draft) -> bool:
    items = draft.items["where"]
    places = [(i, m) for i, item in enumerate(items) for m in re.finditer(r"==|!=|<=|>=|<|>", item)]
    if not places:
        return False
    at, match = rng.choice(places)
    other = rng.choice([sign for sign in ("==", "!=", "<=", ">=") if sign != match[0]])
    items[at] = items[at][: match.start()] + other + items[at][match.end() :]
    return True


def widen_shape(rng: random.Random, draft: Draft) -> bool:
    """Lets a variable have any shape, or makes one of its extents another symbol."""
    places = [(i, m) for i, item in enumerate(draft.items["var"]) for m in re.finditer(r"\[[^\]]*\]", item)]
    if not places:
        return False
    at, match = rng.choice(places)
    extents = [extent.strip() for extent in match[0][1:-1].split(",") if extent.strip()]
    plain = [i for i, extent in enumerate(extents) if extent.isidentifier()]
    if plain and rng.random() < 0.6:
        extents[rng.choice(plain)] = rng.choice(["q0", "q1"])
        shape = f"[{', '.join(extents)}]"
    else:
        shape = "[...]"
    item = draft.items["var"][at]
    draft.items["var"][at] = item[: match.start()] + shape + item[match.end() :]
    return True


def change_attribute(rng: random.Random, draft: Draft) -> bool:
    """Changes a number, a sign, an order or a symbol in an attribute of the target."""
    call = _any(rng, draft, lambda c: any("=" in attribute for attribute in c.attributes))
    if call is None:
        return False
    at = rng.choice([i for i, attribute in enumerate(call.attributes) if "=" in attribute])
    name, value = call.attributes[at].split("=", 1)
    changed = _changed_expression(rng, draft, value.strip())
    if changed == value.strip():
        return False
    call.attributes[at] = f"{name.strip()}={changed}"
    return True


def _changed_expression(rng: random.Random, draft: Draft, value: str) -> str:
    numbers = list(re.finditer(r"(?<![\w.])-?\d+(?![\w.])", value))
    names = list(re.finditer(r"(?<![\w.])[a-z]\w*(?![\w(])", value))
    choices: list[Callable[[], str]] = [lambda: f"{value} + 1", lambda: f"{value} - 1"]
    if numbers:
        choices += [
            lambda: _spliced(value, rng.choice(numbers), lambda t: str(int(t) + rng.choice([-2, -1, 1, 2])))
        ] * 3
    if names:
        symbols = sorted(set(re.findall(r"(?<![\w.])[a-z]\w*(?![\w(=])", draft.text())))
        choices += [lambda: _spliced(value, rng.choice(names), lambda t: rng.choice(symbols))]
        choices += [lambda: _spliced(value, rng.choice(names), lambda t: f"({t} + 1)")]
    if value.startswith("[") and "," in value:
        choices += [lambda: _swapped_items(rng, value)] * 3
    if "permute(" in value:
        choices += [lambda: re.sub(r"permute\((\w+), (\w+)\)", r"permute(\2, \1)", value)] * 3
    if re.fullmatch(r"[a-z]\w*", value):
        choices += [lambda: f"inverse({value})", lambda: f"sorted({value})"]
    if "inverse(" in value:
        choices += [lambda: re.sub(r"inverse\((\w+)\)", r"\1", value)] * 2
    if "sqrt(" in value:
        choices += [lambda: value.replace("sqrt(", "(", 1)] * 2
    return rng.choice(choices)()


def _spliced(value: str, match: re.Match[str], change: Callable[[str], str]) -> str:
    return value[: match.start()] + change(match[0]) + value[match.end() :]


def _swapped_items(rng: random.Random, value: str) -> str:
    if not value.endswith("]"):
        return value
    items = list(split_items(value[1:-1], ","))
    i, j = rng.sample(range(len(items)), 2)
    items[i], items[j] = items[j], items[i]
    return f"[{', '.join(item.strip() for item in items)}]"


def forget_attribute(rng: random.Random, draft: Draft) -> bool:
    """Drops an attribute whose value source and target demand, so that it may have any."""
    every = [call for side in draft.calls.values() for call in side]
    fixed = [a for c in every if any(each.startswith("@") for each in c.attributes) for a in c.attributes if "=" in a]
    if not fixed:
        return False
    gone = rng.choice(fixed)
    for call in every:
        if any(each.startswith("@") for each in call.attributes):
            call.attributes = [each for each in call.attributes if each != gone]
    return True


def change_source_attribute(rng: random.Random, draft: Draft) -> bool:
    call = _any(rng, draft, lambda c: any("=" in attribute for attribute in c.attributes), ("source", "given"))
    if call is None:
        return False
    at = rng.choice([i for i, attribute in enumerate(call.attributes) if "=" in attribute])
    name, value = call.attributes[at].split("=", 1)
    call.attributes[at] = f"{name.strip()}={_changed_expression(rng, draft, value.strip())}"
    return True


def change_constant(rng: random.Random, draft: Draft) -> bool:
    """Changes a number in a condition."""
    items = draft.items["where"]
    places = [
        (i, m) for i, item in enumerate(items) for m in re.finditer(r"(?<![\w.])\d+(\.\d+)?(e-?\d+)?(?![\w.])", item)
    ]
    if not places:
        return False
    at, match = rng.choice(places)
    number = float(match[0])
    other = (
        str(int(number) + rng.choice([-1, 1, 2]))
        if number == int(number)
        else repr(number * rng.choice([0.5, 1.01, 2]))
    )
    items[at] = items[at][: match.start()] + other + items[at][match.end() :]
    return True


def repeat_input(rng: random.Random, draft: Draft) -> bool:
    call = _any(rng, draft, lambda c: len(set(c.arguments)) > 1)
    if call is None:
        return False
    i, j = rng.sample(range(len(call.arguments)), 2)
    call.arguments[i] = call.arguments[j]
    return True


MUTATIONS: dict[str, Callable[[random.Random, Draft], bool]] = {
    "swapped inputs": swap_inputs,
    "another input": replace_input,
    "repeated input": repeat_input,
    "swapped results": swap_results,
    "dropped operator": drop_operator,
    "another operator": change_operator,
    "one operator for a variable": fix_operator,
    "one operator more": widen_operator,
    "dropped condition": drop_condition,
    "changed relation": loosen_condition,
    "changed constant": change_constant,
    "wider shape": widen_shape,
    "changed attribute": change_attribute,
    "changed source attribute": change_source_attribute,
    "forgotten attribute": forget_attribute,
}


def corrupt(text: str, rng: random.Random) -> tuple[str, str] | None:
    """Returns a rule with one change, or two in one case of five, and their names; None if the draw does not fit."""
    draft, done = Draft.read(text), []
    for _ in range(2 if rng.random() < 0.2 else 1):
        name = rng.choice(list(MUTATIONS))
        if MUTATIONS[name](rng, draft):
            done.append(name)
    changed = draft.text()
    if not done or changed == Draft.read(text).text():
        return None
    return changed, " + ".join(done)
