"""A model of copies of one kernel, by which the kernel is timed.

One inference of the model runs the kernel many times. Each copy has weights of its own, as kernels have in a network:
whether they come from a cache or from memory is decided by how much there is of them in all.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from environment.costs.measured.kernel import Kernel, Operand, attributes_of, untimeable
from environment.inputs.model_inputs import Feeds
from taso_ext.onnx_io.detached import DetachedModel
from taso_ext.onnx_io.session import is_plain

_IR_VERSION = 10
_SMALLEST = 1 / 16
"""Of random numbers, which reach up to 1 above: so no root, logarithm or quotient leaves the normal numbers."""


def weight_bytes(kernel: Kernel) -> int:
    """Bytes of the weights that one run of a kernel reads."""
    return sum(each.nbytes for each in kernel.operands if each is not None and each.is_weight)


def input_bytes(kernel: Kernel) -> int:
    """Bytes that one run of a kernel reads of what is computed."""
    return sum(each.nbytes for each in kernel.operands if each is not None and not each.constant)


def copies_model(kernel: Kernel, copies: int, input_sets: int = 1) -> tuple[DetachedModel, Feeds]:
    """A model in which `copies` of a kernel read weights of their own, and what to feed it.

    Args:
      input_sets: that the copies read in turn, with equal values.
    Raises:
      ModelError: see `require_timeable`.
    """
    require_timeable(kernel)
    attributes = attributes_of(kernel.attributes)
    rng = np.random.default_rng(0)
    graph = onnx.GraphProto(name=kernel.op_type)
    arrays = {place: _array(operand, rng) for place, operand in enumerate(kernel.operands) if operand is not None}
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
        node = helper.make_node(kernel.op_type, inputs, outputs, name=f"{kernel.op_type}{copy}", domain=kernel.domain)
        node.attribute.extend(attributes)
        graph.node.append(node)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name)
    domains = {kernel.domain: kernel.version} | ({"": _STANDARD} if kernel.domain else {})
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    return DetachedModel(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), tensors), feeds


VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Standard operators that hand on what they read: in a graph, only their being called takes time."""


def is_view(kernel: Kernel) -> bool:
    """Whether a kernel moves nothing, unless it reads an input of the graph or writes an output."""
    return not kernel.domain and kernel.op_type in VIEWS


def views_model(copies: int) -> tuple[DetachedModel, Feeds]:
    """A chain of views of a few numbers, each of what the one before it hands on, and what to feed it."""
    x = np.ones(8, np.float32)
    graph = onnx.GraphProto(name="views")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape))
    names = ["x", *(f"y{copy}" for copy in range(copies))]
    for before, after in itertools.pairwise(names):
        graph.node.append(helper.make_node("Reshape", [before, "shape"], [after], name=after))
    graph.output.append(onnx.ValueInfoProto(name=names[-1]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _STANDARD)], ir_version=_IR_VERSION)
    return DetachedModel(model, {"shape": ir.tensor(np.array(x.shape))}), {"x": x}


def require_timeable(kernel: Kernel) -> None:
    """
    Raises:
      ModelError: a kernel with a subgraph, which reads values by name, with text in place of numbers, or with inputs
        that NumPy has no type for.
    """
    operands = [operand for operand in kernel.operands if operand is not None]
    if any(each.type in _GRAPHS for each in attributes_of(kernel.attributes)):
        raise untimeable(kernel.op_type, "runs a graph of its own, as loops and branches do")
    if any(operand.dtype == TensorProto.STRING for operand in operands):
        raise untimeable(kernel.op_type, "reads text")
    for operand in operands:
        if not operand.constant and not is_plain(operand.dtype):
            raise untimeable(kernel.op_type, f"reads {operand.description}, which cannot be fed to it")


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_STANDARD = 23  # opset of the standard operators; a model has to name one


def _name(operand: Operand | None, place: int, copy: int, input_set: int) -> str:
    """What a copy calls an operand: each has constants of its own."""
    if operand is None:
        return ""
    return f"w{place}.{copy}" if operand.constant else f"x{place}.{input_set}"


def _own(operand: Operand | None, array: np.ndarray, copy: int) -> np.ndarray:
    """A copy's own constant. ONNX Runtime keeps equal weights only once, so no two may be equal."""
    if operand is None or not _may_differ(operand):
        return array
    own = array.copy()
    own.flat[:_DIGITS] = np.array([copy // _BASE**place % _BASE + 1 for place in range(_DIGITS)]).astype(own.dtype)
    return own


_BASE, _DIGITS = 4, 3
"""Of a copy's number, as it is written into the first elements: numbers up to 4 exist in types of 4 bits too."""


def _may_differ(operand: Operand) -> bool:
    """Whether a constant is a weight whose elements may be anything: not indices, nor zero points, one a row."""
    if not operand.is_weight or operand.dtype in _INDICES:
        return False
    return ir.DataType(operand.dtype).is_floating_point() or len(operand.dims) > 1


_INDICES = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)


def _array(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(operand.dtype)
    if operand.values is not None:
        return np.array(operand.values, dtype).reshape(operand.dims)
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return np.zeros(operand.dims, dtype)  # the first row, where these are indices
    floats = rng.random(operand.dims, np.float32)
    floats += _SMALLEST
    return floats.astype(dtype, copy=False)
