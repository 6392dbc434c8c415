#include <algorithm>
#include <random>

#include "search/search.hpp"
#include "search/watch.hpp"
#include "search/worker_pool.hpp"

namespace rlflow {
namespace {

constexpr std::int64_t kMostWalk = 1'000'000;

struct Descent {
  std::vector<std::pair<std::int32_t, std::int32_t>> actions;
  double cost_ms = 0;
  std::int64_t expanded = 0, generated = 0, unpriced = 0;
  std::size_t memory_bytes = 0;
  std::set<std::int32_t> rules{};
};

// Returns a random number below `count`; std::uniform_int_distribution differs between standard libraries.
std::size_t draw(std::mt19937_64& random, std::size_t count) {
  return static_cast<std::size_t>((static_cast<unsigned __int128>(random()) * count) >> 64);
}

// Draws a rule among those that apply, then one of its matches.
const Match& draw_match(const State& state, std::mt19937_64& random) {
  const std::vector<Match>& matches = state.matches();
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (i == 0 || matches[i].rule != matches[i - 1].rule) begins.push_back(i);
  }
  begins.push_back(matches.size());
  const std::size_t rule = draw(random, begins.size() - 1);
  return matches[begins[rule] + draw(random, begins[rule + 1] - begins[rule])];
}

// Returns the cheapest graph of a random walk and of the descent from its end. Expands at most `most` graphs.
Descent descend_from_walk(const std::shared_ptr<const State>& root, std::int64_t walk, std::uint64_t seed, std::int64_t most) {
  std::mt19937_64 random(seed);
  std::shared_ptr<const State> state = root;
  Descent descent{.actions = {}, .cost_ms = root->cost_ms()};
  std::vector<std::pair<std::int32_t, std::int32_t>> actions;
  std::int64_t drawn = 0;
  while (descent.expanded < most && !state->matches().empty()) {
    ++descent.expanded;
    descent.generated += static_cast<std::int64_t>(state->matches().size());
    descent.memory_bytes = std::max(descent.memory_bytes, 2 * state->memory_bytes());    // the state and its successor
    if (drawn < walk) {
      ++drawn;
      const Match& match = draw_match(*state, random);
      auto next = priced_after(*state, match, descent.unpriced);
      if (!next) continue;
      actions.emplace_back(match.rule, match.location);
      state = std::move(next);
    } else if (!descend(state, actions, descent.unpriced)) {
      break;
    }
    descent.rules.insert(actions.back().first);
    if (is_cheaper(state->cost_ms(), descent.cost_ms)) descent.cost_ms = state->cost_ms(), descent.actions = actions;
  }
  return descent;
}

}  // namespace

SearchResult search_restarts(const State& start, std::int64_t walk, std::uint64_t seed, const SearchLimits& limits, const SearchProgress& progress) {
  check_limits(limits);
  if (walk < 1 || walk > kMostWalk) throw InvalidInput("a random walk must have 1 to " + std::to_string(kMostWalk) + " steps, got " + std::to_string(walk));
  SearchResult result{.actions = {}, .cost_ms = start.cost_ms(), .stop_reason = {}};
  SearchWatch watch(limits, progress, result);
  const std::shared_ptr<const State> root = start.priced();
  if (root->matches().empty()) {
    result.expanded = 1;
    result.stop_reason = "exhausted";
    watch.finish();
    return result;
  }
  // Restart r does not depend on the thread that runs it. Restarts count in their order, each with the budget that the
  // earlier ones left.
  std::deque<std::shared_ptr<Job<Descent>>> jobs;
  std::uint64_t next = 0;
  WorkerPool pool(search_threads(start, limits));
  while (watch.go_on(result.memory_bytes)) {
    while (jobs.size() < pool.width()) {
      const std::uint64_t number = next++;
      jobs.push_back(std::make_shared<Job<Descent>>([&root, walk, seed, number, &limits] {
        return descend_from_walk(root, walk, mix(seed ^ mix(number)), limits.budget);
      }));
      pool.submit(jobs.back());
    }
    Descent descent = std::move(jobs.front()->get());
    jobs.pop_front();
    if (descent.expanded > limits.budget - result.expanded) {    // more than the budget leaves: repeat it with the rest
      descent = descend_from_walk(root, walk, mix(seed ^ mix(next - 1 - jobs.size())), limits.budget - result.expanded);
    }
    result.expanded += descent.expanded;
    result.generated += descent.generated;
    result.unpriced += descent.unpriced;
    result.rules.merge(descent.rules);
    result.memory_bytes = std::max(result.memory_bytes, descent.memory_bytes * pool.width());
    if (is_cheaper(descent.cost_ms, result.cost_ms)) result.cost_ms = descent.cost_ms, result.actions = std::move(descent.actions);
  }
  for (const auto& job : jobs) job->cancel();
  watch.finish();
  return result;
}

}  // namespace rlflow
