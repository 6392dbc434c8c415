// A state of the substitution game: a graph, every rewrite that is legal in it, and a stable location for each.
#pragma once

#include <memory>

#include "cost.hpp"
#include "graph.hpp"
#include "rewrite.hpp"
#include "rule.hpp"

namespace rlflow {

// A match is found again by visiting its anchor and counting, which is cheaper to keep than what it binds.
struct Match {
  std::uint64_t key = 0;    // of everything it binds; equal keys are equal rewrites
  NodeId anchor = kNoNode;
  std::int32_t rule = 0;
  std::int32_t ordinal = 0;
  std::int32_t location = -1;
};

struct Candidate {
  std::int32_t rule = 0, location = 0;
  double cost_ms = 0;    // of the graph after the rewrite
};

// Invariant: `matches` are the legal rewrites of `graph`, ordered by rule and location; a match that a step did not
// touch keeps its location; a new one takes the site of its anchor, or the next free number.
class State {
 public:
  State(Graph graph, std::shared_ptr<const RuleBook> rules, std::shared_ptr<CostTable> costs, std::int32_t max_locations);

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const std::vector<Rule>& rules() const { return rules_->rules; }
  [[nodiscard]] const std::vector<Match>& matches() const { return matches_; }
  [[nodiscard]] std::int32_t location_count() const { return locations_; }
  [[nodiscard]] std::int64_t truncated_matches() const { return truncated_; }
  [[nodiscard]] const Cost& cost() const { return cost_; }
  [[nodiscard]] CostTable& costs() const { return *costs_; }
  [[nodiscard]] std::vector<Candidate> candidates() const;
  // Throws InvalidInput when there is no such rewrite.
  void step(std::int32_t rule, std::int32_t location);

 private:
  // Matches again what a change of the reads of `changed` values can have touched; everything when it is empty.
  void find_matches(const std::vector<ValueId>& changed);
  void assign_locations(std::vector<Match>& fresh, std::span<const Match> previous);

  Graph graph_;
  std::shared_ptr<const RuleBook> rules_;
  std::shared_ptr<CostTable> costs_;
  std::int32_t locations_ = 0;
  std::vector<Match> matches_;
  std::int64_t truncated_ = 0;
  Cost cost_;
};

}  // namespace rlflow
