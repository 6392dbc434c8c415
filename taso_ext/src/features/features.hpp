// The graph as arrays for a neural network: run-time operators and inputs are nodes, run-time tensors are edges.
#pragma once

#include "rewriting/state.hpp"

namespace rlflow {

// Columns of a node: operator id, log time, log FLOPs, log bytes, fused, number of weights, log weight elements, then
// the log extents of the first output, last extent first. Logarithms are scaled to the order of 1.
inline constexpr std::size_t kNodeFeatures = 11, kFeatureExtents = 4;
// Columns of an edge: dtype id, then log extents, last extent first.
inline constexpr std::size_t kEdgeFeatures = 5;
inline constexpr std::uint32_t kUnknownBuckets = 8;    // unknown operators share these rows, picked by their name
inline constexpr int kDtypes = 27;

[[nodiscard]] std::uint32_t feature_operator_count();    // known operators, unknown buckets, one row for graph inputs

struct Features {
  std::vector<float> nodes;            // [N, kNodeFeatures]
  std::vector<float> edges;            // [E, kEdgeFeatures]
  std::vector<std::int64_t> links;     // [E, 2]: producer and consumer rows
};

[[nodiscard]] Features graph_features(const State& state);

}  // namespace rlflow
