#include "rewriting/everywhere.hpp"

#include <algorithm>

namespace rlflow {
namespace {

// A match of the start, named so that it can be found again in later states.
struct Standing {
  Hash128 key;
  std::int32_t location = 0;
  std::vector<Hash128> origins;    // of its operators
};

[[nodiscard]] std::span<const Match> matches_of(const State& state, std::int32_t rule) {
  const auto by_rule = [](const Match& match, std::int32_t number) { return match.rule < number; };
  const auto begin = std::lower_bound(state.matches().begin(), state.matches().end(), rule, by_rule);
  const auto end = std::lower_bound(begin, state.matches().end(), rule + 1, by_rule);
  return {begin, end};
}

[[nodiscard]] std::vector<Standing> standing(const State& state, std::int32_t rule) {
  std::vector<Standing> found;
  for (const Match& match : matches_of(state, rule)) {
    Standing& each = found.emplace_back(Standing{match.key, match.location, {}});
    for (const NodeId id : state.nodes(match)) each.origins.push_back(state.graph().origin(id));
  }
  return found;
}

[[nodiscard]] bool has_operators(const State& state, const Match& match, const std::vector<Hash128>& origins) {
  return std::ranges::equal(state.nodes(match), origins, {}, [&](NodeId id) { return state.graph().origin(id); });
}

// Returns the match of the same operators, nullptr if it does not stand. One that also reads the same tensors is
// preferred, and then the first by location.
[[nodiscard]] const Match* find_again(const State& state, std::int32_t rule, const Standing& wanted) {
  const std::span<const Match> matches = matches_of(state, rule);
  const auto at = std::ranges::lower_bound(matches, wanted.location, {}, &Match::location);
  if (at != matches.end() && at->key == wanted.key) return &*at;    // nothing near it has changed
  const Match* alike = nullptr;
  for (const Match& match : matches) {
    if (match.key == wanted.key) return &match;
    if (!alike && has_operators(state, match, wanted.origins)) alike = &match;
  }
  return alike;
}

// Carries out a rule everywhere. Nobody asks what the graphs in between cost.
[[nodiscard]] EverywhereStep carry_out(const State& start, std::int32_t rule) {
  EverywhereStep step;
  for (const Standing& wanted : standing(start, rule)) {
    const State& state = step.state ? *step.state : start;
    const Match* match = find_again(state, rule, wanted);
    if (!match) continue;
    step.locations.push_back(match->location);
    step.state = std::make_shared<const State>(state.after(*match, Pricing::kPredicted));
  }
  return step;
}

}  // namespace

std::vector<std::int32_t> rules_everywhere(const State& state) {
  std::vector<std::int32_t> rules;
  const std::vector<Match>& matches = state.matches();
  for (auto begin = matches.begin(); begin != matches.end();) {
    const auto end = std::find_if(begin, matches.end(), [&](const Match& match) { return match.rule != begin->rule; });
    if (end - begin >= kLeastEverywhere) rules.push_back(begin->rule);
    begin = end;
  }
  return rules;
}

EverywhereStep step_everywhere(const State& start, std::int32_t rule) {
  const std::vector<Rule>& rules = start.game().rules();
  if (rule < 0 || rule >= static_cast<std::int32_t>(rules.size())) {
    throw InvalidInput("rule " + std::to_string(rule) + " is out of range: there are " + std::to_string(rules.size()) + " rules");
  }
  const std::size_t count = matches_of(start, rule).size();
  if (count < static_cast<std::size_t>(kLeastEverywhere)) {
    throw InvalidInput("rule '" + rules[rule].name + "' cannot be carried out everywhere: that needs at least " + std::to_string(kLeastEverywhere) +
                       " matches, and it has " + std::to_string(count) + " in this state (see everywhere_mask)");
  }
  EverywhereStep step = carry_out(start, rule);
  if (start.game().costs().looks_around()) step.state = std::make_shared<const State>(step.state->exactly_priced());
  return step;
}

std::shared_ptr<const State> after_action(const State& state, std::int32_t rule, std::int32_t location) {
  if (is_everywhere(state, location)) return step_everywhere(state, rule).state;
  return std::make_shared<const State>(state.after(state.match(rule, location)));
}

std::vector<Candidate> everywhere_candidates(const State& start) {
  std::vector<Candidate> candidates;
  for (const std::int32_t rule : rules_everywhere(start)) {
    candidates.push_back({rule, start.game().locations(), carry_out(start, rule).state->cost_ms()});
  }
  return candidates;
}

}  // namespace rlflow
