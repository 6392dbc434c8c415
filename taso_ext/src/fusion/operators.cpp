#include "fusion/operators.hpp"

#include <algorithm>

#include "ir/operator_table.hpp"

namespace rlflow::fusion {
namespace {

using namespace operators;

constexpr OperatorId kElu = index_of("Elu"), kGelu = index_of("Gelu"), kGlobalMaxPool = index_of("GlobalMaxPool"),
                     kLeakyRelu = index_of("LeakyRelu"), kMax = index_of("Max"), kReduceMax = index_of("ReduceMax"),
                     kReduceMin = index_of("ReduceMin"), kReduceProd = index_of("ReduceProd"), kRelu = index_of("Relu"),
                     kShape = index_of("Shape"), kSum = index_of("Sum"), kTile = index_of("Tile");

template <typename... Ids>
[[nodiscard]] constexpr bool is_one_of(OperatorId op, Ids... ids) {
  return ((op == ids) || ...);
}

[[nodiscard]] bool is_normalisation(OperatorId op) {
  return is_one_of(op, kSoftmax, kLogSoftmax, kLayerNorm, kInstanceNorm, kGroupNorm, kRmsNorm, kSkipNorm, kSkipRmsNorm);
}

// Returns whether a transpose leaves every element where it is in memory: the axes longer than 1 keep their order.
[[nodiscard]] bool keeps_order(const Operator& op) {
  const Dims* order = ints_attribute(op.attributes(), "perm");
  const TensorType& type = op.input(0);
  if (!order || !type.ranked || order->size() != type.dims.size()) return false;
  std::int64_t last = -1;
  for (const std::int64_t axis : *order) {
    if (axis < 0 || axis >= static_cast<std::int64_t>(type.dims.size())) return false;
    if (type.dims[static_cast<std::size_t>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

// Clock cycles of an instruction on fp32, as XLA's profiler measured them on an H100
// (xla/service/gpu/model/hlo_op_profiles_data.h, sm_90); what it did not measure takes kDefaultFlopsPerElement of
// gpu_hlo_cost_analysis.cc.
constexpr double kAddition = 7, kProduct = 3, kQuotient = 19, kPower = 510, kExponential = 79, kLogarithm = 166, kRoot = 75,
                 kTangent = 467, kSine = 958, kCosine = 978, kOther = 3;

struct Cycles {
  std::string_view name;
  double cycles;
  bool expensive = false;    // by InstructionFusion::IsExpensive, but for what GpuInstructionFusion::IsExpensive takes out
};

// Operators that XLA expands are sums of their instructions. Erf is a quotient of polynomials like Tanh, and has its
// figure.
constexpr auto kPointwise = std::to_array<Cycles>({
    {"Add", kAddition}, {"Sum", kAddition}, {"Sub", kAddition}, {"Mul", kProduct}, {"Div", kQuotient}, {"Reciprocal", kQuotient},
    {"Pow", kPower, true}, {"Exp", kExponential}, {"Log", kLogarithm, true}, {"Sqrt", kRoot}, {"Sin", kSine}, {"Cos", kCosine},
    {"Tanh", kTangent, true}, {"Erf", kTangent, true}, {"Sigmoid", kExponential + kAddition + kQuotient, true},
    {"Softplus", kExponential + kAddition + kLogarithm, true},
    {"Mish", kExponential + kAddition + kLogarithm + kTangent + kProduct, true},
    {"Elu", kExponential + kAddition + kProduct, true}, {"Selu", kExponential + kAddition + kProduct, true},
    {"Celu", kExponential + kAddition + kProduct, true}, {"Gelu", kTangent + kAddition + 3 * kProduct, true},
    {"BiasGelu", kTangent + 2 * kAddition + 3 * kProduct, true}, {"FastGelu", kTangent + 2 * kAddition + 5 * kProduct, true},
    {"QuickGelu", kExponential + kAddition + kQuotient + 2 * kProduct, true},
    {"BatchNormalization", kAddition + kProduct, true},
});

// Returns the entry of a pointwise operator.
[[nodiscard]] Cycles pointwise(OperatorId id) {
  const std::string_view name = operator_info(id).name;
  const auto* found = std::ranges::find(kPointwise, name, &Cycles::name);
  return found == kPointwise.end() ? Cycles{name, kOther} : *found;
}

[[nodiscard]] double cycles_per_element(const Operator& op) {
  const double operands = static_cast<double>(op.signature.inputs.size());
  const bool folds = is_one_of(op.signature.op, kSum, kMax, kMin);    // n operands take n - 1 instructions
  return pointwise(op.signature.op).cycles * (folds ? std::max(1.0, operands - 1.0) : 1.0);
}

// Returns the cycles for each element that a reduction or normalisation reads.
[[nodiscard]] double cycles_per_input(OperatorId id) {
  if (is_one_of(id, kSoftmax, kLogSoftmax)) return kOther + 2 * kAddition + kExponential + kQuotient;
  if (is_normalisation(id)) return 4 * kAddition + 3 * kProduct;
  if (is_one_of(id, kReduceMax, kReduceMin, kGlobalMaxPool, kArgMax)) return kOther;
  if (id == kReduceProd) return kProduct;
  return id == kReduceL2 ? kAddition + kProduct : kAddition;
}

// Returns the elements of the window of a pool or of an LRN.
[[nodiscard]] double window_elements(const Operator& op) {
  if (op.signature.op == kLrn) return static_cast<double>(std::max<std::int64_t>(int_attribute(op.attributes(), "size", 1), 1));
  const Dims* extents = ints_attribute(op.attributes(), "kernel_shape");
  double window = 1;
  for (const std::int64_t extent : extents ? *extents : Dims{}) window *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  return std::min(window, kMostElements);
}

// Returns the number of elements that a normalisation has to see before it can write the first of them.
[[nodiscard]] double row_elements(const Operator& op) {
  const TensorType& type = op.input(0);
  if (!type.ranked || type.dims.empty()) return 1;
  const auto rank = static_cast<std::int64_t>(type.dims.size());
  const auto product_from = [&](std::int64_t axis) {
    double product = 1;
    for (std::int64_t k = std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank); k < rank; ++k) {
      product *= static_cast<double>(type.dims[static_cast<std::size_t>(k)]);
    }
    return product;
  };
  const OperatorId id = op.signature.op;
  if (is_one_of(id, kSoftmax, kLogSoftmax)) {
    const std::int64_t axis = int_attribute(op.attributes(), "axis", -1);
    return static_cast<double>(type.dims[static_cast<std::size_t>(std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank - 1))]);
  }
  if (id == kInstanceNorm) return product_from(2);
  if (id == kGroupNorm) return product_from(1) / static_cast<double>(std::max<std::int64_t>(int_attribute(op.attributes(), "num_groups", 1), 1));
  return product_from(int_attribute(op.attributes(), "axis", -1));
}

// Returns how often a normalisation reads its operand: once if a row stays in shared memory until it is written (as the
// rows of XLA's softmax_rewriter_triton do), else once for each of its reductions and once to write.
[[nodiscard]] double passes(const Operator& op, const Device& device) {
  const TensorType& type = op.input(0);
  const double element_bytes = static_cast<double>(type.bytes()) / std::max<double>(1.0, static_cast<double>(type.elements()));
  if (row_elements(op) * element_bytes <= device.shared_memory_bytes) return 1;
  return is_one_of(op.signature.op, kSoftmax, kLogSoftmax) ? 3 : 2;
}

}  // namespace

bool is_elementwise(const Operator& op) { return op.signature.execution == Execution::kElementwise; }

bool is_view(const Operator& op) {
  if (op.stateful || op.signature.outputs.size() != 1 || !op.has_input(0)) return false;
  if (op.signature.execution == Execution::kView) return op.signature.op != kShape;
  return op.signature.op == kTranspose && keeps_order(op);
}

Kind kind_of(const Operator& op) {
  const OperatorId id = op.signature.op;
  if (op.stateful || id >= known_operator_count() || op.signature.outputs.empty()) return Kind::kOpaque;
  if (id == kSplitOp) return Kind::kLoop;
  if (op.signature.outputs.size() > 1 || is_one_of(id, kConstant, index_of("EyeLike"))) return Kind::kOpaque;
  if (is_elementwise(op)) return Kind::kLoop;
  if (is_one_of(id, kTranspose, kDepthToSpace, kSpaceToDepth)) return Kind::kTranspose;
  if (op.signature.execution == Execution::kMovement) return Kind::kLoop;
  if (is_one_of(id, kMaxPool, kAveragePool, kLrn)) return Kind::kWindow;
  if (is_one_of(id, kConv, kMatMul, kGemm, kConvTranspose, kEinsum, kAttention, kMultiHead, kFusedMatMul, kFusedGemm, kFusedConv)) {
    return Kind::kLibrary;
  }
  if (is_normalisation(id) || is_one_of(id, kGlobalAveragePool, kGlobalMaxPool, kArgMax) ||
      operator_info(id).name.starts_with("Reduce")) {
    return Kind::kReduction;
  }
  return Kind::kOpaque;
}

bool is_expensive(const Operator& op) {
  if (is_elementwise(op)) return pointwise(op.signature.op).expensive;
  const Kind kind = kind_of(op);
  return op.signature.op == kGather || (kind != Kind::kLoop && kind != Kind::kTranspose);
}

bool is_duplicable(const Operator& op) {
  if (is_one_of(op.signature.op, kExpand, kTile)) return true;
  return op.signature.op == kCast && op.has_input(0) && op.input(0).bytes() < op.output(0).bytes();
}

// The epilogues of cuBLASLt (bias, ReLU, GELU) and of cuDNN's fused convolution (bias, side input, ReLU, ELU, ReLU6 and
// leaky ReLU), which XLA's gemm_rewriter.cc and cudnn_fused_conv_rewriter.cc make.
bool takes_epilogue(const Operator& op) {
  return is_one_of(op.signature.op, kAdd, kRelu, kGelu, kElu, kClip, kLeakyRelu);
}

double count_work(const Operator& op, Kind kind, const Device& device) {
  const double out = static_cast<double>(op.output(0).elements());
  const double in = op.has_input(0) ? static_cast<double>(op.input(0).elements()) : out;
  switch (kind) {
    case Kind::kLoop: return is_elementwise(op) ? out * cycles_per_element(op) : out * kOther;
    case Kind::kTranspose: return out * kOther;
    case Kind::kWindow: return out * window_elements(op) * kAddition;
    case Kind::kReduction: return in * (is_normalisation(op.signature.op) ? passes(op, device) : 1.0) * cycles_per_input(op.signature.op);
    case Kind::kLibrary:
    case Kind::kOpaque: return op.signature.flops;
    default: return 0;
  }
}

bool reads_elements(const Operator& op, Kind kind, std::size_t slot) {
  if (slot == 0 || is_elementwise(op)) return true;
  if (kind == Kind::kLoop) return is_one_of(op.signature.op, kConcat) || (op.signature.op == kGather && slot == 1);
  return kind == Kind::kLibrary || kind == Kind::kOpaque || is_normalisation(op.signature.op);
}

double count_demand(const Operator& op, Kind kind, std::size_t slot, double elements, const Device& device) {
  const double out = static_cast<double>(op.output(0).elements());
  const OperatorId id = op.signature.op;
  if (!reads_elements(op, kind, slot) || kind == Kind::kLibrary || kind == Kind::kOpaque) return elements;
  if (is_elementwise(op)) return out;
  switch (kind) {
    case Kind::kLoop: return is_one_of(id, kConcat, kPad) ? std::min(elements, out) : out;
    case Kind::kWindow: return out * window_elements(op);
    case Kind::kReduction: return is_normalisation(id) && slot == 0 ? elements * passes(op, device) : elements;
    default: return elements;
  }
}

}  // namespace rlflow::fusion
