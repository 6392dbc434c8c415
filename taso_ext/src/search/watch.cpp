#include "search/watch.hpp"

#include <algorithm>

namespace rlflow {
namespace {

constexpr double kReportEvery = 0.05;    // seconds: often enough for Ctrl-C and a progress bar
constexpr std::size_t kLeastMemory = 16ull << 20;
constexpr int kMostThreads = 256;

}  // namespace

void check_limits(const SearchLimits& limits) {
  if (limits.budget < 1) throw InvalidInput("the search budget must be at least 1 graph, got " + std::to_string(limits.budget));
  if (!(limits.seconds >= 0)) throw InvalidInput("the time limit must be at least 0 seconds (0: none), got " + std::to_string(limits.seconds));
  if (limits.memory_bytes < kLeastMemory) {
    throw InvalidInput("a search needs at least 16 MB of memory, got a limit of " + std::to_string(limits.memory_bytes) + " bytes");
  }
  if (limits.threads < 1 || limits.threads > kMostThreads) {
    throw InvalidInput("a search takes 1 to " + std::to_string(kMostThreads) + " threads, got " + std::to_string(limits.threads));
  }
}

int search_threads(const State& start, const SearchLimits& limits) { return start.game().costs().looks_around() ? 1 : limits.threads; }

bool SearchWatch::go_on(const MemoryUse& memory) {
  result_.memory_bytes = std::max(result_.memory_bytes, memory.held);
  const double now = elapsed();
  if (progress_ && (now >= next_report_ || is_cheaper(result_.cost_ms, reported_ms_))) {
    next_report_ = now + kReportEvery;
    reported_ms_ = result_.cost_ms;
    if (!progress_(result_.expanded, result_.cost_ms)) return result_.stop_reason = "interrupted", false;
  }
  if (result_.expanded >= limits_.budget) return result_.stop_reason = "budget", false;
  if (limits_.seconds > 0 && now >= limits_.seconds) return result_.stop_reason = "time", false;
  if (memory.needed > limits_.memory_bytes) return result_.stop_reason = "memory", false;
  return true;
}

}  // namespace rlflow
