// What fusion has to know about each operator: its kind, its instructions, and what it asks of its operands.
#pragma once

#include "fusion/problem.hpp"

namespace rlflow::fusion {

// An operator in a graph, as far as these questions go.
struct Operator {
  const Signature& signature;
  const Context& context;
  bool stateful = false;

  [[nodiscard]] const TensorType& input(std::size_t slot) const { return context.type(signature.inputs[slot]); }
  [[nodiscard]] const TensorType& output(std::size_t index) const { return context.type(signature.outputs[index]); }
  [[nodiscard]] bool has_input(std::size_t slot) const {
    return slot < signature.inputs.size() && signature.inputs[slot] != kNoType;
  }
  [[nodiscard]] const AttributeMap& attributes() const { return context.attributes(signature.attributes); }
};

[[nodiscard]] Kind kind_of(const Operator& op);
[[nodiscard]] bool is_elementwise(const Operator& op);
[[nodiscard]] bool is_view(const Operator& op);
[[nodiscard]] bool is_expensive(const Operator& op);
[[nodiscard]] bool is_duplicable(const Operator& op);
[[nodiscard]] bool takes_epilogue(const Operator& op);

// Returns the operations of one evaluation of the whole result, in the unit of XLA's cost analysis: clock cycles of an
// instruction for pointwise operators, floating-point operations for library calls.
[[nodiscard]] double count_work(const Operator& op, Kind kind, const Device& device);

// Returns the elements of an operand, of which there are `elements`, that one evaluation of the whole result asks for.
[[nodiscard]] double count_demand(const Operator& op, Kind kind, std::size_t slot, double elements, const Device& device);

// Returns whether a kernel reads the operand's elements, rather than only its shape or a setting.
[[nodiscard]] bool reads_elements(const Operator& op, Kind kind, std::size_t slot);

}  // namespace rlflow::fusion
