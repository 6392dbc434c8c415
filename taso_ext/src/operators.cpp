#include "operators.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace rlflow {
namespace {

using enum Execution;

constexpr std::string_view kMicrosoft = "com.microsoft";

// The order is part of the observation (operator ids are embedding rows): append, never reorder.
constexpr auto kOperators = std::to_array<OperatorInfo>({
    {"Conv", kKernel}, {"MatMul", kKernel}, {"Gemm", kKernel}, {"Add", kElementwise, true},
    {"Sub", kElementwise}, {"Mul", kElementwise, true}, {"Div", kElementwise}, {"Pow", kElementwise},
    {"Sum", kElementwise, true}, {"Max", kElementwise, true}, {"Min", kElementwise, true}, {"Relu", kElementwise},
    {"LeakyRelu", kElementwise}, {"PRelu", kElementwise}, {"Elu", kElementwise}, {"Selu", kElementwise},
    {"Celu", kElementwise, false, 12}, {"Sigmoid", kElementwise}, {"HardSigmoid", kElementwise}, {"HardSwish", kElementwise, false, 14},
    {"Mish", kElementwise, false, 18}, {"Softplus", kElementwise}, {"Softsign", kElementwise}, {"Tanh", kElementwise},
    {"Erf", kElementwise, false, 9}, {"Gelu", kElementwise, false, 20}, {"Exp", kElementwise}, {"Log", kElementwise},
    {"Sqrt", kElementwise}, {"Reciprocal", kElementwise}, {"Neg", kElementwise}, {"Abs", kElementwise},
    {"Floor", kElementwise}, {"Ceil", kElementwise}, {"Round", kElementwise, false, 11}, {"Sign", kElementwise, false, 9},
    {"Sin", kElementwise}, {"Cos", kElementwise}, {"Clip", kElementwise}, {"Cast", kElementwise},
    {"Not", kElementwise}, {"And", kElementwise, true}, {"Or", kElementwise, true}, {"Equal", kElementwise, true},
    {"Greater", kElementwise}, {"Less", kElementwise}, {"Where", kElementwise, false, 9}, {"BatchNormalization", kElementwise},
    {"Softmax", kKernel}, {"LogSoftmax", kKernel}, {"LayerNormalization", kKernel, false, 17}, {"InstanceNormalization", kKernel},
    {"GroupNormalization", kKernel, false, 18}, {"LRN", kKernel}, {"MaxPool", kKernel}, {"AveragePool", kKernel},
    {"GlobalAveragePool", kKernel}, {"GlobalMaxPool", kKernel}, {"ReduceSum", kKernel}, {"ReduceMean", kKernel},
    {"ReduceMax", kKernel}, {"ReduceMin", kKernel}, {"ReduceProd", kKernel}, {"ReduceL2", kKernel},
    {"ConvTranspose", kKernel}, {"Einsum", kKernel, false, 12}, {"ArgMax", kKernel}, {"TopK", kOpaque}, {"Concat", kMovement},
    {"Split", kSplit}, {"Slice", kMovement}, {"Transpose", kMovement}, {"Pad", kMovement}, {"Gather", kMovement},
    {"Expand", kMovement, false, 8}, {"Tile", kMovement}, {"Resize", kMovement, false, 10}, {"Upsample", kMovement},
    {"DepthToSpace", kMovement}, {"SpaceToDepth", kMovement}, {"Reshape", kView}, {"Flatten", kView},
    {"Squeeze", kView}, {"Unsqueeze", kView}, {"Identity", kView}, {"Dropout", kView}, {"Shape", kView},
    {"ConstantOfShape", kMovement}, {"Range", kMovement, false, 11}, {"LSTM", kKernel}, {"GRU", kKernel}, {"RNN", kKernel},
    {"Attention", kKernel, false, 23}, {"RMSNormalization", kKernel, false, 23}, {"RotaryEmbedding", kKernel, false, 23}, {"If", kOpaque},
    {"Loop", kOpaque}, {"Scan", kOpaque, false, 8}, {"Constant", kOpaque}, {"EyeLike", kOpaque},
    // The runtime's own. Those that end in a pointwise function are one kernel with what produces their operand.
    {"FusedMatMul", kKernel, false, 1, kMicrosoft}, {"FusedGemm", kKernel, false, 1, kMicrosoft},
    {"FusedConv", kKernel, false, 1, kMicrosoft}, {"BiasGelu", kElementwise, false, 1, kMicrosoft},
    {"FastGelu", kElementwise, false, 1, kMicrosoft}, {"QuickGelu", kElementwise, false, 1, kMicrosoft},
    {"SkipLayerNormalization", kKernel, false, 1, kMicrosoft},
    {"SkipSimplifiedLayerNormalization", kKernel, false, 1, kMicrosoft},
    {"MultiHeadAttention", kKernel, false, 1, kMicrosoft},
});

constexpr OperatorId index_of(std::string_view name) {
  for (std::size_t i = 0; i < kOperators.size(); ++i) {
    if (kOperators[i].name == name) return static_cast<OperatorId>(i);
  }
  throw "operator missing from the table";
}

constexpr OperatorId kConv = index_of("Conv"), kMatMul = index_of("MatMul"), kGemm = index_of("Gemm"),
                     kCast = index_of("Cast"), kBatchNorm = index_of("BatchNormalization"), kConcat = index_of("Concat"),
                     kSplitOp = index_of("Split"), kSlice = index_of("Slice"), kTranspose = index_of("Transpose"),
                     kPad = index_of("Pad"), kReshape = index_of("Reshape"), kReduceSum = index_of("ReduceSum"),
                     kReduceL2 = index_of("ReduceL2"), kGather = index_of("Gather"), kSoftmax = index_of("Softmax"),
                     kLogSoftmax = index_of("LogSoftmax"), kLayerNorm = index_of("LayerNormalization"),
                     kMaxPool = index_of("MaxPool"), kAveragePool = index_of("AveragePool"),
                     kFirstUnary = index_of("Relu"), kClip = index_of("Clip"), kAdd = index_of("Add"),
                     kMin = index_of("Min"), kConvTranspose = index_of("ConvTranspose"), kAttention = index_of("Attention"),
                     kConstant = index_of("Constant"), kConstantOfShape = index_of("ConstantOfShape"), kEyeLike = index_of("EyeLike"), kExpand = index_of("Expand"), kWhere = index_of("Where"),
                     kEqual = index_of("Equal"), kLess = index_of("Less"), kNot = index_of("Not"), kOr = index_of("Or"),
                     kInstanceNorm = index_of("InstanceNormalization"), kGroupNorm = index_of("GroupNormalization"),
                     kGlobalAveragePool = index_of("GlobalAveragePool"), kGlobalMaxPool = index_of("GlobalMaxPool"),
                     kRmsNorm = index_of("RMSNormalization"), kRotary = index_of("RotaryEmbedding"), kPRelu = index_of("PRelu"),
                     kFusedMatMul = index_of("FusedMatMul"), kFusedGemm = index_of("FusedGemm"), kFusedConv = index_of("FusedConv"),
                     kBiasGelu = index_of("BiasGelu"), kFastGelu = index_of("FastGelu"), kQuickGelu = index_of("QuickGelu"),
                     kSkipNorm = index_of("SkipLayerNormalization"), kSkipRmsNorm = index_of("SkipSimplifiedLayerNormalization"),
                     kMultiHead = index_of("MultiHeadAttention");

using Types = std::span<const TensorType* const>;
using Outputs = std::optional<std::vector<TensorType>>;

constexpr auto kMostExtent = static_cast<std::int64_t>(kMostElements);
constexpr std::int64_t kLargestIdentity = 4096;    // 64 MiB of float32, which is folded at export

// Whether all can be extents, or be added to one without overflow.
bool are_extents(const Dims& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](std::int64_t number) { return number >= 0 && number <= kMostExtent; });
}

Outputs one(int dtype, Dims dims) { return std::vector<TensorType>{{dtype, true, std::move(dims)}}; }

bool all_ranked_alike(Types inputs) {
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](const TensorType* type) {
    return type && type->ranked && type->dtype == inputs[0]->dtype;
  });
}

std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

Outputs infer_elementwise(Types inputs) {
  if (!all_ranked_alike(inputs)) return std::nullopt;
  Dims dims = inputs[0]->dims;
  for (const TensorType* input : inputs.subspan(1)) {
    auto merged = broadcast(dims, input->dims);
    if (!merged) return std::nullopt;
    dims = std::move(*merged);
  }
  return one(inputs[0]->dtype, std::move(dims));
}

Outputs infer_matmul(Types inputs) {
  if (inputs.size() != 2 || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims &a = inputs[0]->dims, &b = inputs[1]->dims;
  if (a.size() < 2 || b.size() < 2 || a.back() != b[b.size() - 2]) return std::nullopt;
  auto dims = broadcast(Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - 2));
  if (!dims) return std::nullopt;
  dims->push_back(a[a.size() - 2]);
  dims->push_back(b.back());
  return one(inputs[0]->dtype, std::move(*dims));
}

Outputs infer_gemm(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 2 || inputs.size() > 3 || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims &a = inputs[0]->dims, &b = inputs[1]->dims;
  if (a.size() != 2 || b.size() != 2) return std::nullopt;
  const bool ta = int_attribute(attributes, "transA", 0) != 0, tb = int_attribute(attributes, "transB", 0) != 0;
  if (a[ta ? 0 : 1] != b[tb ? 1 : 0]) return std::nullopt;
  Dims out = {a[ta ? 1 : 0], b[tb ? 0 : 1]};
  if (inputs.size() == 3 && broadcast(out, inputs[2]->dims) != out) return std::nullopt;
  return one(inputs[0]->dtype, std::move(out));
}

// What a window passes over: `channels` at every place where it fits, in ceil mode also where it begins inside.
Outputs slide(const AttributeMap& attributes, int dtype, const Dims& x, std::int64_t channels) {
  const auto *kernel = ints_attribute(attributes, "kernel_shape"), *strides = ints_attribute(attributes, "strides"),
             *pads = ints_attribute(attributes, "pads"), *dilations = ints_attribute(attributes, "dilations");
  if (x.size() < 3 || !kernel || !strides || !pads || !dilations) return std::nullopt;
  const std::size_t spatial = x.size() - 2;
  if (kernel->size() != spatial || strides->size() != spatial || pads->size() != 2 * spatial ||
      dilations->size() != spatial || !are_extents(*pads) || !are_extents(*dilations)) {
    return std::nullopt;
  }
  const bool ceil = int_attribute(attributes, "ceil_mode", 0) != 0;
  Dims out = {x[0], channels};
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t width = (*kernel)[i], step = (*strides)[i], dilation = (*dilations)[i];
    if (width < 1 || step < 1 || dilation < 1) return std::nullopt;
    if (static_cast<double>(width) * static_cast<double>(dilation) > kMostElements) return std::nullopt;
    const std::int64_t room = x[i + 2] + (*pads)[i] + (*pads)[i + spatial] - (width - 1) * dilation - 1;
    if (room < 0) return std::nullopt;
    const bool more = ceil && room % step != 0 && (room / step + 1) * step < x[i + 2] + (*pads)[i];
    out.push_back(room / step + 1 + more);
  }
  return one(dtype, std::move(out));
}

Outputs infer_conv(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 2 || inputs.size() > 3 || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims &x = inputs[0]->dims, &w = inputs[1]->dims;
  const Dims* kernel = ints_attribute(attributes, "kernel_shape");
  if (x.size() < 3 || w.size() != x.size() || !kernel || kernel->size() != x.size() - 2) return std::nullopt;
  const std::int64_t group = int_attribute(attributes, "group", 1);
  if (group < 1 || x[1] % group != 0 || x[1] / group != w[1] || w[0] % group != 0) return std::nullopt;
  if (inputs.size() == 3 && inputs[2]->dims != Dims{w[0]}) return std::nullopt;
  if (!std::equal(kernel->begin(), kernel->end(), w.begin() + 2)) return std::nullopt;
  return slide(attributes, inputs[0]->dtype, x, w[0]);
}

Outputs infer_pool(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() != 1 || !all_ranked_alike(inputs) || inputs[0]->dims.size() < 3) return std::nullopt;
  const auto *kernel = ints_attribute(attributes, "kernel_shape"), *pads = ints_attribute(attributes, "pads");
  for (std::size_t i = 0; kernel && pads && i < pads->size(); ++i) {    // no window may lie in the padding alone
    if (kernel->empty() || (*pads)[i] >= (*kernel)[i % kernel->size()]) return std::nullopt;
  }
  return slide(attributes, inputs[0]->dtype, inputs[0]->dims, inputs[0]->dims[1]);
}

Outputs infer_global_pool(Types inputs) {
  if (inputs.size() != 1 || !all_ranked_alike(inputs) || inputs[0]->dims.size() < 3) return std::nullopt;
  Dims out = inputs[0]->dims;
  std::fill(out.begin() + 2, out.end(), 1);
  return one(inputs[0]->dtype, std::move(out));
}

Outputs infer_batch_norm(Types inputs) {
  if (inputs.size() != 5 || !all_ranked_alike(inputs) || inputs[0]->dims.size() < 2) return std::nullopt;
  const Dims channels = {inputs[0]->dims[1]};
  const bool fits = std::all_of(inputs.begin() + 1, inputs.end(), [&](const TensorType* type) { return type->dims == channels; });
  return fits ? one(inputs[0]->dtype, inputs[0]->dims) : std::nullopt;
}

Outputs infer_concat(const AttributeMap& attributes, Types inputs) {
  if (!all_ranked_alike(inputs)) return std::nullopt;
  Dims out = inputs[0]->dims;
  const std::int64_t axis = int_attribute(attributes, "axis", -1);
  if (axis < 0 || axis >= static_cast<std::int64_t>(out.size())) return std::nullopt;
  for (const TensorType* input : inputs.subspan(1)) {
    if (input->dims.size() != out.size()) return std::nullopt;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (static_cast<std::int64_t>(i) != axis && input->dims[i] != out[i]) return std::nullopt;
    }
    out[axis] += input->dims[axis];
    if (out[axis] > kMostExtent) return std::nullopt;
  }
  return one(inputs[0]->dtype, std::move(out));
}

Outputs infer_split(const AttributeMap& attributes, Types inputs) {
  const Dims* sizes = ints_attribute(attributes, "split");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !sizes || sizes->empty()) return std::nullopt;
  const std::int64_t axis = int_attribute(attributes, "axis", -1);
  if (axis < 0 || axis >= static_cast<std::int64_t>(inputs[0]->dims.size())) return std::nullopt;
  std::int64_t rest = inputs[0]->dims[axis];
  for (const std::int64_t size : *sizes) {
    if (size < 0 || size > rest) return std::nullopt;
    rest -= size;
  }
  if (rest != 0) return std::nullopt;
  std::vector<TensorType> outputs(sizes->size(), *inputs[0]);
  for (std::size_t i = 0; i < sizes->size(); ++i) outputs[i].dims[axis] = (*sizes)[i];
  return outputs;
}

Outputs infer_slice(const AttributeMap& attributes, Types inputs) {
  const auto *starts = ints_attribute(attributes, "starts"), *ends = ints_attribute(attributes, "ends"),
             *axes = ints_attribute(attributes, "axes"), *steps = ints_attribute(attributes, "steps");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !starts || !ends || !axes || !steps) return std::nullopt;
  if (starts->size() != axes->size() || ends->size() != axes->size() || steps->size() != axes->size()) return std::nullopt;
  TensorType out = *inputs[0];
  for (std::size_t i = 0; i < axes->size(); ++i) {
    const std::int64_t axis = (*axes)[i], start = (*starts)[i], end = (*ends)[i], step = (*steps)[i];
    if (axis < 0 || axis >= static_cast<std::int64_t>(out.dims.size()) || step < 1) return std::nullopt;
    if (start < 0 || end < start || end > inputs[0]->dims[axis]) return std::nullopt;
    out.dims[axis] = end == start ? 0 : (end - start - 1) / step + 1;
  }
  return std::vector<TensorType>{std::move(out)};
}

Outputs infer_transpose(const AttributeMap& attributes, Types inputs) {
  const Dims* perm = ints_attribute(attributes, "perm");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !perm || perm->size() != inputs[0]->dims.size()) {
    return std::nullopt;
  }
  std::vector<bool> seen(perm->size());
  Dims out;
  for (const std::int64_t from : *perm) {
    if (from < 0 || from >= static_cast<std::int64_t>(perm->size()) || seen[from]) return std::nullopt;
    seen[from] = true;
    out.push_back(inputs[0]->dims[from]);
  }
  return one(inputs[0]->dtype, std::move(out));
}

Outputs infer_pad(const AttributeMap& attributes, Types inputs) {
  const Dims* pads = ints_attribute(attributes, "pads");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !pads) return std::nullopt;
  TensorType out = *inputs[0];
  if (pads->size() != 2 * out.dims.size() || !are_extents(*pads)) return std::nullopt;
  for (std::size_t i = 0; i < out.dims.size(); ++i) out.dims[i] += (*pads)[i] + (*pads)[i + out.dims.size()];
  return std::vector<TensorType>{std::move(out)};
}

Outputs infer_reshape(const AttributeMap& attributes, Types inputs) {
  const Dims* shape = ints_attribute(attributes, "shape");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !shape || !are_extents(*shape)) return std::nullopt;
  TensorType out{inputs[0]->dtype, true, *shape};
  if (!out.is_countable() || out.elements() != inputs[0]->elements()) return std::nullopt;
  return std::vector<TensorType>{std::move(out)};
}

Outputs infer_reduce(const AttributeMap& attributes, Types inputs) {
  const Dims* axes = ints_attribute(attributes, "axes");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !axes) return std::nullopt;
  Dims sorted = *axes;
  std::sort(sorted.begin(), sorted.end());
  const bool within = sorted.empty() || (sorted.front() >= 0 && sorted.back() < std::ssize(inputs[0]->dims));
  if (!within || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  const bool keep = int_attribute(attributes, "keepdims", 1) != 0;
  Dims out;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(inputs[0]->dims.size()); ++i) {
    const bool reduced = std::find(axes->begin(), axes->end(), i) != axes->end();
    if (!reduced) out.push_back(inputs[0]->dims[i]);
    if (reduced && keep) out.push_back(1);
  }
  return one(inputs[0]->dtype, std::move(out));
}

Outputs infer_constant(OperatorId op, const AttributeMap& attributes, Types inputs) {
  const auto dtype = static_cast<int>(int_attribute(attributes, "dtype", 0));
  if (!inputs.empty() || !is_floating(dtype)) return std::nullopt;
  if (op == kEyeLike) {
    const std::int64_t size = int_attribute(attributes, "size", 0);
    return size >= 1 && size <= kLargestIdentity ? one(dtype, {size, size}) : std::nullopt;
  }
  const Dims* shape = ints_attribute(attributes, "shape");
  if (!shape || !are_extents(*shape)) return std::nullopt;
  const TensorType type{dtype, true, *shape};
  const Attribute* held = find_attribute(attributes, op == kConstant ? "values" : "value");
  if (!held || !type.is_countable()) return std::nullopt;
  if (op == kConstantOfShape) return std::holds_alternative<double>(*held) ? one(dtype, *shape) : std::nullopt;
  const auto* values = std::get_if<std::vector<double>>(held);
  return values && static_cast<std::int64_t>(values->size()) == type.elements() ? one(dtype, *shape) : std::nullopt;
}

// The first operand's type, where the others, vectors of its extent at `axis`, fit.
Outputs infer_along(Types inputs, std::size_t least, std::size_t most, std::ptrdiff_t axis) {
  if (inputs.size() < least || inputs.size() > most || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims& x = inputs[0]->dims;
  const std::ptrdiff_t at = axis < 0 ? std::ssize(x) + axis : axis;
  if (at < 0 || at >= std::ssize(x)) return std::nullopt;
  const auto fits = [&](const TensorType* type) { return type->dims == Dims{x[at]}; };
  return std::all_of(inputs.begin() + 1, inputs.end(), fits) ? one(inputs[0]->dtype, x) : std::nullopt;
}

// Scale and bias are broadcast to what is normalised.
Outputs infer_norm(const AttributeMap& attributes, Types inputs, std::size_t most) {
  if (inputs.size() < 2 || inputs.size() > most || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims& x = inputs[0]->dims;
  const std::int64_t axis = int_attribute(attributes, "axis", -1);
  if (axis < 0 || axis >= std::ssize(x)) return std::nullopt;
  const Dims normalised(x.begin() + axis, x.end());
  const auto fits = [&](const TensorType* type) { return broadcast(normalised, type->dims) == normalised; };
  return std::all_of(inputs.begin() + 1, inputs.end(), fits) ? one(inputs[0]->dtype, x) : std::nullopt;
}

// (input, skip, gamma, [beta], [bias]): the sum of input and skip, normalised.
Outputs infer_skip_norm(Types inputs, std::size_t most) {
  if (inputs.size() < 3 || inputs.size() > most || !all_ranked_alike(inputs) || inputs[0]->dims != inputs[1]->dims) return std::nullopt;
  if (inputs[0]->dims.size() < 2) return std::nullopt;
  const auto fits = [&](const TensorType* type) { return type->dims == Dims{inputs[0]->dims.back()}; };
  return std::all_of(inputs.begin() + 2, inputs.end(), fits) ? one(inputs[0]->dtype, inputs[0]->dims) : std::nullopt;
}

Outputs infer_expand(const AttributeMap& attributes, Types inputs) {
  const Dims* shape = ints_attribute(attributes, "shape");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !shape || !are_extents(*shape)) return std::nullopt;
  return broadcast(inputs[0]->dims, *shape) == *shape ? one(inputs[0]->dtype, *shape) : std::nullopt;
}

// Bounds are scalars.
Outputs infer_clip(Types inputs) {
  if (inputs.empty() || inputs.size() > 3 || !all_ranked_alike(inputs)) return std::nullopt;
  const bool fit = std::all_of(inputs.begin() + 1, inputs.end(), [](const TensorType* bound) { return bound->dims.empty(); });
  return fit ? one(inputs[0]->dtype, inputs[0]->dims) : std::nullopt;
}

constexpr int kBool = 9;    // TensorProto.BOOL

Outputs infer_where(Types inputs) {
  if (inputs.size() != 3 || !inputs[0] || !inputs[0]->ranked || inputs[0]->dtype != kBool) return std::nullopt;
  const Outputs chosen = infer_elementwise(inputs.subspan(1));
  auto dims = chosen ? broadcast((*chosen)[0].dims, inputs[0]->dims) : std::nullopt;
  return dims ? one((*chosen)[0].dtype, std::move(*dims)) : std::nullopt;
}

// Comparisons and logic.
Outputs infer_truth(Types inputs, bool of_truths) {
  Outputs outputs = infer_elementwise(inputs);
  if (!outputs || (of_truths && inputs[0]->dtype != kBool)) return std::nullopt;
  (*outputs)[0].dtype = kBool;
  return outputs;
}

Outputs infer_cast(const AttributeMap& attributes, Types inputs) {
  const std::int64_t to = int_attribute(attributes, "to", 0);
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || to < 1 || to > 26) return std::nullopt;
  return one(static_cast<int>(to), inputs[0]->dims);
}

Outputs infer_fused_matmul(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() != 2 || !all_ranked_alike(inputs)) return std::nullopt;
  if (int_attribute(attributes, "transBatchA", 0) != 0 || int_attribute(attributes, "transBatchB", 0) != 0) return std::nullopt;
  TensorType a = *inputs[0], b = *inputs[1];
  if (a.dims.size() < 2 || b.dims.size() < 2) return std::nullopt;
  if (int_attribute(attributes, "transA", 0) != 0) std::swap(a.dims.end()[-1], a.dims.end()[-2]);
  if (int_attribute(attributes, "transB", 0) != 0) std::swap(b.dims.end()[-1], b.dims.end()[-2]);
  const TensorType* turned[] = {&a, &b};
  return infer_matmul(turned);
}

// (X, W, [B], [Z]): a convolution to which Z is added.
Outputs infer_fused_conv(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() > 4) return std::nullopt;
  Outputs outputs = infer_conv(attributes, inputs.first(std::min<std::size_t>(inputs.size(), 3)));
  const bool fits = inputs.size() < 4 || (outputs && inputs[3] && *inputs[3] == (*outputs)[0]);
  return fits ? std::move(outputs) : std::nullopt;
}

// (Q, K, V, [mask]), each [batch, heads, length, size] or [batch, length, heads * size].
Outputs infer_attention(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 3 || inputs.size() > 4 || !all_ranked_alike(inputs.first(3))) return std::nullopt;
  const Dims &q = inputs[0]->dims, &k = inputs[1]->dims, &v = inputs[2]->dims;
  if (q.size() != k.size() || q.size() != v.size() || q[0] != k[0] || q[0] != v[0]) return std::nullopt;
  Dims scores, out;
  if (q.size() == 4) {
    if (k[1] < 1 || q[1] % k[1] != 0 || k[1] != v[1] || q[3] != k[3] || k[2] != v[2]) return std::nullopt;
    scores = {q[0], q[1], q[2], k[2]}, out = {q[0], q[1], q[2], v[3]};
  } else if (q.size() == 3) {
    const std::int64_t heads = int_attribute(attributes, "q_num_heads", 0), shared = int_attribute(attributes, "kv_num_heads", 0);
    if (heads < 1 || shared < 1 || heads % shared != 0 || q[2] % heads != 0 || k[2] % shared != 0 || v[2] % shared != 0) return std::nullopt;
    if (q[2] / heads != k[2] / shared || k[1] != v[1]) return std::nullopt;
    scores = {q[0], heads, q[1], k[1]}, out = {q[0], q[1], heads * (v[2] / shared)};
  } else {
    return std::nullopt;
  }
  if (inputs.size() == 4) {
    const bool kind = inputs[3] && inputs[3]->ranked && (inputs[3]->dtype == kBool || inputs[3]->dtype == inputs[0]->dtype);
    if (!kind || broadcast(scores, inputs[3]->dims) != scores) return std::nullopt;
  }
  return one(inputs[0]->dtype, std::move(out));
}

// (Q, K, V, [bias]), each [batch, length, heads * size].
Outputs infer_multi_head(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 3 || inputs.size() > 4 || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims &q = inputs[0]->dims, &k = inputs[1]->dims, &v = inputs[2]->dims;
  const std::int64_t heads = int_attribute(attributes, "num_heads", 0);
  if (q.size() != 3 || k.size() != 3 || v.size() != 3 || heads < 1 || q[2] % heads != 0 || v[2] % heads != 0) return std::nullopt;
  if (q[0] != k[0] || q[0] != v[0] || q[2] != k[2] || k[1] != v[1]) return std::nullopt;
  if (inputs.size() == 4 && inputs[3]->dims != Dims{q[2] + k[2] + v[2]}) return std::nullopt;
  return one(inputs[0]->dtype, {q[0], q[1], v[2]});
}

// (X, cos, sin, [positions]), X [batch, heads, length, size] or [batch, length, heads * size].
Outputs infer_rotary(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 3 || inputs.size() > 4 || !all_ranked_alike(inputs.first(3))) return std::nullopt;
  const Dims &x = inputs[0]->dims, &cos = inputs[1]->dims, &sin = inputs[2]->dims;
  const std::int64_t heads = int_attribute(attributes, "num_heads", 0), part = int_attribute(attributes, "rotary_embedding_dim", 0);
  if ((x.size() != 3 && x.size() != 4) || (x.size() == 3 && (heads < 1 || x[2] % heads != 0)) || cos != sin) return std::nullopt;
  const std::int64_t length = x.size() == 4 ? x[2] : x[1], size = part > 0 ? part : x.size() == 4 ? x[3] : x[2] / heads;
  if (size % 2 != 0 || cos.empty() || cos.back() != size / 2) return std::nullopt;
  if (inputs.size() == 3) return cos == Dims{x[0], length, size / 2} ? one(inputs[0]->dtype, x) : std::nullopt;
  constexpr int kInt64 = 7;
  const bool positions = inputs[3] && inputs[3]->dtype == kInt64 && inputs[3]->ranked && inputs[3]->dims == Dims{x[0], length};
  return positions && cos.size() == 2 ? one(inputs[0]->dtype, x) : std::nullopt;
}

double sum_bytes(Types types) {
  double total = 0;
  for (const TensorType* type : types) total += type ? static_cast<double>(type->bytes()) : 0.0;
  return total;
}

// At most kMostElements, so that prices stay finite whatever an unknown operator calls its kernel.
double kernel_window(const AttributeMap& attributes) {
  const Dims* kernel = ints_attribute(attributes, "kernel_shape");
  double window = 1;
  for (const std::int64_t extent : kernel ? *kernel : Dims{}) window *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  return std::min(window, kMostElements);
}

Outputs infer_any(OperatorId op, const AttributeMap& attributes, Types inputs) {
  switch (op) {
    case kConv: return infer_conv(attributes, inputs);
    case kMatMul: return infer_matmul(inputs);
    case kGemm: return infer_gemm(attributes, inputs);
    case kConcat: return infer_concat(attributes, inputs);
    case kSplitOp: return infer_split(attributes, inputs);
    case kSlice: return infer_slice(attributes, inputs);
    case kTranspose: return infer_transpose(attributes, inputs);
    case kPad: return infer_pad(attributes, inputs);
    case kReshape: return infer_reshape(attributes, inputs);
    case kMaxPool:
    case kAveragePool: return infer_pool(attributes, inputs);
    case kGlobalAveragePool:
    case kGlobalMaxPool: return infer_global_pool(inputs);
    case kBatchNorm: return infer_batch_norm(inputs);
    case kSoftmax:
    case kLogSoftmax: return inputs.size() == 1 ? infer_elementwise(inputs) : std::nullopt;
    case kConstant:
    case kConstantOfShape:
    case kEyeLike: return infer_constant(op, attributes, inputs);
    case kInstanceNorm: return infer_along(inputs, 3, 3, 1);
    case kGroupNorm: return infer_along(inputs, 3, 3, 1);
    case kLayerNorm: return infer_norm(attributes, inputs, 3);
    case kRmsNorm: return infer_norm(attributes, inputs, 2);
    case kSkipNorm: return infer_skip_norm(inputs, 5);
    case kSkipRmsNorm: return infer_skip_norm(inputs, 4);
    case kExpand: return infer_expand(attributes, inputs);
    case kWhere: return infer_where(inputs);
    case kCast: return infer_cast(attributes, inputs);
    case kNot: return inputs.size() == 1 ? infer_truth(inputs, true) : std::nullopt;
    case kPRelu: return inputs.size() == 2 && infer_elementwise(inputs) == one(inputs[0]->dtype, inputs[0]->dims) ? one(inputs[0]->dtype, inputs[0]->dims) : std::nullopt;
    case kFusedMatMul: return infer_fused_matmul(attributes, inputs);
    case kFusedGemm: return infer_gemm(attributes, inputs);
    case kFusedConv: return infer_fused_conv(attributes, inputs);
    case kBiasGelu: return infer_along(inputs, 2, 2, -1);
    case kFastGelu: return infer_along(inputs, 1, 2, -1);
    case kQuickGelu: return infer_along(inputs, 1, 1, -1);
    case kAttention: return infer_attention(attributes, inputs);
    case kMultiHead: return infer_multi_head(attributes, inputs);
    case kRotary: return infer_rotary(attributes, inputs);
    default: break;
  }
  if (op >= kReduceSum && op <= kReduceL2) return infer_reduce(attributes, inputs);
  if (op > kNot && op <= kLess) return inputs.size() == 2 ? infer_truth(inputs, op <= kOr) : std::nullopt;
  if (op >= kAdd && op <= kMin) return infer_elementwise(inputs);
  if (op == kClip) return infer_clip(inputs);
  if (op >= kFirstUnary && op < kClip) return inputs.size() == 1 ? infer_elementwise(inputs) : std::nullopt;
  return std::nullopt;
}

}  // namespace

static_assert(kOperators.size() <= OperatorSet::kMost, "give OperatorSet another word");

OperatorId known_operator_count() { return static_cast<OperatorId>(kOperators.size()); }

std::string dotted_name(const OperatorInfo& info) {
  return info.domain.empty() ? std::string(info.name) : std::string(info.domain) + "." + std::string(info.name);
}

std::optional<OperatorId> known_operator(std::string_view name) {
  static const auto* const index = [] {
    auto* map = new std::unordered_map<std::string, OperatorId>();
    for (OperatorId i = 0; i < kOperators.size(); ++i) map->emplace(dotted_name(kOperators[i]), i);
    return map;
  }();
  const auto at = index->find(std::string(name));
  return at == index->end() ? std::nullopt : std::optional(at->second);
}

const OperatorInfo& operator_info(OperatorId known) { return kOperators.at(known); }

Outputs infer_outputs(OperatorId op, const AttributeMap& attributes, Types inputs) {
  Outputs outputs = infer_any(op, attributes, inputs);
  if (!outputs) return std::nullopt;
  for (TensorType& output : *outputs) {
    if (!output.is_countable()) return std::nullopt;
    output.content = {};
  }
  return outputs;
}

// Attributes that a target may leave out. ONNX's defaults, but for the sizes that normal forms always have.
struct Default {
  std::string_view op, name;
  double number = 0;
  bool real = false;
  std::string_view text{};
};
constexpr Default kDefaults[] = {
    {"Pad", "mode", 0, false, "constant"}, {"Pad", "value", 0, true}, {"Gelu", "approximate", 0, false, "none"},
    {"MaxPool", "ceil_mode"}, {"AveragePool", "ceil_mode"}, {"AveragePool", "count_include_pad"},
    {"Gemm", "alpha", 1, true}, {"Gemm", "beta", 1, true}, {"Gemm", "transA"}, {"Gemm", "transB"},
    {"RotaryEmbedding", "interleaved"}, {"RotaryEmbedding", "num_heads"}, {"RotaryEmbedding", "rotary_embedding_dim"},
    {"Attention", "is_causal"}, {"Attention", "softcap", 0, true},
    {"FusedMatMul", "alpha", 1, true}, {"FusedMatMul", "transA"}, {"FusedMatMul", "transB"},
    {"FusedMatMul", "transBatchA"}, {"FusedMatMul", "transBatchB"},
    {"FusedGemm", "alpha", 1, true}, {"FusedGemm", "beta", 1, true}, {"FusedGemm", "transA"}, {"FusedGemm", "transB"},
    {"MultiHeadAttention", "unidirectional"}, {"MultiHeadAttention", "mask_filter_value", -10000, true},
};

bool makes_constant(OperatorId op) { return op == kConstant || op == kConstantOfShape || op == kEyeLike; }

void complete_attributes(OperatorId op, AttributeMap& attributes, int dtype) {
  const auto add = [&](std::string_view name, Attribute value) {
    const auto at = std::lower_bound(attributes.begin(), attributes.end(), name, [](const auto& entry, std::string_view key) { return entry.first < key; });
    if (at == attributes.end() || at->first != name) attributes.emplace(at, std::string(name), std::move(value));
  };
  if (makes_constant(op)) add("dtype", std::int64_t{dtype});
  for (const Default& each : kDefaults) {
    if (kOperators[op].name == each.op) add(each.name, each.text.empty() ? each.real ? Attribute(each.number) : Attribute(static_cast<std::int64_t>(each.number)) : Attribute(std::string(each.text)));
  }
}

double count_flops(OperatorId op, const AttributeMap& attributes, Types inputs, Types outputs) {
  const auto elements = [](const TensorType* type) { return type ? static_cast<double>(type->elements()) : 0.0; };
  const double out = outputs.empty() ? 0.0 : elements(outputs[0]);
  const double in = inputs.empty() ? 0.0 : elements(inputs[0]);
  switch (op) {
    case kConv:
    case kFusedConv:
    case kConvTranspose: {
      const TensorType* weights = inputs.size() > 1 ? inputs[1] : nullptr;
      if (!weights || weights->dims.size() < 2) return out;
      const double each = 2.0 * static_cast<double>(weights->dims[1]) * kernel_window(attributes);
      return (op == kConvTranspose ? in : out) * each + (inputs.size() > 2 ? out : 0.0);
    }
    case kMatMul: return !inputs.empty() && inputs[0] && !inputs[0]->dims.empty() ? 2.0 * out * static_cast<double>(inputs[0]->dims.back()) : out;
    case kFusedMatMul: {
      const Dims& a = inputs.empty() || !inputs[0] ? Dims{} : inputs[0]->dims;
      const std::size_t behind = int_attribute(attributes, "transA", 0) != 0 ? 2 : 1;
      return a.size() >= behind ? 2.0 * out * static_cast<double>(a[a.size() - behind]) : out;
    }
    case kFusedGemm:
    case kGemm: {
      if (inputs.empty() || !inputs[0] || inputs[0]->dims.size() != 2) return out;
      const double depth = static_cast<double>(inputs[0]->dims[int_attribute(attributes, "transA", 0) ? 0 : 1]);
      return 2.0 * out * depth + (inputs.size() > 2 ? out : 0.0);
    }
    case kMultiHead:
    case kAttention: {
      // Two products of [.., q, d] with [.., d, k]; the key length is the second-to-last extent of the key.
      const TensorType* key = inputs.size() > 1 ? inputs[1] : nullptr;
      return key && key->dims.size() > 1 ? 4.0 * out * static_cast<double>(key->dims[key->dims.size() - 2]) : out;
    }
    case kMaxPool:
    case kAveragePool: return out * kernel_window(attributes);
    case kSoftmax:
    case kLogSoftmax: return 5.0 * out;
    case kLayerNorm: return 8.0 * out;
    case kSkipNorm:
    case kSkipRmsNorm: return 9.0 * out;
    case kBatchNorm: return 2.0 * out;
    case kCast: return 0.0;
    default: break;
  }
  if (op >= known_operator_count()) return out;
  switch (operator_info(op).execution) {
    case kElementwise: return out * std::max<double>(1.0, static_cast<double>(inputs.size()) - 1.0);
    case kKernel:
    case kOpaque: return std::max(in, out);
    default: return 0.0;
  }
}

double count_bytes(OperatorId op, Types inputs, Types outputs) {
  if (op == kGather) {  // reads the rows it picks, not the table
    return 2.0 * sum_bytes(outputs) + (inputs.size() > 1 && inputs[1] ? static_cast<double>(inputs[1]->bytes()) : 0.0);
  }
  if (op == kSlice) return 2.0 * sum_bytes(outputs);
  return sum_bytes(inputs) + sum_bytes(outputs);
}

}  // namespace rlflow
