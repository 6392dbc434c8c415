// From a match to a changed graph: price the change, carry it out.
#pragma once

#include "costs/cost.hpp"
#include "ir/graph.hpp"
#include "rewriting/recipe.hpp"

namespace rlflow {

// Says what a rewrite would lead to without carrying it out. Keeps its scratch memory from call to call; one thread at
// a time.
class Preview {
 public:
  // Change of the total cost, in ms, from the neighbourhood alone. `nodes` and `values` are those of the match, `fused`
  // says of each node of the graph whether it is fused into a producer, `node_ms` what it costs.
  [[nodiscard]] double price(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes,
                             std::span<const ValueId> values, std::span<const char> fused,
                             std::span<const double> node_ms, const CostModel& costs);
  // Plain hash of the graph after the rewrite; only for rules that cannot close a cycle, whose new nodes therefore read
  // nothing that the rewrite changes.
  [[nodiscard]] Hash128 plain_hash(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values);

 private:
  void look_at(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values);
  void count_uses();
  [[nodiscard]] bool is_consumed(NodeId node) const;
  [[nodiscard]] std::int32_t moved_uses(ValueId old) const;
  void find_dead();
  void change(ValueId value, std::int32_t delta);
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
  std::vector<char> needed_;    // new nodes that somebody reads
  std::vector<std::pair<ValueId, std::int32_t>> changes_;
  std::vector<NodeId> dead_, pending_, readers_;
  std::vector<Hash128> new_hashes_;      // of new values
  std::vector<Hash128> value_hashes_;    // by value, where `rehashed_` says so
  std::vector<std::uint32_t> rehashed_, stale_, gone_;    // by value, by node, by node: the call that set it last
  std::uint32_t call_ = 0;
};

// Makes `next` the graph after a rewrite of `graph`, and `changed` the tensors that are new, or that others read or make
// now. `key` says which rewrite it is.
void apply(const Graph& graph, const Recipe& recipe, Hash128 key, std::span<const NodeId> nodes,
           std::span<const ValueId> values, Graph& next, std::vector<ValueId>& changed);

}  // namespace rlflow
