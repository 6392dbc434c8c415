// Output types of products, of operators that slide a window, and of attention.
#include <algorithm>
#include <array>
#include <map>

#include "ir/output_types.hpp"

namespace rlflow::operators {

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

// Every letter of the equation is one extent of all the operands that it occurs in. Without an arrow, the result has the
// letters that occur once, in alphabetical order. An ellipsis is not inferred.
Outputs infer_einsum(const AttributeMap& attributes, Types inputs) {
  const Attribute* const attribute = find_attribute(attributes, "equation");
  const auto* const text = attribute ? std::get_if<std::string>(attribute) : nullptr;
  if (!text || !all_ranked_alike(inputs)) return std::nullopt;
  std::array<std::int64_t, 128> extents;
  extents.fill(-1);
  std::map<char, int> counts;
  std::string equation = *text;
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  std::size_t input = 0, axis = 0;
  for (const char letter : equation.substr(0, arrow) + ",") {
    if (letter == ',') {
      if (input >= inputs.size() || axis != inputs[input]->dims.size()) return std::nullopt;
      ++input, axis = 0;
      continue;
    }
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (!is_letter || input >= inputs.size() || axis >= inputs[input]->dims.size()) return std::nullopt;
    std::int64_t& extent = extents[static_cast<std::size_t>(letter)];
    const std::int64_t given = inputs[input]->dims[axis++];
    if (extent >= 0 && extent != given) return std::nullopt;
    extent = given;
    ++counts[letter];
  }
  if (input != inputs.size()) return std::nullopt;
  std::string result = arrow == std::string::npos ? "" : equation.substr(arrow + 2);
  if (arrow == std::string::npos) {
    for (const auto& [letter, count] : counts) result += count == 1 ? std::string(1, letter) : "";
  }
  Dims out;
  for (const char letter : result) {
    if (!counts.contains(letter) || std::count(result.begin(), result.end(), letter) > 1) return std::nullopt;
    out.push_back(extents[static_cast<std::size_t>(letter)]);
  }
  return one(inputs[0]->dtype, std::move(out));
}

// Returns the result's type for a sliding window: `channels` channels, and an element for every position at which the
// window fits; in ceil mode also for a last position at which it only begins inside.
static Outputs slide(const AttributeMap& attributes, int dtype, const Dims& x, std::int64_t channels) {
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

// Only the form with explicit pads is known, and none with a given output shape.
Outputs infer_conv_transpose(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 2 || inputs.size() > 3 || !all_ranked_alike(inputs)) return std::nullopt;
  if (find_attribute(attributes, "output_shape") || find_attribute(attributes, "auto_pad")) return std::nullopt;
  const Dims &x = inputs[0]->dims, &w = inputs[1]->dims;
  if (x.size() < 3 || w.size() != x.size() || x[1] != w[0]) return std::nullopt;
  const std::size_t spatial = x.size() - 2;
  const Dims kernel(w.begin() + 2, w.end());
  const auto list = [&](std::string_view name, const Dims& otherwise) {
    const Dims* given = ints_attribute(attributes, name);
    return given ? *given : otherwise;
  };
  const Dims strides = list("strides", Dims(spatial, 1)), dilations = list("dilations", Dims(spatial, 1)),
             pads = list("pads", Dims(2 * spatial, 0)), more = list("output_padding", Dims(spatial, 0));
  const std::int64_t group = int_attribute(attributes, "group", 1);
  if (list("kernel_shape", kernel) != kernel || group < 1 || x[1] % group != 0) return std::nullopt;
  for (const Dims* each : {&strides, &dilations, &more}) {
    if (each->size() != spatial || !are_extents(*each)) return std::nullopt;
  }
  if (pads.size() != 2 * spatial || !are_extents(pads)) return std::nullopt;
  Dims out = {x[0], w[1] * group};
  if (inputs.size() == 3 && inputs[2]->dims != Dims{out[1]}) return std::nullopt;
  for (std::size_t i = 0; i < spatial; ++i) {
    if (strides[i] < 1 || dilations[i] < 1 || kernel[i] < 1 || x[i + 2] < 1 || more[i] >= std::max(strides[i], dilations[i])) return std::nullopt;
    const double widest = static_cast<double>(strides[i]) * static_cast<double>(x[i + 2]) + static_cast<double>(kernel[i]) * static_cast<double>(dilations[i]);
    if (widest > kMostElements) return std::nullopt;
    const std::int64_t whole = strides[i] * (x[i + 2] - 1) + (kernel[i] - 1) * dilations[i] + 1 + more[i];
    if (pads[i] + pads[i + spatial] >= whole) return std::nullopt;
    out.push_back(whole - pads[i] - pads[i + spatial]);
  }
  return one(inputs[0]->dtype, std::move(out));
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

// The operands are (X, W, [B], [Z]); Z is added to the convolution.
Outputs infer_fused_conv(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() > 4) return std::nullopt;
  Outputs outputs = infer_conv(attributes, inputs.first(std::min<std::size_t>(inputs.size(), 3)));
  const bool fits = inputs.size() < 4 || (outputs && inputs[3] && *inputs[3] == (*outputs)[0]);
  return fits ? std::move(outputs) : std::nullopt;
}

// The operands are (Q, K, V, [mask]). Q, K and V are each [batch, heads, length, size] or [batch, length, heads *
// size]. Queries and keys are each multiplied by the square root of `scale`, which therefore must be positive.
Outputs infer_attention(const AttributeMap& attributes, Types inputs) {
  const Attribute* const scale = find_attribute(attributes, "scale");
  const double* const factor = scale ? std::get_if<double>(scale) : nullptr;
  if (scale && !(factor && *factor > 0)) return std::nullopt;
  if (inputs.size() < 3 || inputs.size() > 4 || !all_ranked_alike(inputs.first(3))) return std::nullopt;
  const Dims &q = inputs[0]->dims, &k = inputs[1]->dims, &v = inputs[2]->dims;
  if (q.empty() || q.size() != k.size() || q.size() != v.size() || q[0] != k[0] || q[0] != v[0]) return std::nullopt;
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

// The operands are (Q, K, V, [bias]). Q, K and V are each [batch, length, heads * size].
Outputs infer_multi_head(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 3 || inputs.size() > 4 || !all_ranked_alike(inputs)) return std::nullopt;
  const Dims &q = inputs[0]->dims, &k = inputs[1]->dims, &v = inputs[2]->dims;
  const std::int64_t heads = int_attribute(attributes, "num_heads", 0);
  if (q.size() != 3 || k.size() != 3 || v.size() != 3 || heads < 1 || q[2] % heads != 0 || v[2] % heads != 0) return std::nullopt;
  if (q[0] != k[0] || q[0] != v[0] || q[2] != k[2] || k[1] != v[1]) return std::nullopt;
  if (inputs.size() == 4 && inputs[3]->dims != Dims{q[2] + k[2] + v[2]}) return std::nullopt;
  return one(inputs[0]->dtype, {q[0], q[1], v[2]});
}

// The operands are (X, cos, sin, [positions]). X is [batch, heads, length, size] or [batch, length, heads * size].
Outputs infer_rotary(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() < 3 || inputs.size() > 4 || !all_ranked_alike(inputs.first(3))) return std::nullopt;
  const Dims &x = inputs[0]->dims, &cos = inputs[1]->dims, &sin = inputs[2]->dims;
  const std::int64_t heads = int_attribute(attributes, "num_heads", 0), part = int_attribute(attributes, "rotary_embedding_dim", 0);
  if ((x.size() != 3 && x.size() != 4) || (x.size() == 3 && (heads < 1 || x[2] % heads != 0)) || cos != sin) return std::nullopt;
  const std::int64_t length = x.size() == 4 ? x[2] : x[1], whole = x.size() == 4 ? x[3] : x[2] / heads, size = part > 0 ? part : whole;
  if (size > whole || size % 2 != 0 || cos.empty() || cos.back() != size / 2) return std::nullopt;
  if (inputs.size() == 3) return cos == Dims{x[0], length, size / 2} ? one(inputs[0]->dtype, x) : std::nullopt;
  const bool positions = inputs[3] && inputs[3]->dtype == kInt64 && inputs[3]->ranked && inputs[3]->dims == Dims{x[0], length};
  return positions && cos.size() == 2 ? one(inputs[0]->dtype, x) : std::nullopt;
}

}  // namespace rlflow::operators
