// Watches the limits of a search and reports its progress.
#pragma once

#include <chrono>

#include "search/search.hpp"

namespace rlflow {

// Throws InvalidInput for limits that allow nothing.
void check_limits(const SearchLimits& limits);

// How many threads a search may use: one where costs are learned, for several would meet what is new in another order
// each time.
[[nodiscard]] int search_threads(const State& start, const SearchLimits& limits);

struct MemoryUse {
  std::size_t held = 0, needed = 0;    // bytes: now, and at least if the search goes on
};

class SearchWatch {
 public:
  SearchWatch(const SearchLimits& limits, const SearchProgress& progress, SearchResult& result)
      : limits_(limits), progress_(progress), result_(result) {}
  SearchWatch(const SearchWatch&) = delete;
  SearchWatch& operator=(const SearchWatch&) = delete;

  // Whether there is budget and time for another graph; if not, says why in the result.
  [[nodiscard]] bool go_on(const MemoryUse& memory);
  [[nodiscard]] bool go_on(std::size_t held) { return go_on(MemoryUse{held, held}); }
  // Reports where the search ended.
  void finish() {
    result_.seconds = elapsed();
    if (progress_) (void)progress_(result_.expanded, result_.cost_ms);
  }

 private:
  [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  const SearchLimits& limits_;
  const SearchProgress& progress_;
  SearchResult& result_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double next_report_ = 0;
};

}  // namespace rlflow
