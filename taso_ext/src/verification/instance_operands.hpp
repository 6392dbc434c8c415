// Operands whose elements, and not only their shapes, decide a result's shape or whether the operator is valid at all:
// repeats of Tile, indices of Gather, sizes and scales of Resize, the ratio of Dropout.
#pragma once

#include <map>

#include "ir/graph.hpp"
#include "verification/instance_dice.hpp"

namespace rlflow {

// What an operator asks of such an operand, as far as the shapes tell it.
struct ValuedOperand {
  std::vector<int> dtypes;    // those that the operator admits; the first one is the usual one
  std::optional<Dims> dims;    // nothing if any shape fits
};

// Returns what an operator asks of the operand at `at` among `count`; nothing if any elements are valid there. `first`
// is the shape of the first operand; it may be empty if only the element types are asked for.
[[nodiscard]] std::optional<ValuedOperand> valued_operand(std::string_view op, std::size_t at, std::size_t count, const Dims& first);

// Returns how many of its operands, from the first one on, an operator moves to its results without computing with them.
[[nodiscard]] std::size_t moved_operands(std::string_view op);

class OperandDraw {
 public:
  explicit OperandDraw(Dice& dice) : dice_(dice) {}

  // Begins another graph.
  void begin() { drawn_.clear(); }
  // Returns the output types that a model may give to an operator although the engine, which makes the operators of
  // targets, does not infer them: those that depend on elements, for which random ones are drawn, and products of
  // vectors. The elements of one operand are the same for all its readers; only the types keep them.
  [[nodiscard]] std::optional<std::vector<TensorType>> outputs(std::string_view op, const AttributeMap& attributes, std::span<const ValueId> operands,
                                                               std::span<const TensorType* const> types);
  // Returns a random number that may fill an operand of a graph; nothing if any number may.
  [[nodiscard]] std::optional<double> number(const Graph& graph, ValueId operand);

 private:
  std::optional<TensorType> tiled(ValueId operand, const TensorType& x, const TensorType& repeats);
  std::optional<TensorType> resized(std::span<const ValueId> operands, std::span<const TensorType* const> types);
  double scale(std::size_t axis);

  Dice& dice_;
  std::map<ValueId, std::vector<double>> drawn_;    // the elements of an operand, one for each axis
};

}  // namespace rlflow
