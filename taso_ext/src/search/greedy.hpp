// One step of steepest descent, shared by the searches that descend.
#pragma once

#include "search/search.hpp"

namespace rlflow {

// The priced state after a match; none if its graph has no price, which `unpriced` counts.
[[nodiscard]] std::shared_ptr<const State> priced_after(const State& state, const Match& match, std::int64_t& unpriced);

// Takes the cheapest rewrite of a priced state if it lowers the cost, and adds it to the actions; among equals the first
// by rule and location. Whether there was one.
[[nodiscard]] bool descend(std::shared_ptr<const State>& state, std::vector<std::pair<std::int32_t, std::int32_t>>& actions, std::int64_t& unpriced);

}  // namespace rlflow
