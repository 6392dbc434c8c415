// Output types of elementwise operators and norms, and of all others by the family they belong to.
#include "ir/output_types.hpp"

#include <algorithm>

#include "ir/operator_table.hpp"

namespace rlflow {
namespace operators {

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

namespace {

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

Outputs infer_batch_norm(Types inputs) {
  if (inputs.size() != 5 || !all_ranked_alike(inputs) || inputs[0]->dims.size() < 2) return std::nullopt;
  const Dims channels = {inputs[0]->dims[1]};
  const bool fits = std::all_of(inputs.begin() + 1, inputs.end(), [&](const TensorType* type) { return type->dims == channels; });
  return fits ? one(inputs[0]->dtype, inputs[0]->dims) : std::nullopt;
}

// Returns the first operand's type if all others are vectors whose extent is that of the first at `axis`.
Outputs infer_along(Types inputs, std::size_t least, std::size_t most, std::ptrdiff_t axis) {
  if (inputs.size() < least || inputs.size() > most || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims& x = inputs[0]->dims;
  const std::ptrdiff_t at = axis < 0 ? std::ssize(x) + axis : axis;
  if (at < 0 || at >= std::ssize(x)) return std::nullopt;
  const auto fits = [&](const TensorType* type) { return type->dims == Dims{x[at]}; };
  return std::all_of(inputs.begin() + 1, inputs.end(), fits) ? one(inputs[0]->dtype, x) : std::nullopt;
}

Outputs infer_group_norm(const AttributeMap& attributes, Types inputs) {
  const std::int64_t groups = int_attribute(attributes, "num_groups", 0);
  Outputs outputs = infer_along(inputs, 3, 3, 1);
  return outputs && groups > 0 && inputs[0]->dims[1] % groups == 0 ? outputs : std::nullopt;
}

// Returns the first operand's type if scale and bias broadcast to the axes that are normalised.
Outputs infer_norm(const AttributeMap& attributes, Types inputs, std::size_t most) {
  if (inputs.size() < 2 || inputs.size() > most || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims& x = inputs[0]->dims;
  const std::int64_t axis = int_attribute(attributes, "axis", -1);
  if (axis < 0 || axis >= std::ssize(x)) return std::nullopt;
  const Dims normalised(x.begin() + axis, x.end());
  const auto fits = [&](const TensorType* type) { return broadcast(normalised, type->dims) == normalised; };
  return std::all_of(inputs.begin() + 1, inputs.end(), fits) ? one(inputs[0]->dtype, x) : std::nullopt;
}

// The operands are (input, skip, gamma, [beta], [bias]); the sum of input and skip is normalised.
Outputs infer_skip_norm(Types inputs, std::size_t most) {
  if (inputs.size() < 3 || inputs.size() > most || !all_ranked_alike(inputs) || inputs[0]->dims != inputs[1]->dims) return std::nullopt;
  if (inputs[0]->dims.size() < 2) return std::nullopt;
  const auto fits = [&](const TensorType* type) { return type->dims == Dims{inputs[0]->dims.back()}; };
  return std::all_of(inputs.begin() + 2, inputs.end(), fits) ? one(inputs[0]->dtype, inputs[0]->dims) : std::nullopt;
}

// Returns the first operand's type if the bounds are scalars.
Outputs infer_clip(Types inputs) {
  if (inputs.empty() || inputs.size() > 3 || !all_ranked_alike(inputs)) return std::nullopt;
  const bool fit = std::all_of(inputs.begin() + 1, inputs.end(), [](const TensorType* bound) { return bound->dims.empty(); });
  return fit ? one(inputs[0]->dtype, inputs[0]->dims) : std::nullopt;
}

Outputs infer_where(Types inputs) {
  if (inputs.size() != 3 || !inputs[0] || !inputs[0]->ranked || inputs[0]->dtype != kBool) return std::nullopt;
  const Outputs chosen = infer_elementwise(inputs.subspan(1));
  auto dims = chosen ? broadcast((*chosen)[0].dims, inputs[0]->dims) : std::nullopt;
  return dims ? one((*chosen)[0].dtype, std::move(*dims)) : std::nullopt;
}

// Infers comparisons, and logic if `of_truths` is true: its operands are booleans.
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

Outputs infer_any(OperatorId op, const AttributeMap& attributes, Types inputs) {
  switch (op) {
    case kConv: return infer_conv(attributes, inputs);
    case kConvTranspose: return infer_conv_transpose(attributes, inputs);
    case kMatMul: return infer_matmul(inputs);
    case kGemm: return infer_gemm(attributes, inputs);
    case kEinsum: return infer_einsum(attributes, inputs);
    case kConcat: return infer_concat(attributes, inputs);
    case kSplitOp: return infer_split(attributes, inputs);
    case kSlice: return infer_slice(attributes, inputs);
    case kTranspose: return infer_transpose(attributes, inputs);
    case kArgMax: return infer_arg_max(attributes, inputs);
    case kDepthToSpace: return infer_depth_to_space(attributes, inputs);
    case kSpaceToDepth: return infer_space_to_depth(attributes, inputs);
    case kPad: return infer_pad(attributes, inputs);
    case kReshape: return infer_reshape(attributes, inputs);
    case kMaxPool:
    case kAveragePool: return infer_pool(attributes, inputs);
    case kGlobalAveragePool:
    case kGlobalMaxPool: return infer_global_pool(inputs);
    case kBatchNorm: return infer_batch_norm(inputs);
    case kLrn: return inputs.size() == 1 && all_ranked_alike(inputs) && inputs[0]->dims.size() >= 2 ? infer_elementwise(inputs) : std::nullopt;
    case kDropout:    // of its own ratio; runtimes refuse most numbers as an operand
    case kSoftmax:
    case kLogSoftmax: return inputs.size() == 1 ? infer_elementwise(inputs) : std::nullopt;
    case kConstant:
    case kConstantOfShape:
    case kEyeLike: return infer_constant(op, attributes, inputs);
    case kInstanceNorm: return infer_along(inputs, 3, 3, 1);
    case kGroupNorm: return infer_group_norm(attributes, inputs);
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

// Element types that an operator's operands may have; unlisted operators may have any, and check for themselves.
enum class Elements : std::uint8_t { kFloating, kSigned, kNumbers, kWideNumbers, kFloat32, kNotDouble };

// Returns what ONNX's schemas say (opset 23), in as far as it does not follow from the shapes' inference.
std::optional<Elements> elements_of(OperatorId op) {
  if (op >= kReduceSum && op <= kReduceL2) return Elements::kWideNumbers;
  static constexpr std::pair<std::string_view, Elements> kListed[] = {
      {"Add", Elements::kNumbers}, {"Sub", Elements::kNumbers}, {"Mul", Elements::kNumbers}, {"Div", Elements::kNumbers},
      {"Max", Elements::kNumbers}, {"Min", Elements::kNumbers}, {"Abs", Elements::kNumbers}, {"Sign", Elements::kNumbers},
      {"Clip", Elements::kNumbers}, {"Greater", Elements::kNumbers}, {"Less", Elements::kNumbers},
      {"Relu", Elements::kSigned}, {"Neg", Elements::kSigned}, {"Pow", Elements::kSigned},
      {"MatMul", Elements::kWideNumbers}, {"Gemm", Elements::kWideNumbers}, {"PRelu", Elements::kWideNumbers},
      {"Einsum", Elements::kNumbers}, {"Dropout", Elements::kFloating}, {"Conv", Elements::kFloating}, {"ConvTranspose", Elements::kFloating}, {"LRN", Elements::kFloating},
      {"ArgMax", Elements::kNumbers}, {"Sum", Elements::kFloating}, {"BatchNormalization", Elements::kFloating},
      {"Softmax", Elements::kFloating}, {"LogSoftmax", Elements::kFloating}, {"LayerNormalization", Elements::kFloating},
      {"InstanceNormalization", Elements::kFloating}, {"GroupNormalization", Elements::kFloating},
      {"AveragePool", Elements::kFloating}, {"GlobalAveragePool", Elements::kFloating}, {"GlobalMaxPool", Elements::kFloating},
      {"Attention", Elements::kFloating}, {"RMSNormalization", Elements::kFloating},
      {"Celu", Elements::kFloat32}, {"RotaryEmbedding", Elements::kNotDouble},
  };
  const OperatorInfo& info = kOperators[op];
  if (!info.domain.empty()) return std::nullopt;
  const auto* at = std::find_if(std::begin(kListed), std::end(kListed), [&](const auto& entry) { return entry.first == info.name; });
  if (at != std::end(kListed)) return at->second;
  // All other functions of one number are of floating ones.
  return op >= kFirstUnary && op < kClip ? std::optional(Elements::kFloating) : std::nullopt;
}

bool may_have(Elements elements, int dtype) {
  constexpr int kFloat = 1, kUint8 = 2, kInt8 = 3, kUint16 = 4, kInt16 = 5, kInt32 = 6, kDouble = 11, kUint32 = 12, kUint64 = 13;
  if (is_floating(dtype)) return (elements != Elements::kFloat32 || dtype == kFloat) && (elements != Elements::kNotDouble || dtype != kDouble);
  const bool is_signed = dtype == kInt8 || dtype == kInt16 || dtype == kInt32 || dtype == kInt64;
  switch (elements) {
    case Elements::kSigned: return is_signed;
    case Elements::kNumbers: return is_signed || dtype == kUint8 || dtype == kUint16 || dtype == kUint32 || dtype == kUint64;
    case Elements::kWideNumbers: return dtype == kInt32 || dtype == kInt64 || dtype == kUint32 || dtype == kUint64;
    default: return false;
  }
}

}  // namespace
}  // namespace operators

std::optional<std::vector<TensorType>> infer_outputs(OperatorId op, const AttributeMap& attributes, std::span<const TensorType* const> inputs) {
  if (op >= operators::kOperators.size()) return std::nullopt;
  const auto elements = operators::elements_of(op);
  if (elements && !inputs.empty() && inputs[0] && !operators::may_have(*elements, inputs[0]->dtype)) return std::nullopt;
  auto outputs = operators::infer_any(op, attributes, inputs);
  if (!outputs) return std::nullopt;
  for (TensorType& output : *outputs) {
    if (!output.is_countable()) return std::nullopt;
    output.content = {};
  }
  return outputs;
}

}  // namespace rlflow
