#include "search/search.hpp"

#include <algorithm>

#include "search/watch.hpp"

namespace rlflow {

SearchResult search_greedy(const State& start, const SearchLimits& limits, const SearchProgress& progress) {
  check_limits(limits);
  SearchResult result{.actions = {}, .cost_ms = start.cost_ms(), .stop_reason = {}};
  SearchWatch watch(limits, progress, result);
  std::shared_ptr<const State> state = start.priced();
  while (watch.go_on(state->memory_bytes())) {
    ++result.expanded;
    result.generated += static_cast<std::int64_t>(state->matches().size());
    if (!descend(state, result.actions, result.unpriced)) {
      result.stop_reason = state->matches().empty() ? "exhausted" : "local optimum";
      break;
    }
    result.rules.insert(result.actions.back().first);
    result.cost_ms = state->cost_ms();
  }
  watch.finish();
  return result;
}

std::shared_ptr<const State> priced_after(const State& state, const Match& match, std::int64_t& unpriced) {
  try {
    return state.priced_after(match);
  } catch (const Unpriced&) {
    ++unpriced;
    return nullptr;
  }
}

// If costs look around, a rewrite may cost more than predicted or have no price; then the next one is tried.
bool descend(std::shared_ptr<const State>& state, std::vector<std::pair<std::int32_t, std::int32_t>>& actions, std::int64_t& unpriced) {
  std::vector<const Match*> cheaper;
  for (const Match& match : state->matches()) {
    if (is_cheaper(state->cost_ms() + match.delta_ms, state->cost_ms())) cheaper.push_back(&match);
  }
  const auto dearer = [](const Match* a, const Match* b) { return b->delta_ms < a->delta_ms || (b->delta_ms == a->delta_ms && b < a); };
  std::ranges::make_heap(cheaper, dearer);
  while (!cheaper.empty()) {
    std::ranges::pop_heap(cheaper, dearer);
    const Match& match = *cheaper.back();
    cheaper.pop_back();
    auto next = priced_after(*state, match, unpriced);
    if (!next) continue;
    if (state->game().costs().looks_around() && !is_cheaper(next->cost_ms(), state->cost_ms())) continue;
    actions.emplace_back(match.rule, match.location);
    state = std::move(next);
    return true;
  }
  return false;
}

}  // namespace rlflow
