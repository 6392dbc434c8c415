// The watch over a search: it checks the limits and reports progress.
#pragma once

#include <chrono>

#include "search/search.hpp"

namespace rlflow {

// Throws InvalidInput for limits that are out of range.
void check_limits(const SearchLimits& limits);

// Returns how many threads a search may use. It is one if costs are learned, because several threads would meet new
// operators in another order each time.
[[nodiscard]] int search_threads(const State& start, const SearchLimits& limits);

struct MemoryUse {
  std::size_t held = 0, needed = 0;    // bytes: held now, and needed at least to go on
};

class SearchWatch {
 public:
  SearchWatch(const SearchLimits& limits, const SearchProgress& progress, SearchResult& result)
      : limits_(limits), progress_(progress), result_(result) {}
  SearchWatch(const SearchWatch&) = delete;
  SearchWatch& operator=(const SearchWatch&) = delete;

  // Returns whether the limits allow another graph; if not, sets the stop reason of the result.
  [[nodiscard]] bool go_on(const MemoryUse& memory);
  [[nodiscard]] bool go_on(std::size_t held) { return go_on(MemoryUse{held, held}); }
  // Sets the seconds of the result and reports the end of the search.
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
  double next_report_ = 0, reported_ms_ = 0;    // seconds; the best cost when it last reported
};

}  // namespace rlflow
