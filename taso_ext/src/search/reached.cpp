#include "search/reached.hpp"

#include <algorithm>
#include <string>

namespace rlflow {
namespace {

constexpr std::size_t kBits = 64;
constexpr std::size_t kEntryBytes = 64;    // of a hash table, about

}  // namespace

ReachedGraphs::ReachedGraphs(std::shared_ptr<const State> start, std::vector<Action> actions, SignatureWeights weights, std::size_t memory_bytes)
    : tree_(start), actions_(std::move(actions)), places_(start->game().locations() + 1), weights_(std::move(weights)) {
  const std::size_t rules = start->game().rules().size();
  index_.assign(rules * static_cast<std::size_t>(places_), -1);
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const auto [rule, location] = actions_[i];
    if (rule < 0 || static_cast<std::size_t>(rule) >= rules || location < 0 || location >= places_) {
      throw InvalidInput("action " + std::to_string(i) + " is rule " + std::to_string(rule) + " at location " + std::to_string(location) + ", but there are " +
                         std::to_string(rules) + " rules and " + std::to_string(places_) + " locations, the last of which stands for all matches");
    }
    index_[static_cast<std::size_t>(rule) * static_cast<std::size_t>(places_) + static_cast<std::size_t>(location)] = static_cast<std::int32_t>(i);
  }
  tree_.limit(memory_bytes / 2);
  const std::size_t graph_bytes = 2 * kEntryBytes + sizeof(std::uint64_t) * (actions_.size() / kBits + 1);
  most_known_ = std::max<std::size_t>(1, memory_bytes / 2 / graph_bytes);
}

std::int32_t ReachedGraphs::after(std::int64_t graph, std::int64_t action) {
  require(graph);
  if (action == static_cast<std::int64_t>(actions_.size())) return static_cast<std::int32_t>(graph);
  if (action < 0 || action > static_cast<std::int64_t>(actions_.size())) {
    throw InvalidInput("action " + std::to_string(action) + " is out of range: there are " + std::to_string(actions_.size()) + ", and one that changes nothing");
  }
  const std::uint64_t key = static_cast<std::uint64_t>(graph) << 32 | static_cast<std::uint64_t>(action);
  if (const auto known = after_.find(key); known != after_.end()) return known->second;
  const auto [rule, location] = actions_[static_cast<std::size_t>(action)];
  std::shared_ptr<const State> state = after_action(*tree_.state(static_cast<std::int32_t>(graph)), rule, location);
  Known facts = facts_of(*state);
  const std::int32_t reached = tree_.add(static_cast<std::int32_t>(graph), rule, location, std::move(state));
  ++made_;
  forget_if_full();
  after_.emplace(key, reached);
  known_.emplace(reached, std::move(facts));
  return reached;
}

void ReachedGraphs::legal_in(std::int64_t graph, std::span<bool> legal) {
  const std::vector<std::uint64_t>& bits = known(graph).legal;
  for (std::size_t i = 0; i < actions_.size(); ++i) legal[i] = (bits[i / kBits] >> (i % kBits)) & 1;
  legal[actions_.size()] = true;
}

double ReachedGraphs::weight_of(std::int64_t graph) { return known(graph).weight; }

std::shared_ptr<const State> ReachedGraphs::state(std::int64_t graph) {
  require(graph);
  return tree_.state(static_cast<std::int32_t>(graph));
}

const ReachedGraphs::Known& ReachedGraphs::known(std::int64_t graph) {
  require(graph);
  const auto number = static_cast<std::int32_t>(graph);
  if (const auto found = known_.find(number); found != known_.end()) return found->second;
  forget_if_full();
  return known_.emplace(number, facts_of(*tree_.state(number))).first->second;
}

ReachedGraphs::Known ReachedGraphs::facts_of(const State& state) const {
  std::vector<std::uint64_t> bits(actions_.size() / kBits + 1);
  const auto mark = [&](std::int32_t rule, std::int32_t location) {
    const std::int32_t index = index_[static_cast<std::size_t>(rule) * static_cast<std::size_t>(places_) + static_cast<std::size_t>(location)];
    if (index >= 0) bits[static_cast<std::size_t>(index) / kBits] |= std::uint64_t{1} << (static_cast<std::size_t>(index) % kBits);
  };
  for (const Match& match : state.matches()) mark(match.rule, match.location);
  for (const std::int32_t rule : rules_everywhere(state)) mark(rule, places_ - 1);
  return {std::move(bits), weights_.of.empty() ? 0.0 : weigh(state)};
}

double ReachedGraphs::weigh(const State& state) const {
  const Cost cost = state.cost();
  const auto& [per_flop, per_byte, per_launch] = weights_.per_total;
  return sum_of_weights(state.graph(), weights_) + per_flop * cost.flops + per_byte * cost.memory_bytes + per_launch * static_cast<double>(cost.kernel_launches);
}

void ReachedGraphs::require(std::int64_t graph) const {
  if (graph < 0 || graph > made_) throw InvalidInput("there is no graph " + std::to_string(graph) + ": " + std::to_string(made_ + 1) + " were reached");
}

// What is known is found again, and graphs that are met again have another number then.
void ReachedGraphs::forget_if_full() {
  if (std::max(after_.size(), known_.size()) < most_known_) return;
  after_.clear();
  known_.clear();
}

}  // namespace rlflow
