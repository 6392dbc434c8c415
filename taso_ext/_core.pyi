"""Typed stub of the native engine (source: taso_ext/src)."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

KNOWN_OPERATORS: tuple[str, ...]
SYMMETRIC_OPERATORS: tuple[str, ...]  # whose operands may be permuted
NUM_FEATURE_OPERATORS: int
NUM_DTYPES: int

Content = float | str  # of all elements; or "identity" (in the last two dims), "identity-kernel", "averaging-kernel",
# "nonzero" (and finite) or "finite"
Attribute = int | float | str | bytes | list[int] | list[float] | list[str]

class Value:
    """A tensor: a graph input, a weight (`handle` is its content hash) or the result of a node."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> int: ...
    @property
    def dims(self) -> list[int] | None: ...
    @property
    def handle(self) -> str | None: ...
    @property
    def weight_only(self) -> bool: ...
    @property
    def content(self) -> Content | None:
        """What is known of a weight's elements; None for nothing."""

class Node:
    """One operator in normal form; `weight_only` ones are folded at export."""

    @property
    def domain(self) -> str: ...
    @property
    def op_type(self) -> str: ...
    @property
    def attributes(self) -> dict[str, Attribute]: ...
    @property
    def inputs(self) -> list[int]: ...
    @property
    def outputs(self) -> list[int]: ...
    @property
    def name(self) -> str: ...
    @property
    def weight_only(self) -> bool: ...
    @property
    def site(self) -> int: ...
    @property
    def origin(self) -> str:
        """32 hex digits: the place in the start graph, or the rewrite that made it; survives all rewrites elsewhere."""
    @property
    def stateful(self) -> bool:
        """Whether it is random or stateful, so that it equals no other node."""

class Cost:
    """What one inference costs under a cost model."""

    @property
    def ms(self) -> float: ...
    @property
    def flops(self) -> float: ...
    @property
    def memory_bytes(self) -> float: ...
    @property
    def kernel_launches(self) -> int: ...

class CostModel:
    """What operators cost.

    Raises:
      ValueError: a device that is not among `devices()`.
    """

    @staticmethod
    def roofline(device: str) -> CostModel: ...
    @staticmethod
    def learned(
        name: str,
        device: str,
        price_operators: Callable[[Graph, list[int]], npt.ArrayLike],
        signatures: npt.NDArray[np.uint64],
        costs: npt.NDArray[np.float64],
        opset: int,
        most: tuple[float, float] = ...,
    ) -> CostModel:
        """Costs by neighbourhood signature, learned from the graphs that are met.

        Searches use one thread with these. What rewrites cost is predicted from what operators of their kind have cost,
        or, of kinds never met, in proportion to the roofline of `device`.

        Args:
          price_operators: [n, 3] (ms, bytes, launches) of n run-time operators of a graph, given their positions in its
            order; `taso_ext.UnpricedError` where no price can be had: searches leave that graph alone.
          signatures: [K] known already (`Graph.neighbourhood_signatures`).
          costs: [K, 3] of these.
          opset: of the model that the graphs are of.
          most: operations and moved bytes, by the roofline of `device`, of the largest graph that has a price; beyond
            it there is an `UnpricedError`, whatever is known of the operators.
        """
    @staticmethod
    def devices() -> list[str]: ...
    @property
    def name(self) -> str: ...
    @property
    def looks_around(self) -> bool:
        """Whether an operator's price depends on those near it, so that an operator alone has none."""

class Graph:
    """An immutable graph of tensor operators."""

    @property
    def inputs(self) -> list[int]: ...
    @property
    def outputs(self) -> list[int]: ...
    def values(self) -> dict[int, Value]: ...
    def nodes(self) -> list[Node]:
        """Live nodes, producers first."""
    @property
    def hash(self) -> str:
        """32 hex digits; equal for equal graphs whatever the order of their nodes."""
    @property
    def num_runtime_nodes(self) -> int: ...
    @property
    def weights_mb(self) -> int:
        """Megabytes of the weights that run-time operators read, as the nearest of some sizes from 1 to 512."""
    def neighbourhood_signatures(self, opset: int, distance: int = 3) -> npt.NDArray[np.uint64]:
        """[N], one for each run-time operator, in order: equal where operators and those near them are.

        Args:
          opset: of the model that the graph is of: runtimes know other fusions in others.
          distance: of the farthest operators that count, in operators, in either direction.
        """
    def cost(self, model: CostModel) -> Cost: ...
    def node_ms(self, model: CostModel) -> npt.NDArray[np.float64]:
        """[N], the run time of each of `nodes()`; weight-only ones take none."""

class FusionProblem:
    """The tensors of a graph, who reads them how, and which of them a reader's kernel can compute itself.

    A configuration is uint8 [N], a decision for each tensor; it is 1 where a tensor is fused into its readers, and may
    be so for configurable tensors only. Tensors are numbered in topological order. Views have no tensor of their own.
    Rules and prices are those of XLA's compiler for GPUs (taso_ext/src/fusion).

    Raises:
      ValueError: a device that is not among `devices()`.
    """

    def __init__(self, graph: Graph, device: str) -> None: ...
    @staticmethod
    def devices() -> list[str]: ...
    def __len__(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def constants(self) -> dict[str, float]:
        """The figures of the device that prices depend on."""
    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of the tensors, each [N].

        `kind` (0 external, 1 loop, 2 transpose, 3 window, 4 reduction, 5 library, 6 opaque, 7 projection), `position`
        of the operator in `Graph.nodes()` (-1 for externals), `output` (which of its results), `operator` (its id, one
        id for all unknown ones), `is_output`, `configurable`, `expensive`, `uses`, `elements`, `bytes`, `flops`,
        `loop_elements`.
        """
    def edges(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of the edges [E], by reader: `producer`, `reader`, `demanded`, `elementwise`, `absorbable`."""
    def configurable(self) -> npt.NDArray[np.int32]:
        """The configurable tensors, ascending."""
    def neighbourhood(self, tensor: int, distance: int) -> npt.NDArray[np.int32]:
        """Configurable tensors at most `distance` edges away, the tensor itself first if it is configurable."""
    def compiler_default(self) -> npt.NDArray[np.uint8]:
        """The configuration that the rules of XLA's greedy producer-consumer fusion give."""
    @property
    def queries(self) -> int:
        """How many prices were asked for, by all plans of this problem. Nothing resets it."""

class FusionPlan:
    """A configuration of a problem, with its kernels and its cost.

    Raises:
      ValueError: a configuration of another size, or a decision for a tensor that is not configurable.
    """

    def __init__(self, problem: FusionProblem, configuration: npt.ArrayLike) -> None: ...
    def configuration(self) -> npt.NDArray[np.uint8]: ...
    def cost_ms(self) -> float:
        """The sum of the prices of all kernels. Counts one query."""
    def deltas_ms(self, tensors: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """For each of these tensors, the cost with its decision flipped minus the cost without. One query each."""
    def flip(self, tensors: npt.ArrayLike) -> None:
        """Flips decisions, one after the other. Counts no query."""
    def gibbs(
        self, sweeps: int, temperature_ms: float, seed: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Gibbs sampling, p(decision | rest) proportional to exp(-cost / temperature); one query a visit.

        Returns:
          (tensor, delta in ms, whether it was flipped), a row for each visit in order.
        """
    def kernels(self) -> list[tuple[list[int], list[int], float]]:
        """(members, loaded tensors, price in ms) of each kernel; the first member is the one that is written."""

class GraphBuilder:
    """Builds a graph once; every method raises ValueError for malformed input.

    dtypes are `onnx.TensorProto.DataType`, 0 for what is not a tensor; dims None means an unknown shape; an input of -1
    is an absent optional input; a bytes attribute is the digest of something the engine only carries along.
    """

    def input(self, name: str, dtype: int, dims: Sequence[int] | None) -> int: ...
    def weight(
        self, name: str, handle: str, dtype: int, dims: Sequence[int], content: Content | None = None
    ) -> int: ...
    def node(
        self,
        domain: str,
        op_type: str,
        attributes: Mapping[str, Attribute],
        inputs: Sequence[int],
        outputs: Sequence[tuple[str, int, Sequence[int] | None]],
        name: str = "",
        stateful: bool = False,
    ) -> list[int]: ...
    def output(self, value: int) -> None: ...
    def build(self) -> Graph: ...

class RuleSet:
    """Rewrite rules read from text (taso_ext/rules/README.md).

    Raises:
      ValueError: a file that cannot be read or parsed; `file:line:column: ` what was expected and what came.
      IndexError: from methods that take the index of a rule, if there is no such rule.
    """

    @staticmethod
    def load(path: str, proven: bool = True) -> RuleSet:
        """Reads a file; a rule whose proof is missing, malformed or stale is refused unless `proven` is False."""
    @staticmethod
    def parse(text: str, file: str = "<text>") -> RuleSet:
        """Reads a text, whatever its proofs; `require_proof` judges them. Errors name it `file`."""
    @staticmethod
    def default(optional: Sequence[str] = ...) -> RuleSet:
        """The rule files of `taso_ext/rules`, in alphabetical order; each rule must have its proof.

        Optional families (`partial`) are left out but for those that are named; ValueError for an unknown name.
        """
    @property
    def names(self) -> list[str]: ...
    @property
    def fingerprint(self) -> str:
        """32 hex digits of all rules in their order; comments and proofs do not count."""
    def __len__(self) -> int: ...
    def text(self, rule: int) -> str:
        """As it stands in its file, up to the next rule."""
    def opset(self, rule: int) -> int:
        """First opset that has the operators which the target adds to those of the source; 1 where all do."""
    def domains(self, rule: int) -> set[str]:
        """Domains of these operators; "" is ONNX's own."""
    def restricted(
        self, *, max_opset: int | None = None, domains: Sequence[str] | None = None, names: Set[str] | None = None
    ) -> RuleSet:
        """The rules with these names that need no newer opset and no other domain; ValueError if none is left."""
    def place(self, rule: int) -> tuple[str, int, int]:
        """File ("<text>" for `parse`), line and column of its name."""
    def proof(self, rule: int) -> str:
        """What follows the word `proof`, as it stands in the file; "" where there is none."""
    def proof_place(self, rule: int) -> tuple[str, int, int]:
        """File, line and column of the word `proof`; where there is none, `place`."""
    def digest(self, rule: int) -> str:
        """16 hex digits of the rule without comments and proof; a proof that records others is stale."""
    def clauses(self, rule: int) -> dict[str, str]:
        """Contents of the proof's clauses by name. Raises ValueError for a proof of another form."""
    def require_proof(self, rule: int) -> None:
        """Raises ValueError where the proof is missing, malformed or stale."""
    def seal(self, rule: int, evidence: str) -> str:
        """16 hex digits that a proof with these clauses has to record as `digest(...)`."""
    def instance(self, rule: int, seed: int, stretch: int = 0, dtypes: Mapping[str, int] = ...) -> Graph | None:
        """A random graph in which the rule applies; None when none was found. `stretch` is added to extents above 1.

        `dtypes` gives element types (TensorProto.DataType) by the name of a variable. Other variables have the type
        that a condition `dtype(x) == "..."` demands, or float.
        """
    def misfit(self, rule: int) -> tuple[str, int, int] | None:
        """Place of the first statement of the source that no shapes fit; None where all fit."""

class Waypoints:
    """Graphs, found elsewhere, that compute what a start graph computes, and to which a step may go at once.

    All states that are given the same object share it. That a waypoint computes the same is what its finder says; no
    rule has proved it.
    """

    def __init__(self) -> None: ...
    def add(self, graph: Graph) -> int:
        """Returns the number of a graph; one that is there already keeps its number."""
    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> Graph:
        """Raises IndexError if there is no such waypoint."""

class State:
    """A graph, its legal rewrites and a stable location for each; `step` moves on to another one.

    Copies are free: they share all graphs until one of them steps.

    Args:
      max_locations: L, the number of locations per rule; 0 means the number of run-time nodes of the graph. Matches
        beyond L are counted in `truncated_matches`.
      waypoints: those of the graph; None: there are none yet.
    """

    def __init__(
        self,
        graph: Graph,
        rules: RuleSet,
        cost_model: CostModel,
        max_locations: int = 0,
        waypoints: Waypoints | None = None,
    ) -> None: ...
    def copy(self) -> State: ...
    @property
    def waypoints(self) -> Waypoints: ...
    @property
    def waypoint_rule(self) -> int:
        """R + 1: as `step(waypoint_rule, number)` goes to a waypoint. R is NO-OP's number in environments."""
    def is_legal(self, rule: int, location: int) -> bool: ...
    def step(self, rule: int, location: int) -> None:
        """Applies a rewrite, or goes to a waypoint. Raises ValueError when that is not legal here.

        It is not legal to go to a waypoint with other inputs or outputs than the graph has.
        """
    def step_everywhere(self, rule: int) -> npt.NDArray[np.int32]:
        """Carries out all matches that a rule has now, as one step; returns the locations of the single rewrites [n].

        They are carried out in the order of their locations. Those whose operators are gone when their turn comes are
        left out, and new ones are not followed. Single steps at the returned locations lead to the same state. Raises
        ValueError if the rule has fewer than two matches.
        """
    def undo(self) -> None:
        """Takes the last step back; the last 256 can be. Raises ValueError when there is none."""
    def rematched(self) -> State:
        """The same state with every match looked for from scratch instead of carried along; for tests and timing."""
    @property
    def graph(self) -> Graph: ...
    @property
    def cost(self) -> Cost: ...
    @property
    def hash(self) -> str: ...
    @property
    def num_locations(self) -> int: ...
    @property
    def truncated_matches(self) -> int: ...
    def rule_mask(self) -> npt.NDArray[np.bool_]:
        """[R], rules with a legal location."""
    def location_mask(self) -> npt.NDArray[np.bool_]:
        """[R, L]."""
    def location_counts(self) -> npt.NDArray[np.int64]:
        """[R]."""
    def legal_actions(self) -> npt.NDArray[np.int32]:
        """[C, 2], (rule, location) in ascending order."""
    def candidates(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """(rule [C], location [C], cost_ms [C]): the cost after each legal rewrite, priced by its delta."""
    def everywhere_mask(self) -> npt.NDArray[np.bool_]:
        """[R], rules with at least two legal locations, which `step_everywhere` can carry out."""
    def everywhere_candidates(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """(rule [E], location [E], cost_ms [E]): the cost after each rule of `everywhere_mask`; locations are L.

        Each is carried out on a copy. A learned cost model predicts these costs as it does for single rewrites.
        """
    def features(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """(nodes [N, F], edges [E, D], links [E, 2]); columns in environment/substitution/features.py."""
    def matched_nodes(self) -> npt.NDArray[np.int32]:
        """[n, 2], the nodes that each of `legal_actions()` rewrites: its index, and a row of the nodes of `features`.

        Pairs are in ascending order. Nodes that are computed from weights alone have no row and are left out.
        """
    def candidate_graphs(
        self, reach: int, most: int
    ) -> tuple[
        npt.NDArray[np.float32],
        npt.NDArray[np.int64],
        npt.NDArray[np.float32],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
    ]:
        """(nodes [N, 6], colours [N], edges [E, 4], links [E, 2], parts [P, 2], counts [P]): all graphs a rewrite away.

        Graph 0 is the present one, and graph c + 1 the one after the c-th of `legal_actions()`, of which the first
        `most` are listed. Nodes have the same colour (Weisfeiler and Leman 1968), in this state and in others, where
        they see the same over `reach` edges: equal nodes that read along equal edges from nodes that do so themselves.
        Each colour is one row of `nodes`, with the edges that lead to one of its nodes. `parts` are pairs of a graph
        and such a row, in ascending order, and `counts` says how many of these nodes graph 0 has, or how many more
        another graph has than graph 0. Columns of edges: extents over 4096, the last one first; of nodes: operator id,
        log time of the operator alone, and the sum of these extents over the weights that it reads. Links are
        (producer, consumer), and edges are in the order of their consumers. Raises ValueError for negative arguments.
        """
    def candidate_features(
        self, max_candidates: int, one_hot_rules: bool = True, costs: bool = False, everywhere: bool = False
    ) -> npt.NDArray[np.float32]:
        """[max_candidates + 1, F]: NO-OP, the rules of `everywhere_mask` if asked for, `legal_actions()`, then zeros.

        Columns are those of `environment.substitution.wrappers.Candidates`. Raises ValueError when max_candidates is
        not in [1, 2^20].
        """

class PlacementSimulator:
    """Simulates one step of T tasks on D devices, event by event (taso_ext/src/placement/simulator.hpp).

    Args:
      memory_bytes: [D].
      channel_bytes_per_ms: [C], one direction of a link each.
      latency_ms: [D, D], from a device (row) to another.
      routes: D · D lists of the channels that a copy occupies, in the order of `latency_ms`.
      task_ms: [T, D]; inf where a device cannot run a task.
      workspace_bytes: [T], held while a task runs, beside what it reads and returns.
      storage: [V], by tensor: 0 computed by the task `owner`, 1 fed and on the device `owner`, 2 a parameter on the
        device of the task `owner`, 3 a parameter replicated on each device that reads it.
      owner, bytes, state_bytes, kept: [V]; `state_bytes` are the optimiser's, `kept` tensors are held to the end.
      reader_begin: [V + 1]; tensor v is read by the tasks `readers[reader_begin[v]:reader_begin[v + 1]]`.
    Raises:
      ValueError: numbers are out of range, a route is missing, or the tasks form a cycle.
    """

    def __init__(
        self,
        *,
        memory_bytes: npt.ArrayLike,
        channel_bytes_per_ms: npt.ArrayLike,
        latency_ms: npt.ArrayLike,
        routes: Sequence[Sequence[int]],
        task_ms: npt.ArrayLike,
        workspace_bytes: npt.ArrayLike,
        storage: npt.ArrayLike,
        owner: npt.ArrayLike,
        bytes: npt.ArrayLike,
        state_bytes: npt.ArrayLike,
        kept: npt.ArrayLike,
        reader_begin: npt.ArrayLike,
        readers: npt.ArrayLike,
    ) -> None: ...
    def run(
        self, placement: npt.ArrayLike, priorities: npt.ArrayLike = ...
    ) -> tuple[float, npt.NDArray[np.float64], npt.NDArray[np.float64], float, int]:
        """(ms, busy_ms [D], peak_bytes [D], copied bytes, copies).

        Args:
          placement: [T], the device of each task.
          priorities: [T], of which the smallest waiting one runs first; empty: first in, first out.
        """
    def trace(
        self, placement: npt.ArrayLike, priorities: npt.ArrayLike = ...
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """(begin_ms [T], end_ms [T], copies [K, 3]: tensor, from, to; their begin and end in ms [K, 2])."""
    def run_all(self, placements: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(ms [N], peak_bytes [N, D]) of placements [N, T]."""

class ReachedGraphs:
    """The graphs that actions lead to from a start graph, each with a number; the start graph has number 0.

    What is done here counts as no step (`take_work`): nothing is asked for a price. States and masks that are not held
    are found again when they are asked for. A graph that is met again by the same
    action mostly has the same number.

    Args:
      start: the state of the start graph, which is copied.
      actions: [A, 2], (rule, location); the location `num_locations` stands for all matches of a rule.
      signatures: [K], of operators with those near them (`Graph.neighbourhood_signatures`), at distances up to
        `distance`.
      weights: [K], theirs; other signatures have the weight 0.
      opset: of the model that the graphs are of.
      per_total: weights of a graph's FLOPs, bytes and kernel launches in all (`Cost`).
      memory_bytes: of the states and masks that are held, about.
    Raises:
      ValueError: an action names no rule or no location, or signatures are without weights.
    """

    def __init__(
        self,
        start: State,
        actions: npt.ArrayLike,
        signatures: npt.ArrayLike = ...,
        weights: npt.ArrayLike = ...,
        opset: int = 0,
        distance: int = 0,
        per_total: tuple[float, float, float] = ...,
        memory_bytes: int = ...,
    ) -> None: ...
    def step(
        self, graphs: npt.ArrayLike, actions: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """(masks [B, A + 1], numbers [B]) of the graphs after an action in each of B rows.

        The action A changes nothing and is always legal. Raises ValueError if a graph or an action is unknown, or an
        action not legal.
        """
    def legal(self, graphs: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """[B, A + 1], the legal actions of graphs. Raises ValueError if one is unknown."""
    def state(self, graph: int) -> State:
        """A graph's state, without waypoints. Raises ValueError if the graph is unknown."""
    def weights(self, graphs: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """[B], the sums of the weights of the graphs' operators and totals. Raises ValueError if a graph is unknown."""

class SearchResult:
    """What a search found.

    Attributes:
      actions: [(rule, location)] from the start to the best graph.
      stop_reason: "exhausted" (nothing is left to try), "local optimum" (greedy), "budget", "time", "memory" or
        "interrupted".
      expanded: graphs all of whose rewrites were priced.
      generated: rewrites priced.
      duplicates: rewrites that led to a graph seen before.
      unpriced: rewrites left alone, since no price of their graph could be had.
      evicted: rewrites given up, the dearest first, to stay within the memory.
      rebuilt: graphs made again from an ancestor because they had been given up. With several threads this and
        `memory_bytes` depend on their timing, the rest does not.
      memory_bytes: most that was held at a time.
      rules: indices of those that led to some graph.
    """

    @property
    def actions(self) -> list[tuple[int, int]]: ...
    @property
    def cost_ms(self) -> float: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def expanded(self) -> int: ...
    @property
    def generated(self) -> int: ...
    @property
    def duplicates(self) -> int: ...
    @property
    def unpriced(self) -> int: ...
    @property
    def evicted(self) -> int: ...
    @property
    def rebuilt(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def rules(self) -> set[int]: ...

Progress = Callable[[int, float], bool | None]

def node_colours(
    nodes: npt.ArrayLike, edges: npt.ArrayLike, links: npt.ArrayLike, rounds: int
) -> npt.NDArray[np.int64]:
    """Weisfeiler-Leman colours [N] of nodes [N, F] with edges [E, D] that lead both ways between links [E, 2].

    Nodes have the same colour, in all graphs, where a network that passes values along edges in so many rounds gives
    them the same values. Raises ValueError if the shapes do not fit, or a link names no node.
    """

# All searches share these limits; but for `seconds`, they give the same result on every machine and with any number of
# threads. `budget`: most graphs expanded. `seconds`: 0 means no limit. `progress`: called some twenty times a second
# and whenever the best cost has fallen, with (graphs expanded, best cost in ms); returning False interrupts. A limit
# that allows nothing raises ValueError.

def take_work() -> tuple[int, int]:
    """What was asked of the engine in this process since the last call: (steps, rewrites whose cost was predicted).

    A step is `State.step` or `State.step_everywhere`, whoever calls it, and each graph that a search expands. Rewrites
    are those of `State.candidates`, `everywhere_candidates`, `candidate_graphs` and `candidate_features(costs=True)`,
    and those that a search has `generated`.
    """

def search_taso(
    state: State,
    alpha: float = 1.05,
    budget: int = 1000,
    *,
    seconds: float = 0.0,
    memory_bytes: int = 536870912,
    threads: int = 1,
    progress: Progress | None = None,
) -> SearchResult:
    """Cost-based backtracking: the cheapest graph of a queue is expanded next.

    Args:
      alpha: rewrites up to alpha times the best cost join the queue.
    Raises:
      ValueError: alpha below 1.
    Source: Jia et al. 2019, "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph
      Substitutions", algorithm 1.
    """

def search_greedy(
    state: State,
    budget: int = 1000,
    *,
    seconds: float = 0.0,
    memory_bytes: int = 536870912,
    threads: int = 1,
    progress: Progress | None = None,
) -> SearchResult:
    """Steepest descent: the cheapest rewrite, as long as it lowers the cost."""

def search_beam(
    state: State,
    width: int = 16,
    everywhere: bool = False,
    budget: int = 1000,
    *,
    seconds: float = 0.0,
    memory_bytes: int = 536870912,
    threads: int = 1,
    progress: Progress | None = None,
) -> SearchResult:
    """Level by level, the `width` cheapest new graphs of each.

    Args:
      everywhere: whether a rule that is carried out everywhere (`State.step_everywhere`) is one of the moves. It is
        carried out to learn its price. `SearchResult.actions` holds the single rewrites.
    """

def search_restarts(
    state: State,
    walk: int = 10,
    seed: int = 0,
    budget: int = 1000,
    *,
    seconds: float = 0.0,
    memory_bytes: int = 536870912,
    threads: int = 1,
    progress: Progress | None = None,
) -> SearchResult:
    """Again and again: `walk` random rewrites (a legal rule, then one of its locations), then steepest descent."""

# Arithmetic modulo a prime below 2^62 on int64 arrays of residues in [0, prime), for taso_ext.verify.

def field_multiply(a: npt.ArrayLike, b: npt.ArrayLike, prime: int) -> npt.NDArray[np.int64]:
    """a·b, broadcast; a plain integer when both are 0-dimensional."""

def field_power(base: npt.ArrayLike, exponent: npt.ArrayLike, prime: int) -> npt.NDArray[np.int64]:
    """baseⁿ for exponents n ≥ 0, broadcast; a plain integer when both are 0-dimensional."""

def field_matmul(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], prime: int) -> npt.NDArray[np.int64]:
    """[batch, m, k] times [batch, k, n] is [batch, m, n]; ValueError for other shapes."""
