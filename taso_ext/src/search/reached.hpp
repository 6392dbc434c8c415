// The graphs that rewrites lead to from a start graph, each with a number, and which of some actions are legal in them.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "ir/neighbourhoods.hpp"
#include "search/tree.hpp"

namespace rlflow {

// An action: a rule at a location, which may be that of all matches.
struct Action {
  std::int32_t rule = 0, location = 0;
};

// The start graph has number 0. Whatever is asked for is found whether it is held or not: a state that is not held is
// made again from its nearest ancestor that is. A rewrite of a graph mostly leads to the same number again.
class ReachedGraphs {
 public:
  // Lets states take about half of `memory_bytes`, and what is known of graphs the other half.
  ReachedGraphs(std::shared_ptr<const State> start, std::vector<Action> actions, SignatureWeights weights, std::size_t memory_bytes);

  // Returns the number of the graph after the action of an index. The index behind the last one changes nothing. Throws
  // InvalidInput if there is no such graph or action, or if the action is not legal.
  [[nodiscard]] std::int32_t after(std::int64_t graph, std::int64_t action);
  // Sets `legal`, one entry for each action and one, which is true, behind them. Throws InvalidInput if there is no such
  // graph.
  void legal_in(std::int64_t graph, std::span<bool> legal);
  // Returns the sum of the weights of a graph's operators and of what they are in all. Throws InvalidInput if there is no such graph.
  [[nodiscard]] double weight_of(std::int64_t graph);
  // Returns the state of a graph. Throws InvalidInput if there is no such graph.
  [[nodiscard]] std::shared_ptr<const State> state(std::int64_t graph);
  [[nodiscard]] std::size_t action_count() const { return actions_.size(); }

 private:
  struct Known {
    std::vector<std::uint64_t> legal;    // a bit for each action
    double weight = 0;
  };
  [[nodiscard]] Known facts_of(const State& state) const;
  [[nodiscard]] double weigh(const State& state) const;
  [[nodiscard]] const Known& known(std::int64_t graph);
  void require(std::int64_t graph) const;
  void forget_if_full();

  SearchTree tree_;
  std::vector<Action> actions_;
  std::int32_t places_;
  std::vector<std::int32_t> index_;    // by rule and location, of an action; -1: there is none
  std::unordered_map<std::uint64_t, std::int32_t> after_;    // by graph and action
  std::unordered_map<std::int32_t, Known> known_;
  SignatureWeights weights_;
  std::size_t most_known_;
  std::int64_t made_ = 0;    // graphs that were given a number, beside the start graph
};

}  // namespace rlflow
