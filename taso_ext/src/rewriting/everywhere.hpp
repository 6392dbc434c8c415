// A rule carried out everywhere it applies: one action that stands for many rewrites of one rule.
#pragma once

#include "rewriting/state.hpp"

namespace rlflow {

// The least number of matches for which "everywhere" is more than a rewrite at one site.
inline constexpr std::ptrdiff_t kLeastEverywhere = 2;

struct EverywhereStep {
  std::shared_ptr<const State> state;
  std::vector<std::int32_t> locations;    // of the rewrites that were carried out, in order
};

// Returns the rules that have at least two matches, in ascending order.
[[nodiscard]] std::vector<std::int32_t> rules_everywhere(const State& state);

// Carries out the matches of a rule that `start` has, in the order of their locations. A match stands as long as all
// its operators do, whatever else has changed; those that do not stand any more when their turn comes are left out, and
// new ones are not followed. The result is the state that the same single rewrites lead to. Throws InvalidInput if the
// rule has fewer than two matches.
[[nodiscard]] EverywhereStep step_everywhere(const State& start, std::int32_t rule);

// Returns a candidate for each of `rules_everywhere`, at the location that follows the last one, with the cost of the
// graph that it leads to. If costs look around, this cost is predicted as those of single rewrites are.
[[nodiscard]] std::vector<Candidate> everywhere_candidates(const State& start);

// Returns whether a location stands for all matches of a rule.
[[nodiscard]] inline bool is_everywhere(const State& state, std::int32_t location) { return location == state.game().locations(); }
// Returns the state after a rewrite at one location or everywhere. Throws InvalidInput if it is not legal.
[[nodiscard]] std::shared_ptr<const State> after_action(const State& state, std::int32_t rule, std::int32_t location);

}  // namespace rlflow
