// Random attributes for random instances of rules.
#pragma once

#include "rules/expression.hpp"
#include "verification/instance_dice.hpp"

namespace rlflow {

class AttributeDraw {
 public:
  explicit AttributeDraw(Dice& dice) : dice_(dice) {}

  // Another graph is drawn.
  void begin() { seen_.clear(); }
  // One attribute of an operator in normal form, random but of the right form for its operands; nothing where there is
  // none. `so_far` holds those drawn before, in any order.
  std::optional<Quantity> one(std::string_view op, const std::string& attribute, std::span<const Dims> operands, std::size_t results,
                              const AttributeMap& so_far);
  // All but some; nothing where one does not fit.
  std::optional<AttributeMap> all(std::string_view op, std::span<const Dims> operands, std::size_t results, const std::vector<std::string>& except);

 private:
  std::optional<Quantity> fresh(std::string_view op, const std::string& attribute, std::span<const Dims> operands, std::size_t results,
                                const AttributeMap& so_far);
  std::optional<Quantity> axes(std::int64_t rank);
  std::optional<Quantity> split(const Dims& x, const AttributeMap& so_far, std::size_t parts);
  std::optional<Quantity> cut(const Dims& x, const std::string& attribute, const AttributeMap& so_far);
  std::optional<Quantity> pool_pads(const AttributeMap& so_far);
  Dims another_shape(const Dims& dims);
  Dims reshape(const Dims& dims);
  Dims rearranged(const Dims& dims);

  Dice& dice_;
  std::vector<std::pair<std::string, Quantity>> seen_;    // drawn for this graph
};

}  // namespace rlflow
