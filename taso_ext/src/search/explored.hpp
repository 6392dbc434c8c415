// The part that searches which remember graphs share: carrying out a queued rewrite unless its graph was seen before.
#pragma once

#include <algorithm>

#include "search/frontier.hpp"
#include "search/tree.hpp"
#include "search/watch.hpp"

namespace rlflow {

// The result of a queued rewrite; there is no state if the graph was seen before or has no price.
struct Outcome {
  std::int32_t rule = 0, location = 0;
  std::shared_ptr<const State> state;
  bool unpriced = false;
};

// The visited graphs, and the hashes of all graphs that were reached. Thread-safe.
class Explored {
 public:
  Explored(std::shared_ptr<const State> root, std::size_t memory_bytes) : memory_bytes_(memory_bytes), least_state_bytes_(std::max(memory_bytes / 4, 2 * root->memory_bytes())), tree_(root) {
    (void)insert(root->graph());
  }

  [[nodiscard]] SearchTree& tree() { return tree_; }
  // Returns whether the graph of an outcome is new. From now on it is not.
  [[nodiscard]] bool insert(const Outcome& outcome) { return outcome.state && insert(outcome.state->graph()); }
  // Carries out a queued rewrite, but does not make a graph that is known already. May be called before the rewrite's
  // turn: a graph that is new now may be known at that turn, which insert() tells.
  [[nodiscard]] Outcome carry_out(const QueuedRewrite& rewrite) {
    const std::shared_ptr<const State> parent = tree_.state(rewrite.parent);
    if (rewrite.index >= parent->matches().size()) return carry_out_everywhere(*parent, rewrite.index - parent->matches().size());
    const Match& match = parent->matches()[rewrite.index];
    Outcome outcome{match.rule, match.location, nullptr};
    try {
      const Hash128 predicted = parent->plain_hash_after(match);
      if (is_known(predicted)) return outcome;
      outcome.state = parent->priced_after(match);
      if (outcome.state->graph().plain_hash() != predicted) throw std::logic_error("a graph does not have the hash that was predicted: please report this");
    } catch (const Unpriced&) {
      outcome.unpriced = true;
    }
    return outcome;
  }

  // Limits the states to the memory that the rest leaves, but to at least a quarter and at most half of all memory:
  // making a few states again costs less than fresh memory from the system for all. `others` are the bytes that the
  // queue holds. Which states are held depends on the timing of threads, so the result's `needed` does not depend on
  // them.
  [[nodiscard]] MemoryUse share_memory(std::size_t others) {
    std::size_t fixed = others + tree_.path_bytes();
    {
      const std::lock_guard guard(mutex_);
      fixed += seen_.memory_bytes();
    }
    const std::size_t left = memory_bytes_ - std::min(memory_bytes_, fixed);
    tree_.limit(std::clamp(left, memory_bytes_ / 4, memory_bytes_ / 2));
    return {fixed + tree_.state_bytes(), fixed + least_state_bytes_};
  }

 private:
  [[nodiscard]] static Outcome carry_out_everywhere(const State& parent, std::size_t number) {
    Outcome outcome{rules_everywhere(parent)[number], parent.game().locations(), nullptr};
    try {
      outcome.state = step_everywhere(parent, outcome.rule).state->priced();
    } catch (const Unpriced&) {
      outcome.unpriced = true;
    }
    return outcome;
  }
  bool insert(const Graph& graph) {
    const std::lock_guard guard(mutex_);
    return seen_.insert(graph.hash());
  }
  // Returns whether a graph of this plain hash was seen. Finds graphs without twins only, because the hash of a graph
  // with twins is not its plain hash.
  [[nodiscard]] bool is_known(Hash128 plain_hash) const {
    const std::lock_guard guard(mutex_);
    return seen_.contains(plain_hash);
  }
  const std::size_t memory_bytes_, least_state_bytes_;
  SearchTree tree_;
  HashSet seen_;
  mutable std::mutex mutex_;    // guards `seen_`
};

}  // namespace rlflow
