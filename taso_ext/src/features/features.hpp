// Arrays for networks. The nodes of a graph are its run-time operators and inputs, and its edges are run-time tensors.
// The legal rewrites of a state are rows of numbers, for agents that pick from a list.
#pragma once

#include "rewriting/everywhere.hpp"

namespace rlflow {

// Columns of a node: operator id, log time, log FLOPs, log bytes, fused, number of weights, log weight elements, then
// the log extents of the first output, last extent first. Logarithms are scaled to the order of 1.
inline constexpr std::size_t kNodeFeatures = 11, kFeatureExtents = 4;
// Columns of an edge: dtype id, then log extents, last extent first.
inline constexpr std::size_t kEdgeFeatures = 5;
inline constexpr std::uint32_t kUnknownBuckets = 8;    // rows shared by all unknown operators; a name picks its row
inline constexpr int kDtypes = 27;

[[nodiscard]] std::uint32_t feature_operator_count();    // known operators, unknown buckets, a row for graph inputs
[[nodiscard]] std::uint32_t feature_operator(const Context& context, OperatorId op);
// Returns log(1 + value) / scale; 0 for negative values.
[[nodiscard]] float log_scaled(double value, double scale);

struct Features {
  std::vector<float> nodes;            // [N, kNodeFeatures]
  std::vector<float> edges;            // [E, kEdgeFeatures]
  std::vector<std::int64_t> links;     // [E, 2]: producer and consumer rows
};

[[nodiscard]] Features graph_features(const State& state);

// Returns the nodes that every rewrite replaces, as pairs [n, 2] in ascending order: the index of a rewrite among
// state.matches(), and the row of one of its nodes in graph_features(). Weight-only nodes have no row and are left out.
[[nodiscard]] std::vector<std::int32_t> matched_rows(const State& state);

// The columns of a rewrite. First comes its rule: either a column for each rule and one for NO-OP, of which one is 1,
// or the single column (rule + 1) / (rules + 1). If `everywhere` is true, a column follows that is 1 for a rule that is
// carried out everywhere. Then come (location + 1) / locations, which distinguishes rewrites
// that are alike in all other columns; the place of the root in topological order, in (0, 1]; the log FLOPs and log
// bytes of the matched nodes; and, if `costs` is true, the change of the cost in percent: 100 ln(after / before). Of
// a rule that is carried out everywhere, location and place are 0, and the nodes are those of all matches.
struct CandidateColumns {
  bool one_hot_rules = true;
  bool costs = false;
  bool everywhere = false;

  [[nodiscard]] std::size_t rule_columns(const State& state) const { return one_hot_rules ? state.game().rules().size() + 1 : 1; }
  [[nodiscard]] std::size_t count(const State& state) const { return rule_columns(state) + 4 + (costs ? 1 : 0) + (everywhere ? 1 : 0); }
};

// Fills `rows`, [rows, columns.count(state)], with NO-OP, then `rules_everywhere` if they have a column, and then
// state.matches(), as many of them as fit; the rest is zero.
// If columns.costs is true, the state must be priced.
void put_candidate_features(const State& state, const CandidateColumns& columns, std::span<float> rows);

}  // namespace rlflow
