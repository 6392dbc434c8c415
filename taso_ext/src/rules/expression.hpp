// Evaluation of the expressions of rules.
#pragma once

#include "rules/rule.hpp"

namespace rlflow {

using Reals = std::vector<double>;
// An integer, a real, a text, or a list of integers or of reals.
using Quantity = std::variant<std::int64_t, double, std::string, Dims, Reals>;

// Nothing for what expressions do not know: lists of texts, and what the engine only carries along.
[[nodiscard]] std::optional<Quantity> to_quantity(const Attribute& attribute);

// Reals are the same where they are nearly equal; an integer is compared with a real as a real.
[[nodiscard]] bool same(const Quantity& a, const Quantity& b);

// What an expression can see: symbols bound so far and the types of bound tensors; nullptr when not bound.
class Scope {
 public:
  virtual ~Scope() = default;
  [[nodiscard]] virtual const Quantity* symbol(std::int32_t slot) const = 0;
  [[nodiscard]] virtual const TensorType* type(std::int32_t value_slot) const = 0;
  // Tensors of a list; 0 while none is bound.
  [[nodiscard]] virtual std::size_t count(std::int32_t value_slot) const = 0;
  // An attribute of those that `@name` stands for.
  [[nodiscard]] virtual std::optional<Quantity> attribute(std::int32_t rest_slot, const std::string& name) const = 0;
};

// Nothing when a symbol is unbound, an index is out of range, a divisor is zero or operands are of the wrong kind:
// in a condition that means "does not hold", in an attribute "this match cannot be rewritten".
[[nodiscard]] std::optional<Quantity> evaluate(const Expression& expression, const Scope& scope);
[[nodiscard]] bool holds(const Expression& condition, const Scope& scope);

// The value of an attribute pattern in normal form: negative axes count from the end of `rank` extents.
[[nodiscard]] std::optional<Quantity> evaluate_attribute(const AttributePattern& pattern, const Scope& scope, std::size_t rank);
// As an operator holds it: what ONNX says is real is real even if it is written as an integer.
// Rounded to float32 like all of ONNX's, but for the elements of a tensor of doubles.
[[nodiscard]] Attribute to_attribute(std::string_view name, Quantity value, int dtype);

}  // namespace rlflow
