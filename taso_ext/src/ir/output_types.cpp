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
}  // namespace operators

std::optional<std::vector<TensorType>> infer_outputs(OperatorId op, const AttributeMap& attributes, std::span<const TensorType* const> inputs) {
  auto outputs = operators::infer_any(op, attributes, inputs);
  if (!outputs) return std::nullopt;
  for (TensorType& output : *outputs) {
    if (!output.is_countable()) return std::nullopt;
    output.content = {};
  }
  return outputs;
}

}  // namespace rlflow
