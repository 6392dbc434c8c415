#include "verification/instance_operands.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

namespace rlflow {
namespace {

constexpr int kFloat = 1, kInt32 = 6, kInt64 = 7, kFloat16 = 10, kDouble = 11, kBfloat16 = 16;    // TensorProto.DataType

bool is_uniform(const TensorType& type) { return type.content.kind == Content::Kind::kUniform; }

TensorType with_dims(const TensorType& x, Dims dims) { return {x.dtype, true, std::move(dims)}; }

// Returns the product of two operands of which at least one is a vector: a row on the left, a column on the right.
std::optional<TensorType> vector_product(const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype || a.dims.empty() || b.dims.empty()) return std::nullopt;
  const bool row = a.dims.size() == 1, column = b.dims.size() == 1;
  if (!row && !column) return std::nullopt;
  const std::int64_t inner = column ? b.dims[0] : b.dims[b.dims.size() - 2];
  if (a.dims.back() != inner) return std::nullopt;
  Dims out = row ? Dims(b.dims.begin(), b.dims.end() - (column ? 1 : 2)) : Dims(a.dims.begin(), a.dims.end() - 1);
  if (row && !column) out.push_back(b.dims.back());
  return with_dims(a, std::move(out));
}

std::optional<TensorType> gathered(const AttributeMap& attributes, const TensorType& x, const TensorType& indices) {
  const std::int64_t given = int_attribute(attributes, "axis", 0), axis = given < 0 ? given + std::ssize(x.dims) : given;
  if (axis < 0 || axis >= std::ssize(x.dims) || (indices.dtype != kInt64 && indices.dtype != kInt32)) return std::nullopt;
  const auto extent = static_cast<double>(x.dims[axis]);
  if (is_uniform(indices) && (indices.content.value < -extent || indices.content.value >= extent)) return std::nullopt;
  Dims out(x.dims.begin(), x.dims.begin() + axis);
  out.insert(out.end(), indices.dims.begin(), indices.dims.end());
  out.insert(out.end(), x.dims.begin() + axis + 1, x.dims.end());
  return with_dims(x, std::move(out));
}

// Drops nothing, because a model is run and not trained.
std::optional<TensorType> undropped(const TensorType& x, const TensorType& ratio) {
  const bool valid = !is_uniform(ratio) || (ratio.content.value >= 0 && ratio.content.value < 1);
  return is_floating(x.dtype) && is_floating(ratio.dtype) && ratio.dims.empty() && valid ? std::optional(with_dims(x, x.dims)) : std::nullopt;
}

}  // namespace

std::optional<ValuedOperand> valued_operand(std::string_view op, std::size_t at, std::size_t count, const Dims& first) {
  const Dims each_axis = {std::ssize(first)}, none = {0};
  if (op == "Gather" && at == 1) return ValuedOperand{{kInt64, kInt32}, std::nullopt};
  if (op == "Tile" && at == 1) return ValuedOperand{{kInt64}, each_axis};
  if (op == "Dropout" && at == 1) return ValuedOperand{{kFloat, kFloat16, kDouble, kBfloat16}, Dims{}};
  if (op != "Resize") return std::nullopt;
  if (at == 1) return ValuedOperand{{kFloat, kFloat16, kDouble}, none};    // the region, which only one mode reads
  if (at == 2) return ValuedOperand{{kFloat}, count > 3 ? none : each_axis};    // scales, which sizes replace
  return at == 3 ? std::optional(ValuedOperand{{kInt64}, each_axis}) : std::nullopt;
}

std::size_t moved_operands(std::string_view op) {
  constexpr std::string_view kMoves[] = {"Split", "Slice", "Transpose", "Reshape", "Expand", "Identity", "Gather", "Tile"};
  if (op == "Concat") return std::numeric_limits<std::size_t>::max();
  return std::find(std::begin(kMoves), std::end(kMoves), op) != std::end(kMoves) ? 1 : 0;
}

std::optional<std::vector<TensorType>> OperandDraw::outputs(std::string_view op, const AttributeMap& attributes, std::span<const ValueId> operands,
                                                            std::span<const TensorType* const> types) {
  const bool ranked = std::all_of(types.begin(), types.end(), [](const TensorType* type) { return type && type->ranked; });
  if (!ranked || types.size() < 2) return std::nullopt;
  const TensorType &x = *types[0], &other = *types[1];
  std::optional<TensorType> result;
  if (op == "Resize") result = resized(operands, types);
  else if (types.size() > 2) return std::nullopt;
  else if (op == "MatMul") result = vector_product(x, other);
  else if (op == "Gather") result = gathered(attributes, x, other);
  else if (op == "Dropout") result = undropped(x, other);
  else if (op == "Tile") result = tiled(operands[1], x, other);
  return result && result->is_countable() ? std::optional(std::vector{*result}) : std::nullopt;
}

std::optional<TensorType> OperandDraw::tiled(ValueId operand, const TensorType& x, const TensorType& repeats) {
  if (repeats.dtype != kInt64 || repeats.dims != Dims{std::ssize(x.dims)}) return std::nullopt;
  std::vector<double> drawn(x.dims.size());
  for (double& each : drawn) each = static_cast<double>(dice_.pick(1, 3));
  if (is_uniform(repeats)) std::fill(drawn.begin(), drawn.end(), repeats.content.value);
  const std::vector<double>& chosen = drawn_.emplace(operand, std::move(drawn)).first->second;
  Dims out = x.dims;
  for (std::size_t axis = 0; axis < out.size(); ++axis) {
    if (chosen[axis] < 1 || chosen[axis] > 64 || chosen[axis] != std::floor(chosen[axis])) return std::nullopt;
    out[axis] *= static_cast<std::int64_t>(chosen[axis]);
  }
  return with_dims(x, std::move(out));
}

// Returns a factor of one axis. Images are mostly resized in their last axes.
double OperandDraw::scale(std::size_t axis) {
  if (dice_.chance(axis < 2 ? 75 : 15)) return 1;
  return dice_.chance(60) ? dice_.any_of(std::array{2.0, 3.0, 2.0, 4.0, 0.5}) : static_cast<double>(dice_.pick(30, 300)) / 100;
}

std::optional<TensorType> OperandDraw::resized(std::span<const ValueId> operands, std::span<const TensorType* const> types) {
  if (types.size() < 3 || types.size() > 4 || !is_floating(types[0]->dtype)) return std::nullopt;
  const bool by_size = types.size() == 4;
  const TensorType &x = *types[0], &numbers = *types.back();
  const bool fits = numbers.dims == Dims{std::ssize(x.dims)} && numbers.dtype == (by_size ? kInt64 : kFloat) && types[1]->dims == Dims{0} &&
                    (!by_size || types[2]->dims == Dims{0});
  if (!fits || x.dims.empty()) return std::nullopt;
  std::vector<double> drawn(x.dims.size());
  for (std::size_t axis = 0; axis < drawn.size(); ++axis) {
    drawn[axis] = scale(axis) * (by_size ? static_cast<double>(x.dims[axis]) : 1.0);
    if (by_size) drawn[axis] = std::max(1.0, std::floor(drawn[axis]));
  }
  if (is_uniform(numbers)) std::fill(drawn.begin(), drawn.end(), numbers.content.value);
  const std::vector<double>& chosen = drawn_.emplace(operands.back(), std::move(drawn)).first->second;
  Dims out = x.dims;
  for (std::size_t axis = 0; axis < out.size(); ++axis) {
    const double extent = by_size ? chosen[axis] : std::floor(static_cast<double>(out[axis]) * chosen[axis]);
    if (!(extent >= 1 && extent <= 4096) || extent != std::floor(extent)) return std::nullopt;
    out[axis] = static_cast<std::int64_t>(extent);
  }
  return with_dims(x, std::move(out));
}

std::optional<double> OperandDraw::number(const Graph& graph, ValueId operand) {
  for (const NodeId reader : graph.order()) {
    const auto operands = graph.operands(reader);
    const std::string_view op = operator_info(graph.signature(reader).op).name;
    for (std::size_t at = 1; at < operands.size(); ++at) {
      const TensorType& x = graph.type(operands[0]);
      if (operands[at] != operand || !valued_operand(op, at, operands.size(), x.dims)) continue;
      if (op == "Dropout") return static_cast<float>(dice_.any_of(std::array{0.5, 0.1, 0.0, 0.3, 0.9}));
      if (op == "Resize" && at == 2) return dice_.any_of(std::array{2.0, 1.0, 3.0, 0.5, 1.5});
      if (op != "Gather") return static_cast<double>(dice_.pick(1, op == "Tile" ? 4 : 8));
      const std::int64_t axis = int_attribute(graph.context().attributes(graph.signature(reader).attributes), "axis", 0);
      const std::int64_t extent = axis >= 0 && axis < std::ssize(x.dims) ? x.dims[axis] : 1;
      return static_cast<double>(dice_.chance(40) ? dice_.any_of(std::array<std::int64_t, 4>{0, -1, extent - 1, -extent}) : dice_.pick(-extent, extent - 1));
    }
  }
  if (is_floating(graph.type(operand).dtype)) return std::nullopt;
  return static_cast<double>(dice_.pick(-3, 4));
}

}  // namespace rlflow
