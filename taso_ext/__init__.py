"""The native tensor-graph substitution engine, with its import and export of ONNX models.

It uses no TensorFlow and learns nothing. An example:

    model = OnnxModel.load("model.onnx")
    state = State(model.graph, RuleSet.default(), CostModel.roofline("rtx2070"))
    state.step(*state.legal_actions()[0])
    onnx.save(model.export(state.graph), "smaller.onnx")
"""

try:
    import taso_ext._core  # noqa: F401  # it is compiled
except ModuleNotFoundError as error:
    raise ImportError(
        f"RLFlow's engine is not compiled here ({error}). Install the package: `pip install .` or, in a clone, `make "
        "install`.",
        name="taso_ext._core",
    ) from None
from taso_ext._core import (
    KNOWN_OPERATORS,
    NUM_DTYPES,
    NUM_FEATURE_OPERATORS,
    SYMMETRIC_OPERATORS,
    Cost,
    CostModel,
    FusionPlan,
    FusionProblem,
    Graph,
    GraphBuilder,
    Node,
    ReachedGraphs,
    RuleSet,
    SearchResult,
    State,
    Value,
    Waypoints,
    node_colours,
    search_beam,
    search_greedy,
    search_restarts,
    search_taso,
    take_work,
)
from taso_ext.errors import ModelError, ModelWarning, UnpricedError
from taso_ext.onnx_io.model import OnnxModel

__all__ = [
    "KNOWN_OPERATORS",
    "NUM_DTYPES",
    "NUM_FEATURE_OPERATORS",
    "SYMMETRIC_OPERATORS",
    "Cost",
    "CostModel",
    "FusionPlan",
    "FusionProblem",
    "Graph",
    "GraphBuilder",
    "ModelError",
    "ModelWarning",
    "Node",
    "OnnxModel",
    "ReachedGraphs",
    "RuleSet",
    "SearchResult",
    "State",
    "UnpricedError",
    "Value",
    "Waypoints",
    "node_colours",
    "search_beam",
    "search_greedy",
    "search_restarts",
    "search_taso",
    "take_work",
]
