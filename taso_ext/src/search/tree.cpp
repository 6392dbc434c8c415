#include "search/tree.hpp"

#include <algorithm>

namespace rlflow {

std::size_t HashSet::find(Hash128 hash) const {
  std::size_t at = hash.low & (table_.size() - 1);
  while (table_[at] != Hash128{} && table_[at] != hash) at = (at + 1) & (table_.size() - 1);
  return at;
}

bool HashSet::contains(Hash128 hash) const { return hash == Hash128{} ? has_zero_ : table_[find(hash)] == hash; }

bool HashSet::insert(Hash128 hash) {
  if (hash == Hash128{}) return !std::exchange(has_zero_, true);
  const std::size_t at = find(hash);
  if (table_[at] == hash) return false;
  table_[at] = hash;
  if (4 * ++size_ > 3 * table_.size()) grow();
  return true;
}

void HashSet::grow() {
  if (2 * memory_bytes() > most_bytes_) {
    std::fill(table_.begin(), table_.end(), Hash128{});
    size_ = 0;
    return;
  }
  std::vector<Hash128> old(2 * table_.size());
  old.swap(table_);
  for (const Hash128& known : old) {
    if (known != Hash128{}) table_[find(known)] = known;
  }
}

SearchTree::SearchTree(std::shared_ptr<const State> root) : root_(std::move(root)), visited_{{-1, -1, -1, 0}} {}

void SearchTree::limit(std::size_t state_bytes) {
  const std::lock_guard guard(mutex_);
  most_state_bytes_ = state_bytes;
  shrink();
}

void SearchTree::shrink() {
  while (state_bytes_ > most_state_bytes_ && held_.size() > 1) drop(recent_.empty() ? checkpoints_.front() : recent_.front());
}

std::int32_t SearchTree::add(std::int32_t parent, std::int32_t rule, std::int32_t location, std::shared_ptr<const State> state) {
  const std::lock_guard guard(mutex_);
  const auto index = static_cast<std::int32_t>(visited_.size());
  visited_.push_back({parent, rule, location, visited_[parent].depth + 1});
  hold(index, std::move(state));
  return index;
}

void SearchTree::hold(std::int32_t index, std::shared_ptr<const State> state) {
  auto& order = line(index);
  const std::size_t bytes = state->memory_bytes();
  const auto [at, fresh] = held_.try_emplace(index);
  if (!fresh) return;    // another thread was faster
  at->second = {std::move(state), order.insert(order.end(), index), bytes};
  state_bytes_ += bytes;
  shrink();
}

void SearchTree::drop(std::int32_t index) {
  const auto at = held_.find(index);
  if (at == held_.end()) return;
  state_bytes_ -= at->second.bytes;
  line(index).erase(at->second.place);
  held_.erase(at);
}

void SearchTree::release(std::int32_t index) {
  const std::lock_guard guard(mutex_);
  if (index > 0 && visited_[index].depth % kCheckpoint != 0) drop(index);
}

std::shared_ptr<const State> SearchTree::state(std::int32_t index) {
  std::vector<std::pair<std::int32_t, std::int32_t>> steps;    // from the nearest held ancestor, the last step first
  std::shared_ptr<const State> state;
  {
    const std::lock_guard guard(mutex_);
    for (std::int32_t at = index; !state; at = visited_[at].parent) {
      if (at == 0) state = root_;
      else if (const auto found = held_.find(at); found != held_.end()) {
        auto& order = line(at);
        order.splice(order.end(), order, found->second.place);
        state = found->second.state;
      } else {
        steps.emplace_back(visited_[at].rule, visited_[at].location);
      }
    }
    rebuilt_ += !steps.empty();
  }
  if (steps.empty()) return state;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    state = after_action(*state, step->first, step->second);
  }
  const std::lock_guard guard(mutex_);
  hold(index, state);
  return state;
}

std::vector<std::pair<std::int32_t, std::int32_t>> SearchTree::path(std::int32_t index) const {
  std::vector<std::pair<std::int32_t, std::int32_t>> steps;
  {
    const std::lock_guard guard(mutex_);
    for (; index > 0; index = visited_[index].parent) steps.emplace_back(visited_[index].rule, visited_[index].location);
  }
  std::reverse(steps.begin(), steps.end());
  if (std::ranges::none_of(steps, [&](const auto& step) { return is_everywhere(*root_, step.second); })) return steps;
  // Which single rewrites "everywhere" stands for shows when it is carried out again.
  std::vector<std::pair<std::int32_t, std::int32_t>> actions;
  std::shared_ptr<const State> state = root_;
  for (const auto& [rule, location] : steps) {
    if (!is_everywhere(*state, location)) {
      actions.emplace_back(rule, location);
      state = after_action(*state, rule, location);
      continue;
    }
    EverywhereStep step = step_everywhere(*state, rule);
    for (const std::int32_t single : step.locations) actions.emplace_back(rule, single);
    state = std::move(step.state);
  }
  return actions;
}

std::size_t SearchTree::state_bytes() const {
  const std::lock_guard guard(mutex_);
  return state_bytes_;
}

std::int64_t SearchTree::rebuilt() const {
  const std::lock_guard guard(mutex_);
  return rebuilt_;
}

std::size_t SearchTree::path_bytes() const {
  const std::lock_guard guard(mutex_);
  return visited_.capacity() * sizeof(Visited);
}

}  // namespace rlflow
