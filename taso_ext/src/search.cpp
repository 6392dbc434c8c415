#include "search.hpp"

#include <algorithm>
#include <queue>
#include <set>

namespace rlflow {
namespace {

struct Queued {
  double cost_ms;
  std::int64_t order;    // first found, first served among equals: keeps the search deterministic
  std::int32_t parent, rule, location;
  [[nodiscard]] bool operator<(const Queued& other) const {    // priority_queue serves the greatest
    return cost_ms != other.cost_ms ? cost_ms > other.cost_ms : order > other.order;
  }
};

struct Visited {
  std::unique_ptr<State> state;    // released once no candidate of it is queued
  std::int64_t queued = 0;
  std::int32_t parent = -1, rule = -1, location = -1;
};

}  // namespace

SearchResult search_taso(const State& start, double alpha, std::int64_t budget,
                         const std::function<bool(std::int64_t, double)>& progress) {
  if (!(alpha >= 1)) throw InvalidInput("alpha must be at least 1 (1 follows improvements only), got " + std::to_string(alpha));
  if (budget < 1) throw InvalidInput("the search budget must be at least 1 graph, got " + std::to_string(budget));
  SearchResult result{.actions = {}, .cost_ms = start.cost().ms, .stop_reason = "exhausted"};
  std::vector<Visited> visited;
  std::set<Hash128> seen;
  std::priority_queue<Queued> queue;
  std::int32_t best = 0;
  const auto expand = [&](std::unique_ptr<State> state, std::int32_t parent, std::int32_t rule, std::int32_t location) {
    const auto index = static_cast<std::int32_t>(visited.size());
    if (state->cost().ms < result.cost_ms * (1 - kEqualCost)) result.cost_ms = state->cost().ms, best = index;
    Visited entry{.state = nullptr, .parent = parent, .rule = rule, .location = location};
    for (const Candidate& candidate : state->candidates()) {
      if (candidate.cost_ms >= alpha * result.cost_ms) continue;
      queue.push({candidate.cost_ms, result.generated, index, candidate.rule, candidate.location});
      ++result.generated, ++entry.queued;
    }
    if (entry.queued > 0) entry.state = std::move(state);
    visited.push_back(std::move(entry));
    ++result.expanded;
    return !progress || progress(result.expanded, result.cost_ms);
  };
  seen.insert(start.graph().hash());
  bool go_on = expand(std::make_unique<State>(start), -1, -1, -1);
  while (go_on && !queue.empty() && result.expanded < budget) {
    const Queued next = queue.top();
    queue.pop();
    Visited& parent = visited[next.parent];
    std::unique_ptr<State> child;
    if (next.cost_ms < alpha * result.cost_ms) {
      child = std::make_unique<State>(*parent.state);
      child->step(next.rule, next.location);
    }
    if (--parent.queued == 0) parent.state.reset();
    if (child && seen.insert(child->graph().hash()).second) {
      go_on = expand(std::move(child), next.parent, next.rule, next.location);
    }
  }
  if (!go_on) result.stop_reason = "interrupted";
  else if (!queue.empty()) result.stop_reason = "budget";
  for (std::int32_t at = best; visited[at].parent >= 0; at = visited[at].parent) {
    result.actions.emplace_back(visited[at].rule, visited[at].location);
  }
  std::reverse(result.actions.begin(), result.actions.end());
  return result;
}

}  // namespace rlflow
