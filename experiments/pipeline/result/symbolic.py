"""Keeps the symbolic dimensions of a model in OUT, as far as nothing in the rewritten graph depends on their sizes.

`--dim` gives the sizes at which rewrites are chosen. The same rewrites are then made at other sizes, in the same
places. If all these graphs are cases of one graph (`taso_ext.onnx_io.merging`), that graph is OUT, and the dimensions
stay symbolic. Its outputs are compared with those of the model at several sizes. A dimension for which this fails has
the size of `--dim` in OUT, and a sentence says why.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from experiments.pipeline.loading.cases import Cases, Plan, Sizes, in_words, quoted
from experiments.pipeline.loading.load import Loaded
from experiments.pipeline.result.export import Exported, export_verified, without
from experiments.runs.run import Run

STAGE, LEAVE_OUT_STAGE = "symbolic", "leave-out"


def keep_symbolic(run: Run, loaded: Loaded, exported: Exported) -> Exported:
    """Returns the result with symbolic dimensions in place of the sizes of `--dim`, as far as that is right."""
    sizes = run.config.bound_dims()
    if not sizes or run.config.symbolic == "fix":
        return exported
    if exported.changed and exported.unverified:
        note = f"The dimensions have the sizes of --dim in OUT ({in_words(sizes)}), because nothing can be verified."
        return dataclasses.replace(exported, symbolic_notes=(note,))
    with run.stage(STAGE, "keep symbolic dimensions", 1) as bar:
        cases = Cases(loaded.model, loaded.env.rules, run.config)
        if run.config.symbolic == "keep":
            exported = _without_dependent_bodies(exported, cases, sizes)
        if exported.changed:
            exported = _general(loaded, exported, cases)
        else:
            given = loaded.model.given
            exported = dataclasses.replace(exported, model=given, reference=given, symbolic=tuple(sizes))
        bar.update(1)
    return exported


def _plan(exported: Exported) -> Plan:
    return Plan(exported.record.best_actions, exported.record.action_names, exported.bodies)


def _general(loaded: Loaded, exported: Exported, cases: Cases) -> Exported:
    found = cases.general(_plan(exported))
    if found.model is None:
        return dataclasses.replace(exported, symbolic_notes=found.notes)
    model = cases.with_symbols(found.model, found.names)
    reason, places = cases.verified(model, found.names, loaded.inputs)
    if reason:
        notes = (*found.notes, *(cases.fixed(name, reason) for name in found.names))
        return dataclasses.replace(exported, symbolic_notes=notes)
    verb = "is" if len(found.names) == 1 else "are"
    note = f"{quoted(found.names)} {verb} symbolic in OUT; verified at {'; '.join(places)}."
    return dataclasses.replace(
        exported,
        model=model,
        reference=cases.with_sizes_but(found.names),
        symbolic=found.names,
        symbolic_notes=(note, *found.notes),
    )


def _without_dependent_bodies(exported: Exported, cases: Cases, sizes: Sizes) -> Exported:
    """Returns the result with only those rewritten bodies on which no dimension depends that could stay symbolic."""
    plan = _plan(exported)
    names = cases.general(dataclasses.replace(plan, bodies=())).names if plan.bodies else ()
    dependent = [
        body for body in plan.bodies if names and cases.depends(dataclasses.replace(plan, bodies=(body,)), names)
    ]
    if not dependent:
        return exported
    left = tuple(body for body in plan.bodies if body not in dependent)
    notes = [f"Rewrites of {body.place} were left out: {quoted(names)} could not stay symbolic." for body in dependent]
    model = cases.export(dataclasses.replace(plan, bodies=left), sizes)
    return dataclasses.replace(exported, model=model, bodies=left, body_notes=(*exported.body_notes, *notes))


def without_dependent(run: Run, loaded: Loaded, exported: Exported) -> Exported:
    """Returns the result without the rewrites on which a dimension depends that could stay symbolic without them."""
    sizes, record = run.config.bound_dims(), exported.record
    if not sizes or not record.best_actions or exported.unverified:
        return exported
    omitted = Counter[str]()
    with run.stage(LEAVE_OUT_STAGE, "leave out what depends on sizes", 1) as bar:
        cases = Cases(loaded.model, loaded.env.rules, run.config)
        names = cases.general(Plan()).names
        while names and (first := cases.first_dependent(Plan(record.best_actions, record.action_names), names)):
            omitted[record.action_names[first - 1]] += 1
            record = without(loaded, record, [first - 1])
        bar.update(1)
    if not omitted:
        return exported
    left_out = [
        f"Rule '{name}' was left out at {count} place{'s' * (count > 1)}: {quoted(names)} could not stay symbolic."
        for name, count in omitted.items()
    ]
    again = export_verified(run, loaded, record)
    return dataclasses.replace(again, left_out=(*exported.left_out, *left_out, *again.left_out))
