// What all searches that remember graphs share: carrying out a queued rewrite unless it leads to a graph seen before.
#pragma once

#include "frontier.hpp"
#include "search_tree.hpp"

namespace rlflow {

// What a queued rewrite leads to; no state when the graph was seen before.
struct Outcome {
  Hash128 hash;
  std::int32_t rule = 0, location = 0;
  std::shared_ptr<const State> state;
};

// The visited graphs and the hashes of all that were reached. Thread-safe but for `tree().add`.
class Explored {
 public:
  Explored(std::shared_ptr<const State> root, std::size_t state_bytes) : tree_(root, state_bytes) { (void)insert(root->graph().hash()); }

  [[nodiscard]] SearchTree& tree() { return tree_; }
  // Whether the graph is new; from now on it is not.
  bool insert(Hash128 hash) {
    const std::lock_guard guard(mutex_);
    return seen_.insert(hash);
  }
  // Leaves a graph that is known already unmade, so it may be called before its turn: if not known now, it may be then.
  [[nodiscard]] Outcome carry_out(const QueuedRewrite& rewrite) {
    const std::shared_ptr<const State> parent = tree_.state(rewrite.parent);
    const Match& match = parent->matches()[rewrite.index];
    Outcome outcome{parent->hash_after(match), match.rule, match.location, nullptr};
    if (contains(outcome.hash)) return outcome;
    outcome.state = parent->priced_after(match);
    if (outcome.state->graph().hash() != outcome.hash) throw std::logic_error("a graph does not have the hash that was foretold: please report this");
    return outcome;
  }
  [[nodiscard]] std::size_t memory_bytes() const {
    const std::lock_guard guard(mutex_);
    return tree_.memory_bytes() + seen_.memory_bytes();
  }

 private:
  [[nodiscard]] bool contains(Hash128 hash) const {
    const std::lock_guard guard(mutex_);
    return seen_.contains(hash);
  }
  SearchTree tree_;
  HashSet seen_;
  mutable std::mutex mutex_;    // of `seen_`
};

}  // namespace rlflow
