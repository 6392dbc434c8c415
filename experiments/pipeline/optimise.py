"""`rlflow optimise`: all stages, from the model to the written result; `rlflow train`: those up to a trained part."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord, best_record
from environment.costs.prices.settings import setting_of
from environment.costs.roofline import predicting_preset
from experiments.config.effect import note_of_unread, same_run
from experiments.config.run import RunConfig
from experiments.config.tree import as_mapping
from experiments.errors import UserError
from experiments.output_file import WrittenFile
from experiments.pipeline.bodies import with_bodies
from experiments.pipeline.clock.measure import STAGE as MEASURE
from experiments.pipeline.clock.measure import measure, measure_with_other_threads, runtime_of
from experiments.pipeline.clock.timings import restore_timings
from experiments.pipeline.learning.controller import TrainingFacts, is_clocked, journal_of, num_timed
from experiments.pipeline.learning.evaluate import train_and_evaluate
from experiments.pipeline.learning.rounds import STAGE, Learning, train_for_real
from experiments.pipeline.learning.trained import TrainedRun
from experiments.pipeline.loading.load import Loaded, load
from experiments.pipeline.loading.waypoints import restore_waypoints
from experiments.pipeline.result.export import STAGE as VERIFY
from experiments.pipeline.result.export import Exported, export_verified, why_unverifiable
from experiments.pipeline.result.symbolic import keep_symbolic, without_dependent
from experiments.pipeline.select import Selected, confirmed, select
from experiments.reports.page import extra
from experiments.reports.report import write_report
from experiments.reports.summary import print_training
from experiments.request import Request
from experiments.runs.directory import OUTPUT, RunDirectory, digest
from experiments.runs.manifest import make_manifest
from experiments.runs.progress import ProgressDisplay, warnings_noted
from experiments.runs.provenance import Provenance, stamped
from experiments.runs.result import MeasuredRatio, Result, count_rules, dream_alarms
from experiments.runs.rounds import EXPLOIT
from experiments.runs.run import Run, of_round
from experiments.runs.supervision import remember, remembered
from taso_ext.errors import ModelError
from taso_ext.files import remove_abandoned
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model

WORLD_MODEL, CONTROLLER = "world-model", "controller"
"""Parts of a run after which `rlflow train` stops."""
APART = ("accuracy", VERIFY, MEASURE)
"""Stages that are not among what it took to find and choose a result: the world model is measured, and the result is
replayed, compared with the model and measured.

Timings of the result itself are counted as `Result.final_timings`.
"""
EMPTIED = "emptied"
"""The run directories that a command has begun, so that --restart does not empty them again after a crash."""
SOURCES = {
    "collection": "(a) random collection",
    "recollection": "(a) random collection and recollection",
    "training": "(a) training in the real environment",
    "deterministic": "(b) controller, deterministic episode",
    "sampled": "(c) controller, sampled episodes",
    "random": "(d) random, as many episodes as (b) and (c)",
    "climb": "(e) a climb by the clock from the best of (a) to (d)",
}
"""The report's name for each kind of `EpisodeRecord`."""


def optimise(request: Request, progress: ProgressDisplay) -> tuple[Result, Path]:
    """Runs or resumes one optimisation and writes its result.

    Returns:
      The figures and the run directory.
    Raises:
      UserError, ModelError and similar errors: the input is bad; OUT was not written.
    """
    progress.note(f"Loading {request.model}")
    with warnings_noted(progress):
        request, loaded = _loaded(request, progress)
        run = begin_run(request, loaded, progress)
        evaluation, training = train_and_evaluate(run, loaded, request.trained)
    selected = select(run, loaded, evaluation, itertools.chain(*sources_of(evaluation).values()))
    exported = export_verified(run, loaded, selected.record)
    if run.config.symbolic == "keep":
        exported = without_dependent(run, loaded, exported)
    if exported.left_out:
        selected = Selected(exported.record, " ".join(filter(None, [*exported.left_out, selected.note])))
    by_clock = loaded.clock_chooses or is_clocked(run.config.controller)
    exported = keep_symbolic(run, loaded, with_bodies(run, loaded, exported, by_clock))
    measured, unmeasured = _measured(run, loaded, exported)
    if by_clock and (final := confirmed(selected, measured)) is not selected:
        exported = keep_symbolic(run, loaded, export_verified(run, loaded, final.record))
        selected, measured = final, None
    result = assemble_result(request, run, loaded, training, evaluation, selected, exported, measured, unmeasured)
    if measured is not None:
        result = dataclasses.replace(result, with_other_threads=measure_with_other_threads(run, loaded, exported))
    final_timings = run.directory.counts(only=[MEASURE]).end_to_end_timings
    result = dataclasses.replace(result, final_timings=final_timings)
    leave_report(run, result, evaluation, exported)
    assert request.output is not None
    remove_abandoned(request.output.parent)
    write_model(_with_provenance(run, exported, measured), request.output)
    written = WrittenFile.of(request.output, run.directory.path)
    run.directory.write_json(OUTPUT, dataclasses.asdict(written))
    leave_page(run, loaded)
    return result, run.directory.path


def leave_page(run: Run, loaded: Loaded) -> None:
    """Writes report.html from the files of a finished run; without the extra `report` a note says what is missing."""
    if not extra.is_installed():
        run.progress.note(extra.MISSING)
        return
    from experiments.reports.page.run_page import write_run_page

    path = write_run_page(run.directory, run.config, loaded.model, loaded.env.rules)
    run.progress.note(f"The page of the run: {path}")


def _loaded(request: Request, progress: ProgressDisplay) -> tuple[Request, Loaded]:
    """Loads the model, and notes settings without effect.

    A roofline prices the model if its kernels cannot be priced and the command does not name the costs.
    """
    if request.unread:
        progress.note(note_of_unread(request.config, request.unread))
    try:
        return request, load(request.model, request.config)
    except ModelError as error:
        costs = f"roofline:{predicting_preset(request.config.device)}"
        if not request.costs_are_auto or request.config.costs == costs:
            raise
        request = dataclasses.replace(request, config=dataclasses.replace(request.config, costs=costs))
        loaded = load(request.model, request.config)  # raises the same error if it is not about costs
        progress.note(f"Warning: the costs are those of {costs}, on paper, because kernels have no price: {error}")
        return request, loaded


def _with_provenance(run: Run, exported: Exported, measured: MeasuredRatio | None) -> CheckedModel:
    """Returns the model to write; one that was rewritten says in its metadata on which device that was measured."""
    if not exported.changed:
        return exported.model
    measured_on = str(setting_of(runtime_of(run.config))) if measured is not None else ""
    return stamped(exported.model, Provenance.of_this_program(run.config.costs, measured_on))


def _measured(run: Run, loaded: Loaded, exported: Exported) -> tuple[MeasuredRatio | None, str]:
    """Returns the end-to-end measurement of a rewritten model, or why there is none.

    ONNX Runtime may be able to run the model only without its optimisations, or not at all.
    """
    if not exported.changed:
        return None, ""
    try:
        return measure(run, loaded, exported), ""
    except ModelError as error:
        return None, str(error)


def train(request: Request, part: str, progress: ProgressDisplay) -> None:
    """Trains a part of a run, or continues its training, and prints a summary.

    `rlflow optimise` with the same options continues from there.

    Args:
      part: `WORLD_MODEL` or `CONTROLLER`. With recollection, all rounds are trained: in full for `CONTROLLER`; for
        `WORLD_MODEL`, the last one only so far.
    Raises:
      UserError, ModelError and similar errors: the input is bad, or the controller does not learn.
    """
    require_learning(request.config, part)
    progress.note(f"Loading {request.model}")
    with warnings_noted(progress):
        request, loaded = _loaded(request, progress)
        run = begin_run(request, loaded, progress)
        accuracy: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        best_real, shown = None, request.config.recollect.rounds
        if not request.config.uses_world_model:
            best = train_for_real(run, loaded)[1]
            best_real, shown = None if best is None else 100 * best.improvement, 0
        else:
            learning = Learning(run, loaded)
            rows = learning.round_rows() if part == CONTROLLER else [learning.round_row(each) for each in range(shown)]
            shown = learning.best_round() if part == CONTROLLER else shown
            accuracy = learning.accuracy(shown)
    updates = run.metrics.read(of_round(STAGE, shown)) if part == CONTROLLER else []
    plans = rows[shown]["plans"] if part == CONTROLLER and rows else None
    print_training(
        f"{request.model} · {part}",
        accuracy,
        rows,
        updates,
        best_real,
        dream_alarms(accuracy, plans, max(request.config.recollect.rounds, len(rows) - 1)),
        run.directory.counts(leaving_out=set_apart(rows)),
        str(run.directory.path),
    )


def require_learning(config: RunConfig, part: str) -> None:
    """Raises UserError if the settings leave nothing to train."""
    if not config.learns_in:
        raise UserError(
            f"rlflow train {part} is for a controller that learns, which --controller {config.controller} does not. "
            "Leave --controller out, or search with `rlflow optimise`."
        )
    if part == WORLD_MODEL and not config.uses_world_model:
        raise UserError(
            f"'{config.controller}' with --world {config.learns_in} has no world model to train. Leave --world out, or "
            "use `rlflow train controller`."
        )


def begin_run(request: Request, loaded: Loaded, progress: ProgressDisplay) -> Run:
    """Creates the run directory, or reopens that of the same model and configuration, and returns the run.

    Raises:
      UserError: the directory cannot be used; nothing was written.
    """
    config = request.config
    fingerprint = loaded.fingerprint
    if request.trained is not None:
        trained = TrainedRun.read(request.trained, config.environment.reward)
        trained.require(fingerprint)
        fingerprint = {**fingerprint, "controller": digest([as_mapping(trained.config), trained.fingerprint])}
    identity = {**as_mapping(config), "fingerprint": fingerprint}
    path = request.run_directory or Path("runs") / f"{loaded.name}-{config.controller}-{digest(identity, digits=8)}"
    start, cpu_start = time.perf_counter(), time.process_time()
    restart = request.restart and str(path.absolute()) not in remembered(EMPTIED)
    if loaded.num_candidates and (restart or not RunDirectory.holds_run(path)):
        reason = why_unverifiable(loaded, config.verify.num_inputs)
        if reason:
            progress.note(f"Warning: no result can be verified, because {reason}.")
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    setting = str(setting_of(runtime_of(config)))
    manifest = {**make_manifest(request.arguments, request.model, config.seed), "setting": setting}
    directory = RunDirectory.open(path, identity, manifest, restart=restart, agree=same_run)
    restore_waypoints(directory, loaded.model)
    restore_timings(directory, loaded)
    remember(EMPTIED, str(path.absolute()))
    spent = loaded.seconds + seconds, loaded.cpu_seconds + cpu_seconds
    directory.record("load", *spent, loaded.counts.timings(), finished=True)
    progress.note(f"{'Resuming' if directory.resumed else 'Run directory:'} {path}")
    return Run(config, directory, progress)


def assemble_result(
    request: Request,
    run: Run,
    loaded: Loaded,
    training: TrainingFacts,
    evaluation: Evaluation,
    selected: Selected,
    exported: Exported,
    measured: MeasuredRatio | None,
    unmeasured: str = "",
) -> Result:
    """Returns all figures of a run."""
    best = selected.record
    start, found = loaded.model.graph, loaded.env.replay(best.best_actions)
    sources = sources_of(evaluation)
    bests = {kind: record for kind, records in sources.items() if (record := best_record(records))}
    played = itertools.chain(*sources.values())
    episodes = {kind: len(records) for kind, records in sources.items()}
    if evaluation.collection is not None:
        episodes[evaluation.collection.kind] = training.num_collected
    return Result(
        model=request.model,
        controller=run.config.controller,
        world=run.config.learns_in,
        costs=run.config.costs,
        seed=run.config.seed,
        before=loaded.figures(start, best.costs_ms[0], best.noise_at(0)),
        after=loaded.figures(found, best.best_cost_ms, best.noise_at(best.best_step)),
        improvements={SOURCES[kind]: 100 * record.improvement for kind, record in bests.items()},
        episodes={SOURCES[kind]: count for kind, count in episodes.items()},
        rules_applied=count_rules(best.action_names[: len(best.best_actions)]),
        rules_in_subgraphs=count_rules([name for plan in exported.bodies for name in plan.all_rule_names()]),
        subgraph_notes=list(exported.body_notes),
        symbolic=list(exported.symbolic),
        symbolic_notes=list(exported.symbolic_notes),
        found_by=SOURCES[best.kind],
        stop_reason=training.stop_reason,
        timed=num_timed(journal_of(run)),
        counts=run.directory.counts(leaving_out=set_apart(training.rounds)),
        candidates=loaded.num_candidates,
        accuracy=training.accuracy,
        rounds=training.rounds,
        played=training.played,
        largest_difference=exported.largest_difference,
        tolerance=exported.tolerance,
        verified_in=exported.runs_in,
        unverified=exported.unverified,
        measured=measured,
        by_clock=evaluation.deterministic.chosen is not None,
        bytes_before=loaded.model.source.file_bytes,
        bytes_after=exported.model.file_bytes,
        unmeasured=unmeasured,
        stage_seconds=run.directory.stage_seconds(),
        peak_memory_bytes=run.directory.peak_memory_bytes(),
        graph_hash=found.hash,
        raised_opset=_raised_opset(loaded, exported),
        selection=selected.note,
        noise={SOURCES[kind]: 100 * record.improvement_noise for kind, record in bests.items()},
        reward_noise=max((noise for record in played for noise in record.reward_noise), default=0.0),
        ratio_noise=best.improvement_noise,
        cut_off=best.cut_off,
    )


def set_apart(rounds: Sequence[object]) -> tuple[str, ...]:
    """Returns the stages that do not count as what a result took, because nothing of it depends on them.

    If there are several rounds, the plans that are tried in reality choose the one that plays.
    """
    return APART if len(rounds) > 1 else (*APART, EXPLOIT)


def _raised_opset(loaded: Loaded, exported: Exported) -> str:
    before, after = loaded.model.opset, exported.model.opset
    return f"{before} to {after}" if exported.changed and after > before else ""


def sources_of(evaluation: Evaluation) -> dict[str, tuple[EpisodeRecord, ...]]:
    """Returns the episodes by kind, for every part that has any."""
    before = evaluation.collection
    parts = {
        **({} if before is None else {before.kind: (before,)}),
        "deterministic": (evaluation.deterministic,),
        "sampled": evaluation.sampled,
        "random": evaluation.random,
    }
    return {kind: records for kind, records in parts.items() if records}


def leave_report(run: Run, result: Result, evaluation: Evaluation, exported: Exported) -> None:
    """Writes the action log, the figures, the plots and the report, and marks the run as complete."""
    best = exported.record
    steps = best.action_steps[: len(best.best_actions)]
    # Within a step that carries a rule out everywhere, only the last rewrite has a cost.
    ends = [following != step for step, following in itertools.pairwise([*steps, None])]
    log = [
        {
            "rule": rule,
            "location": location,
            "rule_name": best.rule_names[step],
            "step": step,
            # A NO-OP that was left out may have had the last graph measured.
            "cost_ms": (best.best_cost_ms if step == steps[-1] else best.costs_ms[step + 1]) if is_last else None,
        }
        for (rule, location), step, is_last in zip(best.best_actions, steps, ends, strict=True)
    ]
    bodies = [plan.to_json() for plan in exported.bodies]
    log_of_run = {"initial_cost_ms": best.costs_ms[0], "actions": log, "subgraphs": bodies}
    run.directory.write_json("actions.json", log_of_run)
    run.directory.write_json("result.json", result.to_json())
    write_report(run.directory.path, result, evaluation, best)
    run.directory.mark_done()
