#include "search_greedy.hpp"

#include <algorithm>

#include "search_watch.hpp"

namespace rlflow {

static std::size_t cheapest_match(const State& state) {
  const std::vector<Match>& matches = state.matches();
  const auto at = std::min_element(matches.begin(), matches.end(), [](const Match& a, const Match& b) { return a.delta_ms < b.delta_ms; });
  return static_cast<std::size_t>(at - matches.begin());
}

SearchResult search_greedy(const State& start, const SearchLimits& limits, const SearchProgress& progress) {
  check_limits(limits);
  SearchResult result{.actions = {}, .cost_ms = start.cost_ms(), .stop_reason = {}};
  SearchWatch watch(limits, progress, result);
  std::shared_ptr<const State> state = start.priced();
  while (watch.go_on(state->memory_bytes())) {
    ++result.expanded;
    result.generated += static_cast<std::int64_t>(state->matches().size());
    if (!descend(state, result.actions)) {
      result.stop_reason = state->matches().empty() ? "exhausted" : "local optimum";
      break;
    }
    result.rules.insert(result.actions.back().first);
    result.cost_ms = state->cost_ms();
  }
  watch.finish();
  return result;
}

bool descend(std::shared_ptr<const State>& state, std::vector<std::pair<std::int32_t, std::int32_t>>& actions) {
  if (state->matches().empty()) return false;
  const Match& match = state->matches()[cheapest_match(*state)];
  if (!is_cheaper(state->cost_ms() + match.delta_ms, state->cost_ms())) return false;
  actions.emplace_back(match.rule, match.location);
  state = state->priced_after(match);
  return true;
}

}  // namespace rlflow
