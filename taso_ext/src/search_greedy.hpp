// One step of steepest descent, shared by the searches that descend.
#pragma once

#include "search.hpp"

namespace rlflow {

// Takes the cheapest rewrite of a priced state if it lowers the cost, and adds it to the actions; among equals the first
// by rule and location. Whether there was one.
[[nodiscard]] bool descend(std::shared_ptr<const State>& state, std::vector<std::pair<std::int32_t, std::int32_t>>& actions);

}  // namespace rlflow
