// A fusion plan: a configuration of a problem with its kernels and its cost, changed one decision at a time.
#pragma once

#include <memory>
#include <utility>

#include "fusion/kernel.hpp"

namespace rlflow::fusion {

// A configuration and what follows from it. Invariant: exactly those tensors have a kernel that are outputs of the graph
// or are read by some kernel; `reads_` counts for each tensor the kernels that load it, `touched_by_` lists for each
// configurable tensor the roots of the kernels whose members or reads contain it, other than as the root; `total_` is
// the sum of the kernels' prices. Questions that cost a query count it at the problem.
class Plan {
 public:
  // Throws InvalidInput if there is not one byte for each tensor, or if one that is not configurable is 1.
  Plan(std::shared_ptr<const Problem> problem, std::vector<std::uint8_t> bits);

  [[nodiscard]] const Problem& problem() const { return *problem_; }
  [[nodiscard]] const std::vector<std::uint8_t>& bits() const { return bits_; }

  // Returns the cost in ms. Counts one query.
  [[nodiscard]] double cost_ms() const;
  // Returns cost with a decision flipped minus cost without, in femtoseconds; the plan stays as it is. One query.
  [[nodiscard]] Femtoseconds delta(std::int32_t tensor);
  // Flips decisions, one after the other. Counts nothing. Throws InvalidInput for a tensor that is not configurable.
  void flip(std::span<const std::int32_t> tensors);

  // Returns the roots of all kernels in ascending order, and the kernel of one of them.
  [[nodiscard]] std::vector<std::int32_t> roots() const;
  [[nodiscard]] const Kernel& kernel(std::int32_t root) const { return kernels_[static_cast<std::size_t>(root)]; }

 private:
  // What becomes of the kernel of a root.
  struct Change {
    std::int32_t root = 0;
    bool had = false, has = false;
    Kernel kernel;    // the new one, if `has`
  };

  void require_configurable(std::int32_t tensor) const;
  [[nodiscard]] bool needs_kernel(std::int32_t tensor, std::int32_t readers) const;
  // Finds, with the decision of `tensor` already flipped, the kernels that change, into changes_[0 ... count_). Returns
  // the change of the cost.
  Femtoseconds find_changes(std::int32_t tensor);
  Change& next_change();
  void count_reads(const std::vector<std::int32_t>& reads, std::int32_t by);
  void commit();
  void touch(const Kernel& kernel, std::int32_t root);
  void untouch(const Kernel& kernel, std::int32_t root);

  std::shared_ptr<const Problem> problem_;
  std::vector<std::uint8_t> bits_;
  KernelBuilder builder_;
  std::vector<Kernel> kernels_;                              // by root; empty if there is none
  std::vector<std::int32_t> reads_;
  std::vector<std::vector<std::int32_t>> touched_by_;
  Femtoseconds total_ = 0;

  std::vector<Change> changes_;    // kept for their memory
  std::size_t count_ = 0;
  std::vector<std::int32_t> extra_reads_;         // by tensor, of the change that is looked for
  std::vector<std::int32_t> extra_;               // tensors with an entry in extra_reads_
  std::vector<std::int32_t> queue_;               // heap of tensors whose kernels may change
  std::vector<std::uint8_t> queued_, affected_;
};

// The record of Gibbs sampling, one row for each visit of a node.
struct GibbsRecord {
  std::vector<std::int32_t> tensors;
  std::vector<double> deltas_ms;       // cost with the decision flipped minus cost without
  std::vector<std::uint8_t> flipped;
};

// Visits all configurable tensors `sweeps` times, each time in a new random order, and draws each decision from
// p(y = k | rest) = exp(-cost_k / T) / sum. The temperature T is in ms. Each visit counts one query. The same seed gives
// the same record on every machine. Throws InvalidInput for a temperature that is not positive.
[[nodiscard]] GibbsRecord sample_gibbs(Plan& plan, std::int64_t sweeps, double temperature_ms, std::uint64_t seed);

}  // namespace rlflow::fusion
