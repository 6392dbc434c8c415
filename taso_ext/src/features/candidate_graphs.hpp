// A state and every graph that one rewrite leads to, as one large graph for networks that look at candidates. A graph
// after a rewrite shares almost everything with the present one, so only what differs is listed.
#pragma once

#include "rewriting/state.hpp"

namespace rlflow {

// Columns of an edge: the extents of its tensor over `kExtentScale`, last extent first. Columns of a node: operator id,
// log time of the operator alone, and the sum of these extents over the weights that it reads, which are no nodes.
inline constexpr std::size_t kCandidateEdgeColumns = 4, kCandidateNodeColumns = 2 + kCandidateEdgeColumns;
inline constexpr float kExtentScale = 4096.0F;

// Graph 0 is the present one, and graph c + 1 the one after the c-th match. The nodes of graph 0 are its inputs and its
// run-time operators, in the order of `graph_features`. Any other graph consists of the nodes of graph 0 but those that
// `gone` lists, and of its own nodes. These are the operators that differ in the graph, or that may see a difference
// over as many edges as `reach` says. An edge leads to a node of its own graph, from there or from graph 0.
struct CandidateGraphs {
  std::vector<float> nodes;            // [N, kCandidateNodeColumns]
  std::vector<std::int32_t> owners;    // [N], ascending: the graph of a node
  std::vector<std::int64_t> colours;   // [N], Weisfeiler-Leman: equal where a node sees the same over `reach` edges
  std::vector<float> edges;            // [E, kCandidateEdgeColumns], in the order of their consumers
  std::vector<std::int32_t> links;     // [E, 2]: producer and consumer, as rows of `nodes`
  std::vector<std::int32_t> gone;      // [G, 2], ascending: a graph, and a node of graph 0 that it does not have
};

// Lists the first `most` matches. `reach` is the number of rounds in which a network passes values along edges.
[[nodiscard]] CandidateGraphs candidate_graphs(const State& state, std::int64_t reach, std::size_t most);

}  // namespace rlflow
