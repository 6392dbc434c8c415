"""Costs of operators in their neighbourhoods: the kernels that a runtime makes of them among their neighbours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import helper

from environment.costs.measured.kernel import LARGEST_FLOAT_LITERAL, LARGEST_LITERAL
from environment.costs.measured.kernel_prices import KernelPrices, price_key
from environment.costs.measured.operator_classes import OperatorClasses
from environment.costs.measured.ort_kernels import lower
from environment.costs.prices.price_list import OperatorCost, UnrecordedError
from environment.costs.resampling import Factors, Sum
from environment.runtimes import OnnxRuntime
from taso_ext import Graph, OnnxModel, UnpricedError
from taso_ext.errors import CrashError
from taso_ext.onnx_io.checked_model import CheckedModel, ValueType
from taso_ext.onnx_io.operators import captured_names

DISTANCE = 5
"""A new operator is lowered with all nodes up to this distance from it: fusions and layouts reach no further."""
_WHOLE = 0.5
"""The whole graph is lowered if more than this fraction of its operators is new."""


class OperatorCosts:
    """The costs of the operators of one model's graphs, found once for each neighbourhood of an operator.

    A neighbourhood signature (`Graph.neighbourhood_signatures`) names an operator together with all operators near it.

    Args:
      model: the model whose graphs are priced.
      runtime: the runtime that makes kernels of graphs; None if its device is missing, and then only known signatures
        have a price.
      kernels: prices of the runtime's setting. If it predicts, then so are the kernels of operators that ran the same
        ones in other neighbourhoods (`operator_classes`).

    Attributes:
      lowerings: how often parts of graphs were lowered.
    """

    def __init__(self, model: OnnxModel, runtime: OnnxRuntime | None, kernels: KernelPrices) -> None:
        self._model, self._runtime, self._kernels = model, runtime, kernels
        self._prices = kernels.prices
        self._classes = OperatorClasses(model.opset)
        self._expected: dict[int, OperatorCost] = {}
        self._factors: dict[str, Factors] = {}
        self.lowerings = 0

    def known(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
        """Returns the signatures [n] whose operators have prices, and their ms, bytes and launches [n, 3]."""
        costs = self._prices.operator_costs
        kinds = {id(each): each for each in costs.values()}  # most are one of few objects
        self._kernels.foresee({kernel for each in kinds.values() for kernel in each.kernels})
        priced = [key for key, each in kinds.items() if self._kernels.has(each.kernels)]
        rows, numbers = self._rows(kinds[key] for key in priced), {key: number for number, key in enumerate(priced)}
        which = np.array([numbers.get(id(each), -1) for each in costs.values()], np.int64)
        return np.array(list(costs), np.uint64)[which >= 0], rows[which[which >= 0]]

    def __call__(self, graph: Graph, positions: list[int]) -> npt.NDArray[np.float64]:
        """Returns ms, bytes and launches [n, 3] of the run-time operators at some positions: see `CostModel.learned`.

        Raises:
          UnpricedError: the runtime has crashed on the graph or on one of its kernels.
          UnrecordedError: the kernels of an operator, or their prices, cannot be found out.
          ModelError: the runtime cannot run the graph.
        """
        known, names = self._prices.operator_costs, self._names(graph)[positions].tolist()
        # Another model may have met some signatures since this model passed its known ones to the engine.
        fresh = {
            name: position
            for name, position in zip(names, positions, strict=True)
            if name not in known and name not in self._expected
        }
        if fresh and self._kernels.predicts and self._runtime is not None:
            self._find_with_classes(graph, fresh)
        elif fresh:
            self._find(graph, fresh)
        return self._rows(self._cost(name) for name in names)

    def _cost(self, name: int) -> OperatorCost:
        found = self._expected.get(name)
        return self._prices.operator_costs[name] if found is None else found

    def _find(self, graph: Graph, fresh: Mapping[int, int]) -> dict[int, OperatorCost]:
        """Lowers operators, given as positions by signature, and keeps and returns their costs."""
        found = self._lowered_costs(graph, fresh)
        # `put_operator_costs` returns the costs of another process if that was faster.
        kept = self._prices.put_operator_costs(found) if self._kernels.keeps_operators else found
        self._prices.operator_costs.update(kept)
        return kept

    def _find_with_classes(self, graph: Graph, fresh: Mapping[int, int]) -> None:
        """Lowers the operators, unless a cost is expected of each of them; expected costs are not written anywhere.

        One fused kernel stands for several operators and counts for one of them. So costs that are found are not mixed
        with costs that are expected: the kernel could count twice, or not at all.
        """
        by_distance = self._classes.names(graph)
        expected = {name: self._classes.expected(by_distance, position) for name, position in fresh.items()}
        known = {name: cost for name, cost in expected.items() if cost is not None}
        if len(known) == len(fresh):
            self._expected |= known
            return
        for name, cost in self._find(graph, fresh).items():
            self._classes.add(by_distance, fresh[name], cost)

    def bill(self, graph: Graph) -> Counter[str]:
        """Returns how often each kernel runs in a graph whose operators have prices, by the signature of its price."""
        runs: Counter[str] = Counter()
        for name, count in Counter(self._names(graph).tolist()).items():
            for kernel, each in self._cost(name).kernels.items():
                runs[kernel] += count * each
        return runs

    def errors(self, graph: Graph) -> dict[str, float]:
        """Returns the error that each kernel's price contributes to a graph's time.

        Args:
          graph: a graph whose operators have prices.
        Returns:
          Half the width of the 95 % interval, in ms, by the signature of the price.
        """
        return self.errors_of(self.bill(graph))

    def errors_of(self, bill: Mapping[str, int]) -> dict[str, float]:
        """Returns the same of kernels that run so often, by the signature of the price."""
        # Sorted, so that sums over the errors are the same in every process.
        return {kernel: count * self._kernels.of(kernel).error_ms for kernel, count in sorted(bill.items())}

    def noisy_sum(self, graph: Graph) -> Sum:
        """Returns the time of a graph, whose operators have prices, as a sum of kernels whose times vary."""
        bill = sorted(self.bill(graph).items())
        parts_ms = [count * self._kernels.of(kernel).ms for kernel, count in bill]
        whole_ms = math.fsum(parts_ms)
        for kernel, _ in bill:
            if kernel not in self._factors:
                self._factors[kernel] = self._kernels.factors(kernel)
        shares = [part_ms / whole_ms if whole_ms else 0.0 for part_ms in parts_ms]
        return Sum(shares, [self._factors[kernel] for kernel, _ in bill])

    def _names(self, graph: Graph) -> npt.NDArray[np.uint64]:
        return graph.neighbourhood_signatures(self._model.opset)

    def _rows(self, operators: Iterable[OperatorCost]) -> npt.NDArray[np.float64]:
        """Returns ms, bytes and launches [n, 3]."""
        return np.array([self._row(each) for each in operators], np.float64).reshape(-1, 3)

    def _row(self, operator: OperatorCost) -> tuple[float, float, int]:
        # fsum gives the same sum in every process, whatever the order of the kernels.
        ms = math.fsum(count * self._kernels.of(kernel).ms for kernel, count in operator.kernels.items())
        return ms, operator.memory_bytes, sum(operator.kernels.values())

    def _lowered_costs(self, graph: Graph, positions: Mapping[int, int]) -> dict[int, OperatorCost]:
        """Lowers operators together with their neighbourhoods, and returns their costs by signature."""
        if self._runtime is None:
            raise UnrecordedError(self._unmet(graph, positions.values()))
        is_part = len(positions) < _WHOLE * graph.num_runtime_nodes
        sketch = self._model.sketch(graph, list(positions.values()) if is_part else (), DISTANCE)
        weights_mb = graph.weights_mb
        taken: dict[int, Counter[str]] = {position: Counter() for position in positions.values()}
        nbytes = dict.fromkeys(taken, 0)
        wanted = {name for name, position in sketch.computed_by.items() if position in taken}
        part = neighbourhood(sketch.model, wanted, DISTANCE) if is_part else sketch.model
        try:
            placed = lower(part, self._runtime, sketch.shared)
        except CrashError as error:
            raise UnpricedError(f"Its kernels cannot be found out: {error}") from error
        for each in placed:
            position = sketch.computed_by.get(each.value, -1)
            if position in taken:
                taken[position][price_key(each.kernel, weights_mb)] += 1
                nbytes[position] += each.nbytes
        self.lowerings += 1
        self._price({key for kernels in taken.values() for key in kernels})
        return {name: OperatorCost(taken[position], nbytes[position]) for name, position in positions.items()}

    def _price(self, keys: set[str]) -> None:
        """Finds the prices of kernels now, so that no cost is kept whose kernels cannot be priced."""
        self._kernels.foresee(keys)
        for key in sorted(keys):
            self._kernels.of(key)

    def _unmet(self, graph: Graph, positions: Iterable[int]) -> str:
        running = [node for node in graph.nodes() if not node.weight_only]
        operators = ", ".join(sorted({running[position].op_type for position in positions}))
        device = self._prices.setting.device
        return (
            f"{self._prices.place} has no prices of {operators} where they stand now in the graph, and which kernels "
            f"{device} would run there cannot be found out without it. Record more on a machine that has it: run the "
            f"same command with --costs measured:{device} there, or `rlflow costs record` with more --walks, and then "
            f"`rlflow costs export`."
        )


def neighbourhood(model: CheckedModel, values: Collection[str], distance: int) -> CheckedModel:
    """Returns a model of its own with the nodes that compute `values`, and those at most `distance` nodes away.

    Values that these nodes read from others become inputs, and values that others read become outputs. The part grows
    beyond the distance if it would be cut at a value of unknown type, or at a few numbers: those may become a shape, an
    index or a number of iterations, for which arbitrary numbers would not do.

    Args:
      model: the model, which knows the types, with static shapes, of values that may become inputs.
      values: names of results of nodes.
    """
    graph, types = model.skeleton.graph, model.types
    reads = [[*node.input, *captured_names(node)] for node in graph.node]
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, []).append(index)

    def neighbours(index: int) -> Iterable[int]:
        yield from (producers[name] for name in reads[index] if name in producers)
        yield from (reader for name in graph.node[index].output for reader in readers.get(name, ()))

    kept = newest = {producers[name] for name in values}
    for _ in range(distance):
        newest = {other for index in newest for other in neighbours(index)} - kept
        kept = kept | newest
    pending = list(kept)
    while pending:
        for name in reads[pending.pop()]:
            if name in producers and producers[name] not in kept and not _may_be_arbitrary(types.get(name)):
                kept.add(producers[name])
                pending.append(producers[name])
    return _cut_out(model, sorted(kept), reads, readers)


def _may_be_arbitrary(kind: ValueType | None) -> bool:
    """Returns whether a value of this type may be an input of a part of its model."""
    if kind is None or kind.dims is None:
        return False
    largest = LARGEST_FLOAT_LITERAL if ir.DataType(kind.dtype).is_floating_point() else LARGEST_LITERAL
    return math.prod(kind.dims) > largest


def _cut_out(
    model: CheckedModel,
    kept: list[int],
    reads: list[list[str]],
    readers: Mapping[str, list[int]],
) -> CheckedModel:
    source = model.skeleton.graph
    inside = set(kept)
    made = {name: None for index in kept for name in source.node[index].output if name}
    read = {name: None for index in kept for name in reads[index] if name}
    constants = model.tensors | model.defaults
    skeleton = onnx.ModelProto(ir_version=model.skeleton.ir_version, opset_import=model.skeleton.opset_import)
    skeleton.graph.name = source.name
    skeleton.graph.node.extend(source.node[index] for index in kept)
    declared = {value.name: value for value in source.input}
    for name in read:
        if name in declared and name not in model.defaults:
            skeleton.graph.input.append(declared[name])
        elif name not in made and name not in constants:
            skeleton.graph.input.append(helper.make_tensor_value_info(name, *model.types[name]))
    outputs = {value.name for value in source.output}
    for name in made:
        if name in outputs or any(reader not in inside for reader in readers.get(name, ())):
            skeleton.graph.output.append(onnx.ValueInfoProto(name=name))
    tensors = {name: constants[name] for name in read if name in constants}
    return CheckedModel(skeleton, tensors, known_types=model.types)
