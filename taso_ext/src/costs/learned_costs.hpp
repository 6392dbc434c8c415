// Costs that are learned from whole graphs: what an operator costs depends on its neighbourhood.
#pragma once

#include <bit>
#include <functional>
#include <limits>
#include <shared_mutex>
#include <unordered_map>

#include "costs/cost.hpp"

namespace rlflow {

// Graphs with more work than this have no price, whatever is known of their operators: otherwise it would depend on the
// graphs that were met before which ones a search or an episode can reach.
struct WorkLimit {
  double flops = std::numeric_limits<double>::infinity();
  double bytes = std::numeric_limits<double>::infinity();    // moved, by the roofline of the device
  std::function<void()> refuse = {};                         // throws Unpriced
};

// Keeps the costs of operators by neighbourhood signature, and asks for those of new signatures. A known cost does not
// change: the first graph with a signature decides. The cost of an operator that no graph holds yet is estimated: as
// the mean cost of its kind so far or, for a new kind, as the roofline cost on `device` times the ratio of known costs
// to their roofline costs.
class LearnedCosts final : public CostModel {
 public:
  // Returns the costs of some run-time operators of a graph, given by their positions among its run-time operators;
  // FLOPs are ignored.
  using PriceOperators = std::function<std::vector<Cost>(const Graph&, const std::vector<std::int64_t>&)>;

  // `opset` is the opset of the model that the graphs come from.
  LearnedCosts(const Device& device, PriceOperators price_operators, int opset, WorkLimit limit = {})
      : device_(device), price_operators_(std::move(price_operators)), opset_(opset), limit_(std::move(limit)) {}

  [[nodiscard]] Cost price(const Signature& signature, bool fused) const override;
  [[nodiscard]] bool looks_around() const override { return true; }
  // Throws Unpriced beyond the limit, what `price_operators` throws (such as Unpriced), and InvalidInput if that returns
  // the wrong number of costs.
  [[nodiscard]] std::vector<Cost> price_in(const Graph& graph) const override;
  // Adds the costs of operators with the given neighbourhood signatures.
  void add(std::span<const std::uint64_t> signatures, std::span<const Cost> costs);

 private:
  struct Known {
    Cost cost;
    bool counted = false;    // whether the mean of its kind contains it: only an operator tells the kind
  };
  struct Mean {
    double sum_ms = 0;
    std::int64_t count = 0;
  };
  // Returns the kind of an operator. FLOPs and bytes count, because the hash of a signature leaves out the types of
  // operands (graphs hash the operands themselves).
  static std::uint64_t kind(const Signature& signature, bool fused) {
    return fold(fold(fold(signature.hash, std::bit_cast<std::uint64_t>(signature.flops)), std::bit_cast<std::uint64_t>(signature.bytes)), fused).high;
  }
  [[nodiscard]] std::vector<std::int64_t> unknown(std::span<const std::uint64_t> signatures) const;
  void learn(const Graph& graph, std::span<const std::uint64_t> signatures, const std::vector<std::int64_t>& unknown) const;
  void count(const Graph& graph, std::span<const NodeId> nodes, std::span<const std::uint64_t> signatures) const;

  Roofline device_;
  PriceOperators price_operators_;
  int opset_;
  WorkLimit limit_;
  mutable std::shared_mutex mutex_;
  mutable std::unordered_map<std::uint64_t, Known> known_;    // by neighbourhood signature
  mutable std::unordered_map<std::uint64_t, Mean> kinds_;
  mutable double sum_ms_ = 0, device_ms_ = 0;    // of all counted operators: their costs, and those on the device
};

}  // namespace rlflow
