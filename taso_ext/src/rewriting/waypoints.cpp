#include "rewriting/waypoints.hpp"

#include <algorithm>

#include "ir/context.hpp"

namespace rlflow {
namespace {

void require_same_types(const char* what, const Graph& one, std::span<const ValueId> ones, const Graph& other, std::span<const ValueId> others) {
  if (ones.size() != others.size()) {
    throw InvalidInput("a waypoint must have the " + std::string(what) + "s of the graph: expected " + std::to_string(ones.size()) + ", got " +
                       std::to_string(others.size()));
  }
  for (std::size_t i = 0; i < ones.size(); ++i) {
    const TensorType &a = one.type(ones[i]), &b = other.type(others[i]);
    if (a.dtype != b.dtype || a.ranked != b.ranked || a.dims != b.dims) {
      throw InvalidInput("a waypoint must have the " + std::string(what) + "s of the graph: " + what + " " + std::to_string(i) + " has another type");
    }
  }
}

}  // namespace

std::int32_t Waypoints::add(Graph graph) {
  const std::lock_guard guard(mutex_);
  const auto same = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& each) { return each.hash() == graph.hash(); });
  const auto number = static_cast<std::int32_t>(same - graphs_.begin());
  if (same == graphs_.end()) graphs_.push_back(std::move(graph));
  return number;
}

std::optional<Graph> Waypoints::find(std::int32_t number) const {
  const std::lock_guard guard(mutex_);
  if (number < 0 || number >= static_cast<std::int32_t>(graphs_.size())) return std::nullopt;
  return graphs_[number];
}

std::int32_t Waypoints::size() const {
  const std::lock_guard guard(mutex_);
  return static_cast<std::int32_t>(graphs_.size());
}

void require_same_interface(const Graph& one, const Graph& other) {
  require_same_types("input", one, one.inputs(), other, other.inputs());
  require_same_types("output", one, one.outputs(), other, other.outputs());
}

}  // namespace rlflow
