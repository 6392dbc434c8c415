// Random concrete source graphs of a rule, for verification.
#pragma once

#include <map>
#include <string>

#include "ir/graph.hpp"
#include "rules/rule.hpp"

namespace rlflow {

// TensorProto.DataType by the name of a variable.
using Dtypes = std::map<std::string, int, std::less<>>;

// Returns a graph made of the rule's source alone, with random small shapes and attributes, in which the rule applies;
// the handles of weights are named after their variables. Returns nothing if no try succeeded; a rule for which that
// happens has a fault. `stretch` is added to extents other than 1, which gives shapes that the verifier never tests.
// `dtypes` gives variables by name other element types than the one that a condition `dtype(x) == "..."` demands, or
// float.
[[nodiscard]] std::optional<Graph> random_instance(const Rule& rule, std::uint64_t seed, std::int64_t stretch = 0, const Dtypes& dtypes = {},
                                                   int tries = 50'000);

// Returns the place of the first statement of the source that fitted none of the shapes and attributes drawn for the
// statements before it; nothing if all statements fitted, so that a condition or the target's types are in the way.
[[nodiscard]] std::optional<Place> misfit(const Rule& rule, int tries = 5'000);

}  // namespace rlflow
