// What the engine knows about each ONNX operator: identity, algebraic flags, execution, output types and arithmetic.
#pragma once

#include <array>

#include "ir/types.hpp"

namespace rlflow {

// How a run-time node executes, as far as its price depends on it.
enum class Execution : std::uint8_t {
  kKernel,       // one kernel that can absorb an elementwise epilogue
  kElementwise,  // pointwise; fused into the kernel that produces its operand if it is that operand's only use
  kMovement,     // copies data and does no arithmetic; can absorb an epilogue
  kView,         // changes the shape only; needs no kernel
  kSplit,        // copies data into several outputs, as runtimes do even if the parts are contiguous
  kOpaque,       // unknown to the engine: one kernel, never fused
};

struct OperatorInfo {
  std::string_view name;
  Execution execution;
  bool symmetric = false;         // its inputs may be permuted
  int since = 1;                  // first version of its domain that has it; 1 if all models here are newer
  std::string_view domain{};      // empty for ONNX's own
};

// Returns the number of known operators. Ids below it are positions in their table; other ids stand for operators met
// in models.
[[nodiscard]] OperatorId known_operator_count();
// Returns the id of a known operator, or nothing. `name` is "domain.operator", or "operator" for ONNX's own domain.
[[nodiscard]] std::optional<OperatorId> known_operator(std::string_view name);
// Returns the name that known_operator() takes.
[[nodiscard]] std::string dotted_name(const OperatorInfo& info);
[[nodiscard]] const OperatorInfo& operator_info(OperatorId known);

// Returns whether an operator makes a constant from its attributes alone; only the targets of rules use such operators.
[[nodiscard]] bool makes_constant(OperatorId op);

// A set of known operators.
class OperatorSet {
 public:
  static constexpr OperatorId kMost = 128;
  void add(OperatorId op) {
    if (op < kMost) bits_[op / 64] |= std::uint64_t{1} << (op % 64);
  }
  [[nodiscard]] bool meets(const OperatorSet& other) const { return (bits_[0] & other.bits_[0]) || (bits_[1] & other.bits_[1]); }

 private:
  std::array<std::uint64_t, 2> bits_{};
};

// Returns the output types of an operator in normal form, or nothing if the inputs do not fit or rules may not create
// the operator. Agrees with onnx.shape_inference if both give an answer (tests/taso_ext/engine/test_engine.py).
[[nodiscard]] std::optional<std::vector<TensorType>> infer_outputs(OperatorId op, const AttributeMap& attributes,
                                                                   std::span<const TensorType* const> inputs);

// Adds, with their defaults, the attributes of the normal form that a rule's target may leave out. `dtype` is the
// element type of the rule's tensors, which a constant gets.
void complete_attributes(OperatorId op, AttributeMap& attributes, int dtype);

// Returns the floating-point operations of one execution; a multiply-add counts as two, a pointwise function as one.
[[nodiscard]] double count_flops(OperatorId op, const AttributeMap& attributes, std::span<const TensorType* const> inputs,
                                 std::span<const TensorType* const> outputs);

// Returns the bytes that one execution reads and writes if it is not fused, weights included.
[[nodiscard]] double count_bytes(OperatorId op, std::span<const TensorType* const> inputs,
                                 std::span<const TensorType* const> outputs);

}  // namespace rlflow
