// The meaning of a rule's names at operators of given signatures: attributes, shapes and conditions, without a graph.
#pragma once

#include "rules/expression.hpp"

namespace rlflow {

// An operator that a source statement stands for. `order` says which operand is which argument: 1 swaps the operands of
// a commutative operator; if two starred arguments share the operands, it is how many the first one takes.
struct Role {
  SignatureId signature = 0;
  std::uint32_t order = 0;
};

// Calls visit(argument index, first operand, number of operands) for each argument. Returns false if the numbers do not
// fit.
template <typename Visitor>
bool share_operands(const Rule& rule, const Statement& statement, std::size_t operands, std::uint32_t order, Visitor visit) {
  const std::size_t stars = statement.stars, plain = statement.arguments.size() - stars;
  if (stars == 0 ? operands != plain : operands < plain) return false;
  const std::size_t spare = operands - plain;
  if (stars == 1 && spare < static_cast<std::size_t>(rule.least_elements)) return false;
  if (stars == 2 && order > spare) return false;
  std::size_t at = 0;
  bool first = true;
  for (std::size_t i = 0; i < statement.arguments.size(); ++i) {
    if (statement.mapped || !statement.arguments[i].starred) {
      visit(i, stars == 0 && order == 1 && operands == 2 ? 1 - at : at, std::size_t{1});
      ++at;
      continue;
    }
    const std::size_t count = stars == 1 ? spare : first ? order : spare - order;
    first = false;
    visit(i, at, count);
    at += count;
  }
  return true;
}

class Reading final : public Scope {
 public:
  Reading(Context& context, const Rule& rule);

  // Adds an operator for a statement, or for the next element of a mapped one. Returns false if it does not fit.
  [[nodiscard]] bool add(std::size_t statement, Role role);
  // Returns whether everything added fits together. Unless `complete` is true, what depends on missing parts counts as
  // fitting.
  [[nodiscard]] bool consistent(bool complete);

  [[nodiscard]] const Quantity* symbol(std::int32_t slot) const override;
  [[nodiscard]] const TensorType* type(std::int32_t value_slot) const override;
  [[nodiscard]] std::size_t count(std::int32_t slot) const override { return types_[slot].size(); }
  [[nodiscard]] const AttributeMap* attributes(std::int32_t slot, bool of_operator) const override;

  [[nodiscard]] const std::vector<TypeId>& types(std::int32_t slot) const { return types_[slot]; }
  [[nodiscard]] AttributesId rest(std::int32_t slot) const { return *rests_[slot]; }
  [[nodiscard]] std::pair<OperatorId, AttributesId> op(std::int32_t variable) const { return *operators_[variable]; }

 private:
  [[nodiscard]] bool bind(std::int32_t symbol, Quantity value);
  [[nodiscard]] bool bind_operator(const Statement& statement, const Signature& signature);
  [[nodiscard]] bool bind_attributes(const Statement& statement, const Signature& signature);
  [[nodiscard]] bool fits(const Variable& variable, bool complete);
  [[nodiscard]] bool decided(const Expression& expression) const;

  struct Comparison {
    const AttributePattern* pattern;
    Quantity actual;
    std::size_t rank;
  };
  Context& context_;
  const Rule& rule_;
  std::vector<std::vector<TypeId>> types_;    // by value slot
  std::vector<std::optional<Quantity>> symbols_;
  std::vector<std::optional<AttributesId>> rests_;
  std::vector<std::optional<std::pair<OperatorId, AttributesId>>> operators_;
  std::vector<std::size_t> elements_;      // by source statement: operators added for a mapped one
  std::vector<Comparison> comparisons_;    // attributes that must equal an expression
};

}  // namespace rlflow
