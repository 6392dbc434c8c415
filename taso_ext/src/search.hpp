// Cost-based backtracking search over graphs (Jia et al. 2019, "TASO", algorithm 1).
#pragma once

#include <functional>

#include "state.hpp"

namespace rlflow {

struct SearchResult {
  std::vector<std::pair<std::int32_t, std::int32_t>> actions;    // (rule, location) from the start to the best graph
  double cost_ms = 0;
  std::string stop_reason;    // "budget", "exhausted" or "interrupted"
  std::int64_t expanded = 0;    // graphs taken from the queue
  std::int64_t generated = 0;   // candidates priced
};

// Differences below this fraction are rounding, never an improvement.
inline constexpr double kEqualCost = 1e-9;

// progress(expanded, best cost in ms) is called after each expansion; returning false interrupts the search.
[[nodiscard]] SearchResult search_taso(const State& start, double alpha, std::int64_t budget,
                                       const std::function<bool(std::int64_t, double)>& progress);

}  // namespace rlflow
