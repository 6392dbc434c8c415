// Random concrete source graphs of a rule, for verification.
#pragma once

#include "ir/graph.hpp"
#include "rules/rule.hpp"

namespace rlflow {

// A graph made of the rule's source alone, with random small shapes and attributes, in which the rule applies; weights
// have handles named after their variables. Nothing when no try succeeded, which for a useful rule is a fault of the rule.
// `stretch` makes extents other than 1 larger, for shapes that the verifier never tests.
[[nodiscard]] std::optional<Graph> random_instance(const Rule& rule, std::uint64_t seed, std::int64_t stretch = 0, int tries = 50'000);

// The first statement of the source that fitted no shapes and attributes that were drawn for those before it; nothing when
// all of them fitted, so that a condition or the target's types are in the way.
[[nodiscard]] std::optional<Place> misfit(const Rule& rule, int tries = 5'000);

}  // namespace rlflow
