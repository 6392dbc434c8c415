"""The timing of a kernel: copies of it run beside a reference kernel.

The speed of a machine drifts by more than the difference between good and bad graphs. A kernel is therefore measured as
a ratio to a reference kernel, a small product of matrices that is interleaved with it. Its price is this ratio times
the milliseconds that the reference kernel took when the database was begun.

One inference runs the kernel many times. Each copy has weights of its own, as kernels have in a network: the amount of
weights decides whether they come from a cache or from memory.

If other processes share the processor, they slow different kernels down by different factors for seconds or minutes. No
single timing shows this, however long it is. Timing the kernel again later and taking the mean does (`PriceList.put`).
Waiting for moments in which the reference kernel is fast was tried and is worse, because graphs do not run only at such
moments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from environment.costs.measured.kernel import Kernel, Operand, untimeable
from environment.costs.prices.price_list import Price
from environment.inputs import Feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.runtimes import OnnxRuntime
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import inner_nodes
from taso_ext.onnx_io.session import is_plain

FEWEST_COPIES, MOST_COPIES = 4, 64
"""Fewest and most copies of a small kernel. Fewer would time the session's own work; more would take longer to load
than to run."""
LONG_MS, LONGEST_MS = 20.0, 40.0
"""Longest inference with more than the fewest copies, and with the fewest. Slow kernels need no more copies, because
they do not wait for weights."""
RECENT_MB = 4.0
"""Size of the input sets that the copies read in turn: a graph writes a kernel's inputs shortly before the kernel runs,
but not immediately before."""
MOST_MB = 128.0
"""Largest size of all copies, unless one copy is larger: their weights are written and kept in memory."""
COPIED_MB, COPIED_OF_SWEPT_MB = 64.0, 16.0
"""Size of the weights of all copies, which stand for the weights of a graph; more take too long to write. If a sweep
stands for the rest, the second size is enough; with much less, the session's own work would count."""
LEAST_SWEPT_MB = 4.0
"""Other kernels' weights of a smaller size are not swept: they would add nothing to the effect of the copies."""
GLANCE = Effort(resolution=None, pairs=2, sessions=1, warmup=1, settling=1, control=False)
EFFORT = Effort(resolution=0.005, pairs=25, seconds=0.25, sessions=1, warmup=1, settling=1, control=False)
SESSIONS_DIFFER = 0.006
"""Half the width of the 95 % interval of a session's own deviation, as a fraction of a kernel's time. Sessions of
identical bytes differ by about 0.3 % for as long as they live, which the samples of one session cannot show."""
OTHERS_SHARE = 0.4
"""Fraction of the reference kernel's slow-down by other processes, as a logarithm, that may remain in a ratio to it."""


def time_kernel(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, reference_ms: float) -> Price:
    """Times a kernel and returns the price of one run.

    Args:
      weights_mb: size of the weights that the kernel's graph reads between two runs, which decides what is in the
        caches. All copies together read as much, as far as COPIED_MB, MOST_COPIES and time allow. If the kernel reads
        mostly weights, a sweep before the copies run stands for the rest.
      runtime: the runtime of the kernel; its level of optimisation does not matter.
      reference_ms: the price of the reference kernel.
    Raises:
      ModelError: the kernel cannot be run alone.
    """
    alone = plain(runtime)
    if is_view(kernel):
        copies, (model, feeds) = MOST_COPIES, views_model(MOST_COPIES)
    else:
        copies = _affordable_copies(kernel, weights_mb, runtime)
        model, feeds = copies_model(kernel, copies, _input_sets(kernel, copies))
    before_each = sweep(mb) if (mb := _left_mb(kernel, copies, weights_mb, runtime)) else None
    timing = measure_beside(model, alone, EFFORT, feeds, before_each, of_kernels=True)
    usual = usual_ms(reference_ms)
    others = OTHERS_SHARE * abs(math.log(timing.reference.ms.value / usual))
    spread = math.hypot(timing.ratio.half_width, SESSIONS_DIFFER, others)
    return Price(timing.ratio.value * usual / copies, spread)


def _affordable_copies(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime) -> int:
    """Returns the wanted number of copies, or as many as run in the available time."""
    fewest, wanted = _copies(kernel, weights_mb, runtime)
    if wanted == 1:
        return 1
    model, feeds = copies_model(kernel, 1)
    alone = Variant(kernel.op_type, plain(runtime), model)
    one_ms = measure(alone, effort=GLANCE, feeds=feeds, of_kernels=True).reference.ms.value
    return max(min(wanted, math.floor(LONG_MS / one_ms)), min(fewest, math.floor(LONGEST_MS / one_ms)), 1)


def _copies(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime) -> tuple[int, int]:
    """Returns the fewest and the wanted number of copies of a kernel whose graph reads `weights_mb` of weights."""
    own_mb = (weight_bytes(kernel) + input_bytes(kernel)) / 1e6
    if not own_mb:
        return FEWEST_COPIES, FEWEST_COPIES
    fewest = max(min(FEWEST_COPIES, math.floor(MOST_MB / own_mb)), 1)
    copied_mb = COPIED_OF_SWEPT_MB if _left_mb(kernel, fewest, weights_mb, runtime) else COPIED_MB
    return fewest, max(fewest, min(MOST_COPIES, math.ceil(min(weights_mb, copied_mb) / own_mb)))


def _left_mb(kernel: Kernel, copies: int, weights_mb: float, runtime: OnnxRuntime) -> float:
    """Returns the size of the graph's weights that the copies do not read; 0 on GPUs, whose caches are small."""
    if runtime.device != "cpu" or weight_bytes(kernel) <= input_bytes(kernel):
        return 0.0
    left = weights_mb - copies * weight_bytes(kernel) / 1e6
    return left if left >= LEAST_SWEPT_MB else 0.0


def _input_sets(kernel: Kernel, copies: int) -> int:
    return min(copies, math.ceil(RECENT_MB * 1e6 / max(input_bytes(kernel), 1)))


REFERENCE_KERNEL = Kernel(
    "",
    "MatMul",
    13,
    "{}",
    (Operand(TensorProto.FLOAT, (64, 512), True), Operand(TensorProto.FLOAT, (512, 512), True)),
    (True,),
)
COPIES = 4
"""Copies of the reference kernel in the model that is timed."""
CAREFUL = Effort(resolution=0.002, pairs=200, seconds=0.5, sessions=3, warmup=3, control=False)
_TIMES_CAREFUL = 4


def time_reference_kernel(runtime: OnnxRuntime) -> float:
    """Returns the usual run time of the reference kernel by the clock, in ms: a median of several measurements."""
    alone, (model, feeds) = plain(runtime), copies_model(REFERENCE_KERNEL, COPIES)
    timings = (
        measure(Variant("reference kernel", alone, model), effort=CAREFUL, feeds=feeds, of_kernels=True)
        for _ in range(_TIMES_CAREFUL)
    )
    times_ms = [timing.reference.ms.value for timing in timings]
    return float(np.median(times_ms)) / COPIES


def measure_beside(
    model: CheckedModel,
    runtime: OnnxRuntime,
    effort: Effort,
    feeds: Feeds,
    before_each: Callable[[], object] | None = None,
    *,
    of_kernels: bool = False,
) -> Timing:
    """Times a model as a ratio to the copies of the reference kernel, which usually take `usual_ms`.

    Args:
      before_each: see `Variant`; it applies only to the model.
      of_kernels: whether the model is copies of a kernel, and no whole graph; see `measure`.
    """
    reference = Variant("reference kernel", plain(runtime), _with_inputs_of(model))
    return measure(
        reference, [Variant("model", runtime, model, before_each)], effort, feeds=feeds, of_kernels=of_kernels
    )


def usual_ms(reference_ms: float) -> float:
    """Returns the usual time of the reference of `measure_beside`, given that of one reference kernel, both in ms."""
    return COPIES * reference_ms


def plain(runtime: OnnxRuntime) -> OnnxRuntime:
    """Returns the runtime without optimisation, because a kernel is already a result of the optimiser."""
    return OnnxRuntime(runtime.device, runtime.threads, "disabled")


def _with_inputs_of(model: CheckedModel) -> CheckedModel:
    """Returns the copies of the reference kernel with a model's inputs, which interleaved variants have to share."""
    reference, _ = copies_model(REFERENCE_KERNEL, COPIES)
    reference.skeleton.graph.input.extend(model.skeleton.graph.input)
    return reference


_IR_VERSION = 10
_SMALLEST = 1 / 16
"""Smallest random number; the largest is 1 above it. No root, logarithm or quotient of them leaves
the range of normal numbers."""


def weight_bytes(kernel: Kernel) -> int:
    """Returns the bytes of weights that one run of a kernel reads."""
    return sum(each.nbytes for each in kernel.operands if each is not None and each.is_weight)


def input_bytes(kernel: Kernel) -> int:
    """Returns the bytes of computed values that one run of a kernel reads."""
    return sum(each.nbytes for each in kernel.operands if each is not None and not each.constant)


def copies_model(kernel: Kernel, copies: int, input_sets: int = 1) -> tuple[CheckedModel, Feeds]:
    """Builds a model in which each copy of a kernel reads weights of its own, and the feeds of the model.

    Args:
      input_sets: number of input sets, all of equal values, that the copies read in turn.
    Raises:
      ModelError: see `require_timeable`.
    """
    require_timeable(kernel)
    rng = np.random.default_rng(0)
    graph = onnx.GraphProto(name=kernel.op_type)
    operands = [(place, operand) for place, operand in enumerate(kernel.operands) if operand is not None]
    arrays = {place: _array(operand, rng, int(kernel.op_type == "Loop")) for place, operand in operands}
    feeds: Feeds = {}
    tensors: dict[str, ir.TensorProtocol] = {}
    for place, operand in enumerate(kernel.operands):
        if operand is not None and not operand.constant:
            for name in (f"x{place}.{number}" for number in range(input_sets)):
                graph.input.append(helper.make_tensor_value_info(name, operand.dtype, operand.dims))
                feeds[name] = arrays[place]
    for copy in range(copies):
        inputs = [_name(operand, place, copy, copy % input_sets) for place, operand in enumerate(kernel.operands)]
        for place, name in enumerate(inputs):
            if name.startswith("w"):
                tensors[name] = ir.tensor(_own(kernel.operands[place], arrays[place], copy))
        outputs = [f"y{copy}.{place}" if used else "" for place, used in enumerate(kernel.results)]
        graph.node.append(kernel.node(inputs, outputs, f"{kernel.op_type}{copy}"))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name)
    domains = {each.domain: 1 for each in inner_nodes(graph.node[:1])}
    domains |= {"": _STANDARD, kernel.domain: kernel.version}
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    return CheckedModel(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), tensors), feeds


VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Standard operators that leave their input unchanged in memory, so that only the call takes time."""


def is_view(kernel: Kernel) -> bool:
    """Returns whether a kernel moves no data, as long as it neither reads a graph input nor writes a graph output."""
    return not kernel.domain and kernel.op_type in VIEWS


def views_model(copies: int) -> tuple[CheckedModel, Feeds]:
    """Returns a model that is a chain of views of a few numbers, each of the one before it, and the model's feeds."""
    x = np.ones(8, np.float32)
    graph = onnx.GraphProto(name="views")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape))
    names = ["x", *(f"y{copy}" for copy in range(copies))]
    for before, after in itertools.pairwise(names):
        graph.node.append(helper.make_node("Reshape", [before, "shape"], [after], name=after))
    graph.output.append(onnx.ValueInfoProto(name=names[-1]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _STANDARD)], ir_version=_IR_VERSION)
    return CheckedModel(model, {"shape": ir.tensor(np.array(x.shape))}), {"x": x}


def require_timeable(kernel: Kernel) -> None:
    """Checks that a kernel can be timed alone.

    Raises:
      ModelError: the kernel reads text or a type that NumPy lacks.
    """
    operands = [operand for operand in kernel.operands if operand is not None]
    if any(operand.dtype == TensorProto.STRING for operand in operands):
        raise untimeable(kernel.op_type, "reads text")
    for operand in operands:
        if not operand.constant and not is_plain(operand.dtype):
            raise untimeable(kernel.op_type, f"reads {operand.description}, which cannot be fed to it")


_STANDARD = 23  # opset of the standard operators; a model has to name one


def _name(operand: Operand | None, place: int, copy: int, input_set: int) -> str:
    """Returns the name of a copy's operand; each copy has constants of its own."""
    if operand is None:
        return ""
    return f"w{place}.{copy}" if operand.constant else f"x{place}.{input_set}"


def _own(operand: Operand | None, array: np.ndarray, copy: int) -> np.ndarray:
    """Returns a copy's own constant. No two may be equal, because ONNX Runtime keeps equal weights only once."""
    if operand is None or not _may_differ(operand):
        return array
    own = array.copy()
    own.flat[:_DIGITS] = np.array([copy // _BASE**place % _BASE + 1 for place in range(_DIGITS)]).astype(own.dtype)
    return own


_BASE, _DIGITS = 4, 3
"""Base and number of digits of a copy's number in the first elements; types of 4 bits hold numbers up to 4 too."""


def _may_differ(operand: Operand) -> bool:
    """Returns whether the values of a constant are free: it is a weight, and neither indices nor zero points."""
    if not operand.is_weight or operand.dtype in _INDICES:
        return False
    return ir.DataType(operand.dtype).is_floating_point() or len(operand.dims) > 1


_INDICES = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)


def _array(operand: Operand, rng: np.random.Generator, integer: int = 0) -> np.ndarray:
    """Returns an operand's values.

    Args:
      integer: the number that integers are if they are not known. For indices 0 means the first row. A Loop of an
        unknown number of iterations has 1, and a branch of an unknown condition takes the second way.
    """
    dtype = helper.tensor_dtype_to_np_dtype(operand.dtype)
    if operand.values is not None:
        return np.array(operand.values, dtype).reshape(operand.dims)
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return np.full(operand.dims, integer, dtype)
    floats = rng.random(operand.dims, np.float32)
    floats += _SMALLEST
    return floats.astype(dtype, copy=False)


_FLOATS_PER_MB = 250_000

_memory = np.zeros(0, np.float32)


def sweep(mb: float) -> Callable[[], object]:
    """Returns a function that reads `mb` of unused memory, so that the processor's caches lose what they held.

    It reads about 15 MB in a millisecond. The memory is kept for later calls.
    """
    global _memory
    count = round(mb * _FLOATS_PER_MB)
    if len(_memory) < count:
        _memory = np.ones(count, np.float32)  # not zeros, whose pages would all be the same page
    return _memory[:count].max
