// Functions that return the output types of one family of operators, or nothing if the inputs do not fit.
// infer_outputs() of operators.hpp chooses among them.
#pragma once

#include "ir/types.hpp"

namespace rlflow::operators {

using Types = std::span<const TensorType* const>;
using Outputs = std::optional<std::vector<TensorType>>;

inline constexpr auto kMostExtent = static_cast<std::int64_t>(kMostElements);
inline constexpr int kInt64 = 7, kBool = 9;    // TensorProto.INT64 and BOOL

// output_types.cpp: helpers of several families.
[[nodiscard]] Outputs one(int dtype, Dims dims);
[[nodiscard]] bool all_ranked_alike(Types inputs);
[[nodiscard]] bool are_extents(const Dims& numbers);    // all in [0, kMostExtent]: sums of a few cannot overflow
[[nodiscard]] std::optional<Dims> broadcast(const Dims& a, const Dims& b);

// output_types_linear.cpp: products, windows, attention.
[[nodiscard]] Outputs infer_matmul(Types inputs);
[[nodiscard]] Outputs infer_fused_matmul(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_gemm(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_einsum(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_conv(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_fused_conv(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_conv_transpose(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_pool(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_global_pool(Types inputs);
[[nodiscard]] Outputs infer_attention(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_multi_head(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_rotary(const AttributeMap& attributes, Types inputs);

// output_types_layout.cpp: operators that move elements or reduce them, and constants.
[[nodiscard]] Outputs infer_concat(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_split(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_slice(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_transpose(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_pad(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_reshape(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_reduce(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_arg_max(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_depth_to_space(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_space_to_depth(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_expand(const AttributeMap& attributes, Types inputs);
[[nodiscard]] Outputs infer_constant(OperatorId op, const AttributeMap& attributes, Types inputs);

}  // namespace rlflow::operators
