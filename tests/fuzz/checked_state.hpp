// Rewrites that are checked against everything the engine predicted of them, and against the same work done from scratch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "search/search.hpp"
#include "rewriting/state.hpp"

namespace rlflow::fuzz {

using StatePtr = std::shared_ptr<const State>;

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// Sums of prices in different orders. Absurd tensors cost up to 1e18 ms, beside which the others are lost in rounding.
inline bool about_equal(double a, double b, double scale) { return std::abs(a - b) <= 1e-9 * (std::abs(scale) + 1e-3); }

inline bool same_actions(const State& a, const State& b) {
  return std::ranges::equal(a.matches(), b.matches(), [](const Match& x, const Match& y) { return x.rule == y.rule && x.location == y.location; });
}

inline void check_state(const State& state) {
  require(std::isfinite(state.cost_ms()) && state.cost_ms() >= 0, "a cost is a finite number of at least 0");
  require(about_equal(state.cost_ms(), state.cost().ms, state.cost_ms()), "the cost that was carried along is that of the graph");
  const State again = state.rematched();
  if (state.truncated_matches() == 0) require(same_actions(state, again), "matches that were carried along are those found from scratch");
  else require(state.matches().size() == again.matches().size(), "as many matches are left out as when they are found from scratch");
}

// The state after a legal rewrite.
inline StatePtr checked_after(const State& state, const Match& match) {
  const auto index = static_cast<std::size_t>(&match - state.matches().data());
  const double price = state.priced()->candidates()[index].cost_ms;
  const Hash128 predicted = state.plain_hash_after(match);
  StatePtr next = std::make_shared<const State>(state.after(match));
  require(next->graph().plain_hash() == predicted, "a graph has the hash that was predicted");
  require(about_equal(next->cost_ms(), price, std::max(next->cost_ms(), state.cost_ms())), "a graph costs what was predicted");
  check_state(*next);
  return next;
}

// A search's actions lead to a graph of the cost it reports.
inline void check_search(StatePtr state, const SearchResult& result) {
  for (const auto& [rule, location] : result.actions) state = std::make_shared<const State>(state->after(state->match(rule, location)));
  require(about_equal(state->cost_ms(), result.cost_ms, state->cost_ms()), "a search's actions lead to the cost it reports");
}

}  // namespace rlflow::fuzz
