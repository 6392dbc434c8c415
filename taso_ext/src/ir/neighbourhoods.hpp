// Signatures of the neighbourhoods of run-time operators. A neighbourhood is an operator with the operators near it.
#pragma once

#include <array>
#include <unordered_map>

#include "ir/graph.hpp"

namespace rlflow {

// Returns the megabytes of all weights that run-time operators read, as the nearest of some sizes from 1 to 512. Which
// cache the weights fit into, if any, decides what it costs to read one of them.
[[nodiscard]] std::int64_t weights_mb(const Graph& graph);

inline constexpr int kNeighbourhood = 3;    // distance in operators, in either direction

// Returns one signature for each run-time operator, in the graph's order. Operators of any graphs have equal signatures
// if the operators within `distance` have the same operator signatures and read one another alike (`distance` rounds of
// Weisfeiler and Leman's refinement), and if their graphs have the same weights_mb() and are written in the same opset:
// `opset`, the model's own, or a newer one that their operators need. A change of what decides the signatures has to
// raise OPERATOR_COSTS in environment/costs/prices/price_list.py.
[[nodiscard]] std::vector<std::uint64_t> neighbourhood_signatures(const Graph& graph, int opset, int distance = kNeighbourhood);

// Weights of signatures of the distances 0 to `distance`; others have the weight 0.
struct SignatureWeights {
  static constexpr std::size_t kTotals = 3;    // FLOPs, bytes and kernel launches
  int opset = 0, distance = 0;
  std::unordered_map<std::uint64_t, float> of;
  std::array<double, kTotals> per_total{};    // weights of what a graph has in all
};

// Returns the sum of the weights of the signatures of all run-time operators, at all distances.
[[nodiscard]] double sum_of_weights(const Graph& graph, const SignatureWeights& weights);

}  // namespace rlflow
