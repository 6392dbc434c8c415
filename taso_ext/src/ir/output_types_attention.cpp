// Output types of attention operators and of what goes with them.
#include "ir/output_types.hpp"

namespace rlflow::operators {

// (Q, K, V, [mask]), each [batch, heads, length, size] or [batch, length, heads * size]. Queries and keys are each scaled
// by the root of `scale`, which therefore is positive.
Outputs infer_attention(const AttributeMap& attributes, Types inputs) {
  const Attribute* const scale = find_attribute(attributes, "scale");
  const double* const factor = scale ? std::get_if<double>(scale) : nullptr;
  if (scale && !(factor && *factor > 0)) return std::nullopt;
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

}  // namespace rlflow::operators
