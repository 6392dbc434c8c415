// What the engine knows about each ONNX operator: identity, algebraic flags, how it runs, output types, arithmetic.
#pragma once

#include <array>

#include "ir/types.hpp"

namespace rlflow {

// How a run-time node executes, as far as pricing is concerned.
enum class Execution : std::uint8_t {
  kKernel,       // one kernel that can absorb an elementwise epilogue
  kElementwise,  // pointwise; disappears into the kernel that produces its operand when it is that operand's only use
  kMovement,     // copies data, does no arithmetic; can absorb an epilogue
  kView,         // changes the shape only: no kernel
  kSplit,        // copies data into several outputs, even where its parts are contiguous: runtimes do
  kOpaque,       // unknown to the engine: one kernel, never fused
};

struct OperatorInfo {
  std::string_view name;
  Execution execution;
  bool symmetric = false;         // its inputs may change places
  int since = 1;                  // first version of its domain that has it; 1 also where that is older than any model here
  std::string_view domain{};      // empty: ONNX's own
};

// Ids below this are positions in the table of known operators; higher ones are operators met in models.
[[nodiscard]] OperatorId known_operator_count();
// Id of a known operator by its name, behind its domain and a dot if that is not ONNX's own; or nothing.
[[nodiscard]] std::optional<OperatorId> known_operator(std::string_view name);
// That name.
[[nodiscard]] std::string dotted_name(const OperatorInfo& info);
[[nodiscard]] const OperatorInfo& operator_info(OperatorId known);

// Whether it makes a constant of nothing but its attributes; only targets use it.
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

// Output types of an operator in normal form, or nothing when the inputs do not fit or the operator is not one that
// rules may create. Agrees with onnx.shape_inference where both answer (tests/taso_ext/engine/test_engine.py).
[[nodiscard]] std::optional<std::vector<TensorType>> infer_outputs(OperatorId op, const AttributeMap& attributes,
                                                                   std::span<const TensorType* const> inputs);

// Adds the attributes of the normal form that a rule's target may leave out, with their defaults; the dtype of a constant
// is that of its rule's tensors.
void complete_attributes(OperatorId op, AttributeMap& attributes, int dtype);

// Floating-point operations of one execution; a multiply-add counts as two, a pointwise function as one.
[[nodiscard]] double count_flops(OperatorId op, const AttributeMap& attributes, std::span<const TensorType* const> inputs,
                                 std::span<const TensorType* const> outputs);

// Bytes read and written by one execution on its own, weights included.
[[nodiscard]] double count_bytes(OperatorId op, std::span<const TensorType* const> inputs,
                                 std::span<const TensorType* const> outputs);

}  // namespace rlflow
