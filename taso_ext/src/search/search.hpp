// Searches for the cheapest graph that rewrites can reach. Each can be stopped at any time and returns the best so far.
#pragma once

#include <functional>
#include <set>

#include "rewriting/state.hpp"

namespace rlflow {

// Limits of a search. Except for `seconds`, equal limits give equal results on every machine and with any number of
// threads.
struct SearchLimits {
  std::int64_t budget = 1000;                  // graphs to expand: to match and price all their rewrites
  double seconds = 0;                          // 0: no limit
  std::size_t memory_bytes = 512ull << 20;     // bytes of what a search holds: queue, graphs, hashes
  int threads = 1;
};

struct SearchResult {
  std::vector<std::pair<std::int32_t, std::int32_t>> actions;    // (rule, location) from the start to the best graph
  double cost_ms = 0;
  std::string stop_reason;         // "exhausted", "local optimum", "budget", "time", "memory" or "interrupted"
  std::int64_t expanded = 0;       // graphs whose rewrites were all priced
  std::int64_t generated = 0;      // rewrites priced
  std::int64_t duplicates = 0;     // rewrites that led to a graph seen before
  std::int64_t unpriced = 0;       // rewrites skipped because their graph has no price
  std::int64_t evicted = 0;        // rewrites given up, the most expensive first, because memory was short
  std::int64_t rebuilt = 0;        // graphs made again from an ancestor because their states had been given up
  std::size_t memory_bytes = 0;    // most bytes held at a time
  std::set<std::int32_t> rules{};    // rules that led to some graph
  double seconds = 0;
};

// A difference below this fraction is rounding, never an improvement.
inline constexpr double kEqualCost = 1e-9;
[[nodiscard]] constexpr bool is_cheaper(double cost_ms, double than_ms) { return cost_ms < than_ms * (1 - kEqualCost); }

// Called now and then, and whenever the best cost has fallen, with (graphs expanded, best cost in ms);
// returning false interrupts the search.
using SearchProgress = std::function<bool(std::int64_t, double)>;

// Searches by cost-based backtracking (Jia et al. 2019, "TASO", algorithm 1): expands the cheapest graph of a queue,
// and queues every rewrite that costs less than alpha times the best.
[[nodiscard]] SearchResult search_taso(const State& start, double alpha, const SearchLimits& limits, const SearchProgress& progress);

// Searches by steepest descent: takes the cheapest rewrite as long as it lowers the cost.
[[nodiscard]] SearchResult search_greedy(const State& start, const SearchLimits& limits, const SearchProgress& progress);

// Searches level by level: of all rewrites of the graphs of a level, the `width` cheapest that lead to new graphs make
// the next level. With `everywhere`, a rule that is carried out everywhere is one of the rewrites; it is carried out to
// learn its price.
[[nodiscard]] SearchResult search_beam(const State& start, std::int64_t width, bool everywhere, const SearchLimits& limits, const SearchProgress& progress);

// Searches by restarts: each takes `walk` random rewrites (a legal rule, then one of its locations), followed by
// steepest descent.
[[nodiscard]] SearchResult search_restarts(const State& start, std::int64_t walk, std::uint64_t seed, const SearchLimits& limits,
                                           const SearchProgress& progress);

// Returns the priced state after a match. If its graph has no price, returns nullptr and adds 1 to `unpriced`.
[[nodiscard]] std::shared_ptr<const State> priced_after(const State& state, const Match& match, std::int64_t& unpriced);

// Replaces a priced state by the one after its cheapest rewrite if that lowers the cost, and appends the rewrite to
// `actions`; among equals it takes the first by rule and location. Returns whether there was such a rewrite.
[[nodiscard]] bool descend(std::shared_ptr<const State>& state, std::vector<std::pair<std::int32_t, std::int32_t>>& actions, std::int64_t& unpriced);

}  // namespace rlflow
