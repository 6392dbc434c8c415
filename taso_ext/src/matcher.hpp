// Finds the places of a graph where a rule applies.
#pragma once

#include <functional>

#include "expression.hpp"
#include "graph.hpp"
#include "rule.hpp"

namespace rlflow {

// What the names of a rule stand for at one place.
struct Binding {
  std::vector<ValueId> values;                     // by value slot; kNoValue while unbound
  std::vector<std::vector<ValueId>> lists;         // by value slot, for starred names
  std::vector<Quantity> symbols;
  std::vector<char> symbol_bound;
  std::vector<AttributesId> rests;
  std::vector<char> rest_bound;
  std::vector<std::pair<OperatorId, AttributesId>> operators;
  std::vector<char> operator_bound;
  std::vector<std::vector<NodeId>> nodes;          // by source statement
};

// Enumerates the matches at an anchor in an order that depends only on the neighbourhood that the rule can see.
class Matcher final : public Scope {
 public:
  using Visitor = std::function<bool(const Binding&)>;    // false stops the enumeration

  Matcher(const Graph& graph, const Rule& rule);
  // All matches whose anchor is `anchor`.
  bool visit(NodeId anchor, const Visitor& visitor);

  [[nodiscard]] const Quantity* symbol(std::int32_t slot) const override;
  [[nodiscard]] const Dims* dims(std::int32_t value_slot) const override;

 private:
  enum class Undo : std::uint8_t { kValue, kList, kSymbol, kRest, kOperator, kNodes };
  [[nodiscard]] bool step(std::size_t depth, const Visitor& visitor);
  [[nodiscard]] bool step_single(std::size_t depth, const Visitor& visitor);
  [[nodiscard]] bool step_mapped(std::size_t depth, const Visitor& visitor);
  [[nodiscard]] bool try_node(std::size_t depth, NodeId node, const Visitor& visitor);
  [[nodiscard]] bool try_group(std::size_t depth, const std::vector<NodeId>& group, const Visitor& visitor);
  [[nodiscard]] std::vector<NodeId> siblings(const Statement& statement, NodeId first);
  [[nodiscard]] bool operator_fits(const Statement& statement, NodeId node);
  [[nodiscard]] bool attributes_fit(const Statement& statement, const Signature& signature);
  [[nodiscard]] bool bind_arguments(const Statement& statement, NodeId node, bool swapped, std::size_t shift);
  [[nodiscard]] bool bind_element(const Statement& statement, NodeId node, bool swapped);
  [[nodiscard]] bool bind_results(const Statement& statement, NodeId node);
  [[nodiscard]] bool bind_value(std::int32_t slot, ValueId value);
  [[nodiscard]] bool bind_list(std::int32_t slot, std::vector<ValueId> values);
  [[nodiscard]] bool bind_symbol(std::int32_t slot, Quantity value);
  [[nodiscard]] bool fits(const Variable& variable, ValueId value, std::vector<std::pair<std::int32_t, std::int64_t>>* starred);
  [[nodiscard]] bool used_elsewhere(NodeId node) const;
  [[nodiscard]] bool comes_before(NodeId a, NodeId b) const;
  [[nodiscard]] bool acceptable();
  void undo_to(std::size_t mark);

  const Graph& graph_;
  const Rule& rule_;
  Binding binding_;
  std::vector<const Variable*> variable_of_;    // by value slot, nullptr for results
  std::vector<std::pair<Undo, std::int32_t>> trail_;
  std::vector<std::vector<ValueId>> elements_;  // by value slot: the list under construction
};

}  // namespace rlflow
