// A state and every graph that one rewrite leads to, for networks that look at candidates. A graph after a rewrite shares
// almost everything with the present one, and nodes that see the same are embedded alike, so only different ones are
// listed.
#pragma once

#include "rewriting/state.hpp"

namespace rlflow {

// Columns of an edge: the extents of its tensor over `kExtentScale`, last extent first. Columns of a node: operator id,
// log time of the operator alone, and the sum of these extents over the weights that it reads, which are no nodes.
inline constexpr std::size_t kCandidateEdgeColumns = 4, kCandidateNodeColumns = 2 + kCandidateEdgeColumns;
inline constexpr float kExtentScale = 4096.0F;

// Graph 0 is the present one, and graph c + 1 the one after the c-th match. Their nodes are their inputs and run-time
// operators. Nodes have the same colour (Weisfeiler and Leman 1968), in this state and in others, where they see the same
// over as many edges as `reach` says: equal nodes that read along equal edges from nodes that do so themselves. Each
// colour is listed once, with the edges that lead to one of its nodes.
struct CandidateGraphs {
  std::vector<float> nodes;            // [N, kCandidateNodeColumns]
  std::vector<std::int64_t> colours;   // [N], different
  std::vector<float> edges;            // [E, kCandidateEdgeColumns], in the order of their consumers
  std::vector<std::int32_t> links;     // [E, 2]: producer and consumer, as rows of `nodes`
  std::vector<std::int32_t> parts;     // [P, 2], ascending: a graph and a row of `nodes`
  std::vector<std::int32_t> counts;    // [P]: how many such nodes graph 0 has, or how many more another graph has; not 0
};

// Lists the first `most` matches. `reach` is the number of rounds in which a network passes values along edges.
[[nodiscard]] CandidateGraphs candidate_graphs(const State& state, std::int64_t reach, std::size_t most);

}  // namespace rlflow
