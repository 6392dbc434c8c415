// Evaluation of the expressions of rules.
#pragma once

#include "rules/rule.hpp"

namespace rlflow {

using Reals = std::vector<double>;
// An integer, a real, a text, or a list of integers or of reals.
using Quantity = std::variant<std::int64_t, double, std::string, Dims, Reals>;

// Returns the value of an attribute, or nothing if expressions do not know its kind: a list of texts, or an opaque
// attribute.
[[nodiscard]] std::optional<Quantity> to_quantity(const Attribute& attribute);

// Returns whether two quantities are equal. Reals need to be nearly equal; an integer is compared with a real as a
// real.
[[nodiscard]] bool same(const Quantity& found, const Quantity& expected);

// What an expression can see: the symbols bound so far, and the types of bound tensors. symbol() and type() return
// nullptr for what is not bound.
class Scope {
 public:
  virtual ~Scope() = default;
  [[nodiscard]] virtual const Quantity* symbol(std::int32_t slot) const = 0;
  [[nodiscard]] virtual const TensorType* type(std::int32_t value_slot) const = 0;
  // Returns the number of tensors in a list; 0 while none is bound.
  [[nodiscard]] virtual std::size_t count(std::int32_t value_slot) const = 0;
  // Returns the attributes that the `@` name of a slot stands for, or those of the operator that the operator variable of
  // a slot stands for; nullptr while they are not bound.
  [[nodiscard]] virtual const AttributeMap* attributes(std::int32_t slot, bool of_operator) const = 0;
};

// Returns the value of an expression, or nothing if a symbol is unbound, an index is out of range, a divisor is zero or
// operands are of the wrong kind. Nothing means "does not hold" in a condition, and "this match cannot be rewritten" in
// an attribute.
[[nodiscard]] std::optional<Quantity> evaluate(const Expression& expression, const Scope& scope);
[[nodiscard]] bool holds(const Expression& condition, const Scope& scope);

// Returns the value of an attribute pattern in normal form: negative axes count from the end of `rank` extents.
[[nodiscard]] std::optional<Quantity> evaluate_attribute(const AttributePattern& pattern, const Scope& scope, std::size_t rank);
// Returns whether an operator on doubles holds a value as an attribute with less precision than doubles have.
[[nodiscard]] bool loses_precision(std::string_view name, const Quantity& value, int dtype);
// Returns a value as an operator holds it. An attribute that ONNX declares as float is real even if it is written as an
// integer. Reals are rounded to float32, as all of ONNX's are, except the elements of a tensor of doubles.
[[nodiscard]] Attribute to_attribute(std::string_view name, Quantity value, int dtype);

}  // namespace rlflow
