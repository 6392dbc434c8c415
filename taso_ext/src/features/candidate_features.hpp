// The legal rewrites of a state as rows of numbers, for agents that pick from a list.
#pragma once

#include "rewriting/state.hpp"

namespace rlflow {

// How a rewrite becomes a row: first its rule, either a column for each rule and one for NO-OP, of which one is 1, or the
// single column (rule + 1) / (rules + 1); then (location + 1) / locations, which tells rewrites apart that are alike in
// all else; place of the root in topological order, (0, 1]; log FLOPs and log bytes of the nodes that are replaced; then,
// with `costs`, the change of the cost in percent: 100 ln(after / before).
struct CandidateColumns {
  bool one_hot_rules = true;
  bool costs = false;

  [[nodiscard]] std::size_t rule_columns(const State& state) const { return one_hot_rules ? state.game().rules().size() + 1 : 1; }
  [[nodiscard]] std::size_t count(const State& state) const { return rule_columns(state) + 4 + (costs ? 1 : 0); }
};

// Fills `rows` [rows, columns.count(state)]: NO-OP, then as many of `state.matches()` as have a row; the rest is zero.
void put_candidate_features(const State& state, const CandidateColumns& columns, std::span<float> rows);

}  // namespace rlflow
