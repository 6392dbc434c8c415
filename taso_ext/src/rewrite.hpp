// From a match to a changed graph: plan the edit, price it, carry it out.
#pragma once

#include "cost.hpp"
#include "graph.hpp"
#include "matcher.hpp"

namespace rlflow {

// Reads a value that exists (id >= 0) or the k-th value the edit creates (id == -2 - k); kNoValue stays kNoValue.
using ValueRef = std::int32_t;
[[nodiscard]] constexpr ValueRef new_value(std::size_t index) { return -2 - static_cast<ValueRef>(index); }
[[nodiscard]] constexpr bool is_new(ValueRef ref) { return ref <= -2; }
[[nodiscard]] constexpr std::size_t new_index(ValueRef ref) { return static_cast<std::size_t>(-2 - ref); }

struct NewNode {
  SignatureId signature = 0;
  std::vector<ValueRef> operands;
  std::size_t first_value = 0;    // of the values it creates
  bool weight_only = false;
  std::int32_t site = 0;
};

struct NewValue {
  TypeId type = 0;
  std::size_t producer = 0;    // index into Edit::nodes
  bool weight_only = false;
};

struct Edit {
  std::vector<NewNode> nodes;
  std::vector<NewValue> values;
  std::vector<std::pair<ValueId, ValueRef>> replaced;
};

// The edit a match stands for, or nothing when the target would be invalid here (types do not fit), would change the
// type of an output, or would close a cycle.
[[nodiscard]] std::optional<Edit> plan_edit(const Graph& graph, const Rule& rule, const Binding& binding);

// Change of the total cost, in ms, computed from the neighbourhood of the edit alone.
[[nodiscard]] double price_edit(const Graph& graph, const Edit& edit, CostTable& costs);

// Carries the edit out; the graph is finalized afterwards. Returns the values that are new, or that others read now.
[[nodiscard]] std::vector<ValueId> apply_edit(Graph& graph, const Edit& edit);

}  // namespace rlflow
