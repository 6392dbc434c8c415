// Weisfeiler-Leman colours of the nodes of a graph whose nodes and edges are rows of numbers (Weisfeiler and Leman 1968).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/context.hpp"

namespace rlflow {

// A graph of N nodes and E edges; `links` are pairs of a sender and a receiver, as rows of `nodes`.
template <typename Id>
struct ColouredGraph {
  std::span<const float> nodes;    // [N, node_columns]
  std::span<const float> edges;    // [E, edge_columns]
  std::span<const Id> links;       // [E, 2]
  std::size_t node_columns = 1, edge_columns = 1;
};

// Returns the colour of every node after a number of rounds: nodes have the same one where a network that passes values
// along edges in as many rounds gives them the same values. A node sees its own row, the rows of the edges to it and,
// in each round, what the senders of these edges have seen; if `both_ways`, an edge also leads from its receiver to its
// sender, and the two directions differ. Colours are hashes of nothing else, so they mean the same in all graphs.
template <typename Id>
[[nodiscard]] std::vector<Hash128> node_colours(const ColouredGraph<Id>& graph, std::int64_t rounds, bool both_ways);

extern template std::vector<Hash128> node_colours(const ColouredGraph<std::int32_t>&, std::int64_t, bool);
extern template std::vector<Hash128> node_colours(const ColouredGraph<std::int64_t>&, std::int64_t, bool);

}  // namespace rlflow
