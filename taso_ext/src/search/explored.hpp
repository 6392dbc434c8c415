// What all searches that remember graphs share: carrying out a queued rewrite unless it leads to a graph seen before.
#pragma once

#include <algorithm>

#include "search/frontier.hpp"
#include "search/tree.hpp"
#include "search/watch.hpp"

namespace rlflow {

// What a queued rewrite leads to; no state when the graph was seen before, or has no price.
struct Outcome {
  std::int32_t rule = 0, location = 0;
  std::shared_ptr<const State> state;
  bool unpriced = false;
};

// The visited graphs and the hashes of all that were reached. Thread-safe but for `tree().add`.
class Explored {
 public:
  Explored(std::shared_ptr<const State> root, std::size_t memory_bytes) : memory_bytes_(memory_bytes), least_state_bytes_(std::max(memory_bytes / 4, 2 * root->memory_bytes())), tree_(root) {
    (void)insert(root->graph());
  }

  [[nodiscard]] SearchTree& tree() { return tree_; }
  // Whether an outcome is a new graph; from now on it is not.
  [[nodiscard]] bool insert(const Outcome& outcome) { return outcome.state && insert(outcome.state->graph()); }
  // Leaves a graph that is known already unmade, so it may be called before its turn: if not known now, it may be then.
  [[nodiscard]] Outcome carry_out(const QueuedRewrite& rewrite) {
    const std::shared_ptr<const State> parent = tree_.state(rewrite.parent);
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

  // Lets the states have what the rest leaves, between a quarter and half of the memory: making a few again costs less
  // than fresh memory from the system for all. `others` is held by the queue. Which states are held depends on threads and
  // their timing, so whether a search needs too much is said without looking at them.
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
  bool insert(const Graph& graph) {
    const std::lock_guard guard(mutex_);
    return seen_.insert(graph.hash());
  }
  // Finds graphs without twins only: the hash of one with twins is not its plain hash.
  [[nodiscard]] bool is_known(Hash128 plain_hash) const {
    const std::lock_guard guard(mutex_);
    return seen_.contains(plain_hash);
  }
  const std::size_t memory_bytes_, least_state_bytes_;
  SearchTree tree_;
  HashSet seen_;
  mutable std::mutex mutex_;    // of `seen_`
};

}  // namespace rlflow
