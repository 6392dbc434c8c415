// Output types of operators that move elements or reduce them along axes, and of constants.
#include <algorithm>

#include "ir/operator_table.hpp"
#include "ir/output_types.hpp"

namespace rlflow::operators {

constexpr std::int64_t kLargestIdentity = 4096;    // 64 MiB of float32, which export computes and stores

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
  const auto holds = [dtype](double value) { return can_hold(dtype, value); };
  if (op == kConstantOfShape) {
    const auto* value = std::get_if<double>(held);
    return value && holds(*value) ? one(dtype, *shape) : std::nullopt;
  }
  const auto* values = std::get_if<std::vector<double>>(held);
  const bool fits = values && static_cast<std::int64_t>(values->size()) == type.elements();
  return fits && std::all_of(values->begin(), values->end(), holds) ? one(dtype, *shape) : std::nullopt;
}

// Returns the indices of the largest elements along one axis; negative axes count from the end.
Outputs infer_arg_max(const AttributeMap& attributes, Types inputs) {
  if (inputs.size() != 1 || !all_ranked_alike(inputs)) return std::nullopt;
  Dims out = inputs[0]->dims;
  const std::int64_t axis = int_attribute(attributes, "axis", 0), at = axis < 0 ? axis + std::ssize(out) : axis;
  if (at < 0 || at >= std::ssize(out) || out[at] < 1) return std::nullopt;
  if (int_attribute(attributes, "keepdims", 1) != 0) out[at] = 1;
  else out.erase(out.begin() + at);
  return one(kInt64, std::move(out));
}

// The operand of both moves between channels and blocks of pixels is an image [batch, channels, height, width].
Outputs infer_depth_to_space(const AttributeMap& attributes, Types inputs) {
  const std::int64_t side = int_attribute(attributes, "blocksize", 0);
  if (inputs.size() != 1 || !all_ranked_alike(inputs) || inputs[0]->dims.size() != 4 || side < 1 || side > 1024) return std::nullopt;
  const Dims& x = inputs[0]->dims;
  if (x[1] % (side * side) != 0) return std::nullopt;
  return one(inputs[0]->dtype, {x[0], x[1] / (side * side), x[2] * side, x[3] * side});
}

Outputs infer_space_to_depth(const AttributeMap& attributes, Types inputs) {
  const std::int64_t side = int_attribute(attributes, "blocksize", 0);
  if (inputs.size() != 1 || !all_ranked_alike(inputs) || inputs[0]->dims.size() != 4 || side < 1 || side > 1024) return std::nullopt;
  const Dims& x = inputs[0]->dims;
  if (x[2] % side != 0 || x[3] % side != 0) return std::nullopt;
  return one(inputs[0]->dtype, {x[0], x[1] * side * side, x[2] / side, x[3] / side});
}

Outputs infer_expand(const AttributeMap& attributes, Types inputs) {
  const Dims* shape = ints_attribute(attributes, "shape");
  if (inputs.size() != 1 || !inputs[0] || !inputs[0]->ranked || !shape || !are_extents(*shape)) return std::nullopt;
  return broadcast(inputs[0]->dims, *shape) == *shape ? one(inputs[0]->dtype, *shape) : std::nullopt;
}

}  // namespace rlflow::operators
