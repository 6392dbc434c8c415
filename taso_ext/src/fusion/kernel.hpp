// Kernels: which tensors a kernel computes under a configuration, and what it costs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/problem.hpp"

namespace rlflow::fusion {

// Times are whole femtoseconds, so that a sum does not depend on its order and the difference of two plans is exact.
using Femtoseconds = std::int64_t;
[[nodiscard]] constexpr double to_ms(Femtoseconds time) { return static_cast<double>(time) * 1e-12; }

// A kernel is named by its root, the one tensor that it writes. `members` are the tensors that it computes, the root
// first; `reads` those that it loads. Both are in the order in which they were decided, and no tensor is in both.
struct Kernel {
  std::vector<std::int32_t> members, reads;
  Femtoseconds price = 0;
};

// Forms kernels. A kernel takes in a tensor if its decision is 1, all members that read it can absorb it, and
//   - the kernel stays within the limits of registers and parameters, or the tensor adds no operand (FusionFitsInBudget);
//   - it has at most one hero, an operator that decides how the kernel is written (a reduction, transpose, pool or
//     library call). The hero is the root or reaches it through pointwise operators alone (FindNonTrivialHero).
// All other tensors that members read are loaded. Tensors are decided in the order of their numbers, last first, so that
// all members that read a tensor are known by then. A kernel has one root, and everything that it loads is older than
// the root; so kernels never wait for each other in a circle.
class KernelBuilder {
 public:
  explicit KernelBuilder(const Problem& problem) : problem_(problem), place_(problem.size(), -1) {}

  // Makes `kernel` the kernel of a root under a configuration, one byte for each tensor.
  void build(std::int32_t root, std::span<const std::uint8_t> bits, Kernel& kernel);

 private:
  // A tensor that some member reads. Members that read it pointwise at the position of the same tensor ask for the same
  // element, which is computed or loaded once: `groups` are the ordinals of the members whose positions these are, and
  // `own` is how often, relative to its size, the tensor is evaluated for all other readers
  // (GpuHloCostAnalysis::FusionCalculateUtilizations).
  struct Slot {
    std::int32_t tensor = 0;
    std::uint64_t groups = 0;
    double own = 0;
    bool absorbable = true;
  };

  static constexpr std::size_t kMostMembers = 64;    // bits of Slot::groups; XLA bounds the code's size (kMaxIRSize)
  // MaxOperandsAndOutputsPerFusion() of gpu_fusible.h is 64, of which one is the output.
  static constexpr std::size_t kMostOperands = 63;
  // A thread has at most 255 registers (CUDA C++ programming guide, compute capabilities 5.0 to 9.0). A pointer takes
  // two; XLA's loops compute four elements in a thread, and each live value takes a register for each of them.
  static constexpr std::size_t kMostRegisters = 255, kFixedRegisters = 16, kPointerRegisters = 2, kElementsPerThread = 4;

  void expand(const Slot& member);
  [[nodiscard]] bool takes_in(const Slot& slot, std::span<const std::uint8_t> bits) const;
  [[nodiscard]] std::size_t count_new_operands(std::int32_t tensor) const;
  [[nodiscard]] double evaluations(const Slot& slot) const;
  [[nodiscard]] Femtoseconds price() const;

  const Problem& problem_;
  std::vector<std::int32_t> place_;    // of each tensor in slots_; -1 if no member reads it
  std::vector<Slot> slots_;
  std::vector<std::size_t> members_, reads_, pending_;    // places in slots_; pending tensors are not decided yet
  std::vector<double> group_evaluations_;       // by ordinal of the member
  std::int32_t hero_ = -1;
};

}  // namespace rlflow::fusion
