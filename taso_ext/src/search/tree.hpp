// The graphs that a search has visited: how each was reached, and as many of the states themselves as memory allows.
#pragma once

#include <limits>
#include <list>
#include <mutex>
#include <unordered_map>

#include "rewriting/everywhere.hpp"

namespace rlflow {

// A set of 128-bit hashes, with 16 bytes per entry in a table that is at most three quarters full.
class HashSet {
 public:
  HashSet() = default;
  // Makes a set that forgets all its hashes instead of growing beyond `most_bytes`. It suits hashes that only save work
  // if they are known.
  explicit HashSet(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  [[nodiscard]] bool insert(Hash128 hash);    // returns whether the hash is new
  [[nodiscard]] bool contains(Hash128 hash) const;
  // Loads the entry of a hash that will be asked for soon into the cache.
  void prefetch(Hash128 hash) const { __builtin_prefetch(&table_[hash.low & (table_.size() - 1)]); }
  [[nodiscard]] std::size_t memory_bytes() const { return table_.capacity() * sizeof(Hash128); }

 private:
  [[nodiscard]] std::size_t find(Hash128 hash) const;
  void grow();
  std::size_t most_bytes_ = std::numeric_limits<std::size_t>::max();
  std::vector<Hash128> table_ = std::vector<Hash128>(1024);    // its size is a power of two; zeros are empty
  std::size_t size_ = 0;
  bool has_zero_ = false;
};

// The visited graphs. Invariant: a state that is not held can be made again from the nearest ancestor that is held. The
// root is always held. States at a depth that is a multiple of kCheckpoint are given up last, so that few steps have to
// be repeated. Thread-safe.
class SearchTree {
 public:
  explicit SearchTree(std::shared_ptr<const State> root);

  // Limits the states held from now on, besides the root and one other, to `state_bytes`.
  void limit(std::size_t state_bytes);

  // Adds the state reached from `parent` by (rule, location) and returns its index; the root has index 0. The location
  // may be that of all matches of the rule.
  std::int32_t add(std::int32_t parent, std::int32_t rule, std::int32_t location, std::shared_ptr<const State> state);
  [[nodiscard]] std::shared_ptr<const State> state(std::int32_t index);
  // Says that the state will not be asked for again. A descendant may still be made from it while it is held.
  void release(std::int32_t index);
  // Returns the single rewrites (rule, location) that lead to a state.
  [[nodiscard]] std::vector<std::pair<std::int32_t, std::int32_t>> path(std::int32_t index) const;
  [[nodiscard]] std::int64_t rebuilt() const;    // states that were made a second time
  [[nodiscard]] std::size_t state_bytes() const;
  [[nodiscard]] std::size_t path_bytes() const;    // bytes of the steps by which states were reached

 private:
  static constexpr std::int32_t kCheckpoint = 8;
  struct Visited {
    std::int32_t parent, rule, location, depth;
  };
  struct Held {
    std::shared_ptr<const State> state;
    std::list<std::int32_t>::iterator place;
    std::size_t bytes;
  };
  void hold(std::int32_t index, std::shared_ptr<const State> state);
  void drop(std::int32_t index);
  void shrink();
  [[nodiscard]] std::list<std::int32_t>& line(std::int32_t index) { return visited_[index].depth % kCheckpoint ? recent_ : checkpoints_; }

  mutable std::mutex mutex_;
  std::shared_ptr<const State> root_;
  std::vector<Visited> visited_;
  std::unordered_map<std::int32_t, Held> held_;
  std::list<std::int32_t> recent_, checkpoints_;    // least recently used first
  std::size_t most_state_bytes_ = 0, state_bytes_ = 0;
  std::int64_t rebuilt_ = 0;
};

}  // namespace rlflow
