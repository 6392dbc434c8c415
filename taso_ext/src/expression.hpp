// Evaluation of the integer expressions of rules.
#pragma once

#include "rule.hpp"

namespace rlflow {

struct Quantity {
  bool is_list = false;
  std::int64_t number = 0;
  Dims list;

  [[nodiscard]] bool operator==(const Quantity&) const = default;
};

// What an expression can see: symbols bound so far and the shapes of bound tensors; nullptr when not bound.
class Scope {
 public:
  virtual ~Scope() = default;
  [[nodiscard]] virtual const Quantity* symbol(std::int32_t slot) const = 0;
  [[nodiscard]] virtual const Dims* dims(std::int32_t value_slot) const = 0;
};

// Nothing when a symbol is unbound, an index is out of range, a divisor is zero or operands are of the wrong kind:
// in a condition that means "does not hold", in an attribute "this match cannot be rewritten".
[[nodiscard]] std::optional<Quantity> evaluate(const Expression& expression, const Scope& scope);
[[nodiscard]] bool holds(const Expression& condition, const Scope& scope);

// The value of an attribute pattern in normal form: a negative axis counts from the end of `rank` extents.
[[nodiscard]] std::optional<Quantity> evaluate_attribute(const AttributePattern& pattern, const Scope& scope, std::size_t rank);
[[nodiscard]] Attribute to_attribute(Quantity value);

}  // namespace rlflow
