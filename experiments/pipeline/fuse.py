"""`rlflow fuse`: searches a fusion plan of a model and writes it as annotations and fused operators."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.fusion.run import Predictor, SearchConfig, SearchResult
from controller.fusion.search import METHODS, search
from environment.fusion import DEVICES, FusionGraph
from environment.fusion.export import annotated, with_fused_operators
from experiments.config.run import RunConfig
from experiments.errors import UserError, nearest_match, require_at_least
from experiments.output_file import require_writable
from experiments.pipeline.loading.load import find_model
from experiments.runs.directory import digest
from experiments.runs.progress import ProgressDisplay
from experiments.runs.run import import_tensorflow
from taso_ext import OnnxModel
from taso_ext.onnx_io.model_file import write_model

QUERIES = 4
"""Queries for each decision, if no budget is given."""
SEARCH = "sweeps"
STATES = Path("runs/fuse")
"""The folder of the states of searches that were interrupted; a search that ends removes its own."""


@dataclass(frozen=True)
class Fused:
    """What was found.

    Attributes:
      output: the file that was written.
      device: preset of the prices.
      search, queries: the method, and the prices that it asked for.
      decisions, kernels: configurable tensors of the model, and kernels of the plan.
      compiler_ms, planned_ms: predicted cost of the compiler's plan and of this one.
      fused_operators: operators of ONNX Runtime that stand for groups.
    """

    output: str
    device: str
    search: str
    queries: int
    decisions: int
    kernels: int
    compiler_ms: float
    planned_ms: float
    fused_operators: int

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """Returns what to print."""
        saved = 100 * (1 - self.planned_ms / self.compiler_ms)
        return [
            f"Predicted for {self.device}: {self.compiler_ms:.4f} ms with the compiler's plan, {self.planned_ms:.4f} "
            f"ms with this one ({saved:.2f} % less), after {self.queries:,} queries by {self.search}.",
            f"{self.decisions:,} decisions, {self.kernels:,} kernels, {self.fused_operators:,} fused operators of ONNX "
            "Runtime.",
            f"Wrote {self.output}. The prices are a model's: rlflow check MODEL {self.output} proves and times it.",
        ]


def fuse(
    model: str,
    output: Path,
    config: RunConfig,
    progress: ProgressDisplay,
    *,
    device: str,
    method: str = SEARCH,
    budget: int | None = None,
    advantages: Path | None = None,
    force: bool = False,
) -> Fused:
    """Searches a plan from the compiler's, and writes the model with it; an interrupted search goes on.

    Args:
      model: path of an ONNX file, or zoo name.
      output: the file to write.
      config: settings, of which dims, clean and seed matter here.
      device: preset of the prices.
      method: a search of `controller.fusion.search`.
      budget: queries; None: QUERIES for each decision.
      advantages: the trained model that `guided` needs.
      force: whether `output` may be overwritten.
    Raises:
      UserError, ModelError: the input is bad; the message says what is wrong and what to do.
      SearchStateError: the state that an interrupted search has left cannot be used.
      StoredControllerError: `advantages` cannot be read.
    """
    for name, known, kind in ((device, DEVICES, "fusion device"), (method, tuple(METHODS), "fusion search")):
        if name not in known:
            raise UserError(f"No {kind} is called '{name}'. {nearest_match(name, known)}")
    if budget is not None:
        require_at_least(1, budget=budget)
    require_writable(output, force=force)
    predictor = _predictor(method, advantages)
    loaded = OnnxModel.load(find_model(model).build(), dims=config.bound_dims(), clean=config.clean)
    try:
        graph = FusionGraph.of(loaded.graph, device, model)
    except ValueError as error:  # there is nothing to decide
        raise UserError(f"{error}") from error
    limits = SearchConfig(budget=budget or 1 + QUERIES * len(graph.configurable))
    state = _state_path(graph, method, limits, config.seed, advantages)
    title = f"fusion plans by {method}"
    found = shown_search(progress, title, method, graph, limits, config.seed, predictor, state)
    exported, fused_operators = with_fused_operators(annotated(loaded, graph, found.configuration))
    write_model(exported, output)
    return Fused(
        output=str(output),
        device=device,
        search=method,
        queries=found.queries,
        decisions=len(graph.configurable),
        kernels=len(graph.kernels(found.configuration)),
        compiler_ms=found.start_ms,
        planned_ms=found.best_ms,
        fused_operators=fused_operators,
    )


def shown_search(
    progress: ProgressDisplay,
    title: str,
    method: str,
    graph: FusionGraph,
    limits: SearchConfig,
    seed: int,
    predictor: Predictor | None,
    state: Path,
) -> SearchResult:
    """Searches as a stage that shows the queries; for the other arguments see `controller.fusion.search.search`."""
    with progress.stage(title, limits.budget) as bar:
        return search(
            method,
            graph,
            limits,
            seed=seed,
            predictor=predictor,
            on_progress=lambda done, _, figures: bar.update(done, **figures),
            state=state,
        )


def _state_path(graph: FusionGraph, method: str, limits: SearchConfig, seed: int, advantages: Path | None) -> Path:
    """Returns where the state of an interrupted search is kept: the same for the same problem and settings alone."""
    columns = {**graph.problem.tensors(), **graph.problem.edges()}
    problem = hashlib.sha256(b"".join(columns[name].tobytes() for name in sorted(columns))).hexdigest()
    model = None if advantages is None else hashlib.sha256(advantages.read_bytes()).hexdigest()
    settings = [problem, graph.problem.device, method, dataclasses.asdict(limits), seed, model]
    return STATES / f"{method}-{digest(settings)}.npz"


def _predictor(method: str, advantages: Path | None) -> Predictor | None:
    """Returns the predictor of guided search.

    Raises:
      UserError: `guided` has no model, or another search has one.
    """
    if (method == "guided") != (advantages is not None):
        raise UserError(
            "--search guided and --advantages FILE belong together: guided search follows a trained model of "
            "advantages, such as rlflow reproduce fusion-table1 leaves in its folder (units/model-*.npz), and no other "
            "search reads one."
        )
    if advantages is None:
        return None
    import_tensorflow()
    from controller.fusion.advantages import AdvantageModel

    return AdvantageModel.load(advantages).scores
