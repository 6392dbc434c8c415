// Random attributes for random instances of rules.
#pragma once

#include "rules/expression.hpp"
#include "verification/instance_dice.hpp"

namespace rlflow {

class AttributeDraw {
 public:
  explicit AttributeDraw(Dice& dice) : dice_(dice) {}

  // Begins another graph.
  void begin() { seen_.clear(); }
  // Returns a random value for one attribute of an operator in normal form, in a form that suits its operands; nothing
  // if there is none. `so_far` holds the attributes drawn before, in any order.
  std::optional<Quantity> one(std::string_view op, const std::string& attribute, std::span<const Dims> operands, std::size_t results,
                              const AttributeMap& so_far);
  // Returns all attributes of an operator in normal form but those named in `except`, which the rule writes; nothing if
  // one does not fit.
  std::optional<AttributeMap> all(std::string_view op, std::span<const Dims> operands, std::size_t results, const std::vector<std::string>& except);

 private:
  std::optional<Quantity> fresh(std::string_view op, const std::string& attribute, std::span<const Dims> operands, std::size_t results,
                                const AttributeMap& so_far);
  std::optional<Quantity> axes(std::int64_t rank);
  std::optional<Quantity> resizing(const std::string& attribute);
  std::optional<Quantity> rotary_part(const Dims& x, const AttributeMap& so_far);
  std::optional<Quantity> split(const Dims& x, const AttributeMap& so_far, std::size_t parts);
  std::optional<Quantity> cut(const Dims& x, const std::string& attribute, const AttributeMap& so_far);
  std::optional<Quantity> pool_pads(const AttributeMap& so_far);
  Dims another_shape(const Dims& dims);
  Dims factored(Dims dims);
  Dims reshape(const Dims& dims);
  Dims rearranged(const Dims& dims);

  Dice& dice_;
  std::vector<std::pair<std::string, Quantity>> seen_;    // attributes drawn for this graph
};

}  // namespace rlflow
