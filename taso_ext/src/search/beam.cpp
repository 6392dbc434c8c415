#include <algorithm>
#include <iterator>

#include "search/explored.hpp"
#include "search/watch.hpp"
#include "search/worker_pool.hpp"

namespace rlflow {
namespace {

constexpr std::int64_t kMostWidth = 1'000'000;

class BeamSearch {
 public:
  BeamSearch(const State& start, std::int64_t width, bool everywhere, const SearchLimits& limits)
      : limits_(limits), width_(static_cast<std::size_t>(width)), everywhere_(everywhere), root_(start.priced()), explored_(root_, limits.memory_bytes), pool_(search_threads(start, limits)) {
    result_.cost_ms = start.cost_ms();
  }

  SearchResult run(const SearchProgress& progress) {
    SearchWatch watch(limits_, progress, result_);
    std::vector<std::int32_t> level = {0};
    while (!level.empty()) level = next_level(level, watch);
    if (result_.stop_reason.empty()) result_.stop_reason = "exhausted";
    watch.finish();
    result_.actions = explored_.tree().path(best_);
    result_.rebuilt = explored_.tree().rebuilt();
    return std::move(result_);
  }

 private:
  // Returns the next level; it is empty if there is none or a limit was met.
  std::vector<std::int32_t> next_level(const std::vector<std::int32_t>& level, SearchWatch& watch) {
    Frontier frontier(limits_.memory_bytes * 3 / 16, [](const QueuedRewrite&) {});
    const auto held = [&] { return explored_.share_memory(frontier.memory_bytes()); };
    for (const std::int32_t index : level) {
      if (!watch.go_on(held())) return {};
      expand(index, frontier);
    }
    std::vector<std::int32_t> next;
    while (next.size() < width_ && !frontier.empty()) {
      for (const Step& step : carry_out(frontier, width_ - next.size())) {
        if (!watch.go_on(held())) return {};
        take(step, next);
      }
    }
    for (const std::int32_t index : level) explored_.tree().release(index);
    result_.evicted += frontier.evicted();
    return next;
  }

  void expand(std::int32_t index, Frontier& frontier) {
    const std::shared_ptr<const State> state = explored_.tree().state(index);
    std::vector<Candidate> candidates = state->candidates();
    if (everywhere_) std::ranges::copy(everywhere_candidates(*state), std::back_inserter(candidates));
    for (std::size_t i = 0; i < candidates.size(); ++i) frontier.push({candidates[i].cost_ms, index, static_cast<std::uint32_t>(i)});
    result_.generated += static_cast<std::int64_t>(candidates.size());
    ++result_.expanded;
  }

  struct Step {
    std::int32_t parent;
    Outcome outcome;
  };

  // Carries out the cheapest rewrites of the queue: one for each thread, but at most `places`.
  std::vector<Step> carry_out(Frontier& frontier, std::size_t places) {
    std::vector<std::pair<std::int32_t, std::shared_ptr<Job<Outcome>>>> jobs;
    while (jobs.size() < std::min(pool_.width(), places) && !frontier.empty()) {
      const QueuedRewrite rewrite = frontier.pop();
      jobs.emplace_back(rewrite.parent, std::make_shared<Job<Outcome>>([this, rewrite] { return explored_.carry_out(rewrite); }));
      pool_.submit(jobs.back().second);
    }
    std::vector<Step> steps;
    for (auto& [parent, job] : jobs) steps.push_back({parent, std::move(job->get())});
    return steps;
  }

  void take(const Step& step, std::vector<std::int32_t>& next) {
    if (!explored_.insert(step.outcome)) {
      ++(step.outcome.unpriced ? result_.unpriced : result_.duplicates);
      return;
    }
    result_.rules.insert(step.outcome.rule);
    const std::int32_t index = explored_.tree().add(step.parent, step.outcome.rule, step.outcome.location, step.outcome.state);
    if (is_cheaper(step.outcome.state->cost_ms(), result_.cost_ms)) result_.cost_ms = step.outcome.state->cost_ms(), best_ = index;
    next.push_back(index);
  }

  const SearchLimits& limits_;
  const std::size_t width_;
  const bool everywhere_;
  SearchResult result_;
  std::int32_t best_ = 0;
  std::shared_ptr<const State> root_;
  Explored explored_;
  WorkerPool pool_;    // last, because its threads use the members above
};

}  // namespace

SearchResult search_beam(const State& start, std::int64_t width, bool everywhere, const SearchLimits& limits, const SearchProgress& progress) {
  check_limits(limits);
  if (width < 1 || width > kMostWidth) {
    throw InvalidInput("a beam must be 1 to " + std::to_string(kMostWidth) + " graphs wide, got " + std::to_string(width));
  }
  return BeamSearch(start, width, everywhere, limits).run(progress);
}

}  // namespace rlflow
