// Costs that are learned from whole graphs: what an operator costs depends on its neighbourhood.
#pragma once

#include <bit>
#include <functional>
#include <shared_mutex>
#include <unordered_map>

#include "costs/cost.hpp"

namespace rlflow {

// Keeps the cost of an operator by its neighbourhood signature, and has new ones priced. What is known stays: the first
// graph with a signature decides. Operators that no graph holds yet are estimated to cost what
// their kind has cost so far, or, if that is new, as much more than on `device` as the others do.
class LearnedCosts final : public CostModel {
 public:
  // Of some run-time operators of a graph, by their positions in its order; FLOPs do not count.
  using PriceOperators = std::function<std::vector<Cost>(const Graph&, const std::vector<std::int64_t>&)>;

  // `opset`: of the model whose graphs these are.
  LearnedCosts(const Device& device, PriceOperators price_operators, int opset)
      : device_(device), price_operators_(std::move(price_operators)), opset_(opset) {}

  [[nodiscard]] Cost price(const Signature& signature, bool fused) const override;
  [[nodiscard]] bool looks_around() const override { return true; }
  // Throws what `price_operators` throws (Unpriced, say), and InvalidInput when it does not price what it was asked for.
  [[nodiscard]] std::vector<Cost> price_in(const Graph& graph) const override;
  // Adds what operators of some signatures cost.
  void add(std::span<const std::uint64_t> signatures, std::span<const Cost> costs);

 private:
  struct Known {
    Cost cost;
    bool counted = false;    // in the mean of its kind, which needs an operator to tell the kind
  };
  struct Mean {
    double sum_ms = 0;
    std::int64_t count = 0;
  };
  // The hash of a signature leaves out the types of what is read, since graphs hash that as well.
  static std::uint64_t kind(const Signature& signature, bool fused) {
    return fold(fold(fold(signature.hash, std::bit_cast<std::uint64_t>(signature.flops)), std::bit_cast<std::uint64_t>(signature.bytes)), fused).high;
  }
  [[nodiscard]] std::vector<std::int64_t> unknown(std::span<const std::uint64_t> signatures) const;
  void learn(const Graph& graph, std::span<const std::uint64_t> signatures, const std::vector<std::int64_t>& unknown) const;
  void count(const Graph& graph, std::span<const NodeId> nodes, std::span<const std::uint64_t> signatures) const;

  Roofline device_;
  PriceOperators price_operators_;
  int opset_;
  mutable std::shared_mutex mutex_;
  mutable std::unordered_map<std::uint64_t, Known> known_;    // by neighbourhood signature
  mutable std::unordered_map<std::uint64_t, Mean> kinds_;
  mutable double sum_ms_ = 0, device_ms_ = 0;    // of what was counted, and what the device would take
};

}  // namespace rlflow
