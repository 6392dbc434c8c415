// Searches for the cheapest graph that rewriting can reach. All can be stopped at any time and then hold the best so far.
#pragma once

#include <functional>
#include <set>

#include "rewriting/state.hpp"

namespace rlflow {

// The same limits, but for time, lead to the same result on every machine and with any number of threads.
struct SearchLimits {
  std::int64_t budget = 1000;                  // graphs to expand: match and price all that can be done with them
  double seconds = 0;                          // 0: no limit
  std::size_t memory_bytes = 512ull << 20;     // of what a search holds: queue, graphs, what it has seen
  int threads = 1;
};

struct SearchResult {
  std::vector<std::pair<std::int32_t, std::int32_t>> actions;    // (rule, location) from the start to the best graph
  double cost_ms = 0;
  std::string stop_reason;         // "exhausted", "local optimum", "budget", "time", "memory" or "interrupted"
  std::int64_t expanded = 0;       // graphs whose rewrites were all priced
  std::int64_t generated = 0;      // rewrites priced
  std::int64_t duplicates = 0;     // rewrites that led to a graph seen before
  std::int64_t unpriced = 0;       // rewrites left alone, since no price of their graph could be had
  std::int64_t evicted = 0;        // rewrites given up, the dearest first, to stay within the memory
  std::int64_t rebuilt = 0;        // graphs made again from an ancestor because they had been given up
  std::size_t memory_bytes = 0;    // most held at a time
  std::set<std::int32_t> rules{};    // that led to some graph
  double seconds = 0;
};

// Differences below this fraction are rounding, never an improvement.
inline constexpr double kEqualCost = 1e-9;
[[nodiscard]] constexpr bool is_cheaper(double cost_ms, double than_ms) { return cost_ms < than_ms * (1 - kEqualCost); }

// Called now and then with (graphs expanded, best cost in ms); returning false interrupts the search.
using SearchProgress = std::function<bool(std::int64_t, double)>;

// Cost-based backtracking (Jia et al. 2019, "TASO", algorithm 1): the cheapest graph of a queue is expanded, what costs
// less than alpha times the best joins the queue.
[[nodiscard]] SearchResult search_taso(const State& start, double alpha, const SearchLimits& limits, const SearchProgress& progress);

// Steepest descent: the cheapest rewrite, as long as it lowers the cost.
[[nodiscard]] SearchResult search_greedy(const State& start, const SearchLimits& limits, const SearchProgress& progress);

// Level by level: of all rewrites of the graphs of a level, the `width` cheapest that lead to new graphs make the next.
[[nodiscard]] SearchResult search_beam(const State& start, std::int64_t width, const SearchLimits& limits, const SearchProgress& progress);

// Again and again: `walk` rewrites drawn at random (a legal rule, then one of its locations), then steepest descent.
[[nodiscard]] SearchResult search_restarts(const State& start, std::int64_t walk, std::uint64_t seed, const SearchLimits& limits,
                                           const SearchProgress& progress);

// The priced state after a match; none if its graph has no price, which `unpriced` counts.
[[nodiscard]] std::shared_ptr<const State> priced_after(const State& state, const Match& match, std::int64_t& unpriced);

// Takes the cheapest rewrite of a priced state if it lowers the cost, and adds it to the actions; among equals the first
// by rule and location. Whether there was one.
[[nodiscard]] bool descend(std::shared_ptr<const State>& state, std::vector<std::pair<std::int32_t, std::int32_t>>& actions, std::int64_t& unpriced);

}  // namespace rlflow
