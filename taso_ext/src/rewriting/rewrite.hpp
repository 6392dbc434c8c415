// The way from a match to a changed graph: the change is priced and carried out.
#pragma once

#include "costs/cost.hpp"
#include "ir/graph.hpp"
#include "rewriting/recipe.hpp"

namespace rlflow {

// How a rewrite changes a graph. A node that reads a replaced tensor of the match reads another one instead.
struct Change {
  const Recipe* recipe = nullptr;
  std::span<const ValueId> values;    // of the match
  std::vector<NodeId> dead;           // nodes of the graph that are gone
  std::vector<char> needed;           // by new node of the recipe: whether something reads it
};

// Tells what a rewrite would lead to, without carrying it out. Keeps its scratch memory from call to call; one thread
// at a time may use it.
class Preview {
 public:
  // Returns the change of the total cost in ms, computed from the neighbourhood alone. `nodes` and `values` are those
  // of the match. For each node of the graph, `fused` says whether it is fused into a producer, and `node_ms` what it
  // costs.
  [[nodiscard]] double price(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes,
                             std::span<const ValueId> values, std::span<const char> fused,
                             std::span<const double> node_ms, const CostModel& costs);
  // Returns the plain hash of the graph after the rewrite. The rule must not be able to close a cycle: its new nodes
  // then read nothing that the rewrite changes.
  [[nodiscard]] Hash128 plain_hash(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values);
  // Fills `change`. `nodes` and `values` are those of the match.
  void change(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values, Change& change);

 private:
  void look_at(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values);
  void count_uses();
  [[nodiscard]] bool is_consumed(NodeId node) const;
  [[nodiscard]] std::int32_t moved_uses(ValueId old) const;
  void find_dead();
  void change_uses(ValueId value, std::int32_t delta);
  void add_use(ValueRef ref, std::int32_t count);
  [[nodiscard]] bool is_dead(NodeId node) const;
  [[nodiscard]] std::int32_t uses_after(ValueId value) const;
  [[nodiscard]] bool absorbed_by_new(const Signature& pointwise, ValueRef operand) const;
  [[nodiscard]] bool absorbed(const Signature& pointwise, ValueId operand) const;
  [[nodiscard]] bool fused_after(const Signature& signature, std::span<const ValueId> operands) const;

  const Graph* graph_ = nullptr;
  const Recipe* recipe_ = nullptr;
  std::span<const NodeId> nodes_;
  std::span<const ValueId> values_;
  std::vector<std::int32_t> new_uses_;
  std::vector<char> needed_;    // by new node: whether something reads it
  std::vector<std::pair<ValueId, std::int32_t>> changes_;
  std::vector<NodeId> dead_, pending_, readers_;
  std::vector<Hash128> new_hashes_;      // by new value
  std::vector<Hash128> value_hashes_;    // by value, valid if `rehashed_` says so
  std::vector<std::uint32_t> rehashed_, stale_, gone_;    // by value, node and node: the last call that set it
  std::uint32_t call_ = 0;
};

// Makes `next` the graph after a rewrite of `graph`. Fills `changed` with the tensors that are new, or that other nodes
// read or make now. `key` identifies the rewrite.
void apply(const Graph& graph, const Recipe& recipe, Hash128 key, std::span<const NodeId> nodes,
           std::span<const ValueId> values, Graph& next, std::vector<ValueId>& changed);

}  // namespace rlflow
