// A queue of rewrites that are still to be tried, cheapest first, with a limit on its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace rlflow {

// The index-th match of a visited graph; indices behind the matches stand for its `rules_everywhere`. The graph that it
// leads to is made when its turn comes.
struct QueuedRewrite {
  double cost_ms = 0;
  std::int32_t parent = 0;
  std::uint32_t index = 0;

  // The cheapest comes first; among equals, the one that was found first.
  [[nodiscard]] bool operator<(const QueuedRewrite& other) const {
    if (cost_ms != other.cost_ms) return cost_ms < other.cost_ms;
    return parent != other.parent ? parent < other.parent : index < other.index;
  }
};
static_assert(sizeof(QueuedRewrite) == 16);

class Frontier {
 public:
  using Dropped = std::function<void(const QueuedRewrite&)>;

  // `dropped` is called with every rewrite that is given up because memory is short.
  Frontier(std::size_t memory_bytes, Dropped dropped);

  void push(const QueuedRewrite& rewrite);
  [[nodiscard]] QueuedRewrite pop();
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  void clear() { heap_.clear(), lent_ = 0; }
  // Like pop(), but the rewrite counts as queued until it is forgotten or given back. What is given up because memory
  // is short therefore does not depend on how many are lent. No rewrite that is pushed meanwhile may come before one
  // that stays lent.
  [[nodiscard]] QueuedRewrite lend() { return ++lent_, pop(); }
  void give_back(const QueuedRewrite& rewrite) { --lent_, insert(rewrite); }
  void forget_one() { --lent_; }
  [[nodiscard]] std::int64_t evicted() const { return evicted_; }
  [[nodiscard]] std::size_t memory_bytes() const { return most_ * sizeof(QueuedRewrite); }

 private:
  void insert(const QueuedRewrite& rewrite);
  void evict();
  std::size_t capacity_, lent_ = 0, most_ = 0;    // entries: allowed, lent, and the most queued so far
  std::vector<QueuedRewrite> heap_;
  Dropped dropped_;
  std::int64_t evicted_ = 0;
};

}  // namespace rlflow
