// Signatures of the neighbourhoods of run-time operators: an operator together with those near it.
#pragma once

#include "ir/graph.hpp"

namespace rlflow {

// Megabytes of all weights that run-time operators read, as the nearest of some sizes from 1 to 64: which cache they
// fit, if any, decides what it costs to read one of them.
[[nodiscard]] std::int64_t weights_mb(const Graph& graph);

inline constexpr int kNeighbourhood = 3;    // operators away, in either direction

// One for each run-time operator, in the graph's order: equal, in any graph, where the operators within kNeighbourhood
// have the same signatures and read one another alike (Weisfeiler and Leman's refinement, that many rounds of it), and
// the graphs read about as much of weights and are written in the same opset: `opset`, the model's own, or a newer one
// that their operators need. A change of what decides them has to raise OPERATOR_COSTS in environment/costs/prices/price_list.py.
[[nodiscard]] std::vector<std::uint64_t> neighbourhood_signatures(const Graph& graph, int opset);

}  // namespace rlflow
