#include "search/frontier.hpp"

#include <algorithm>

namespace rlflow {
namespace {

constexpr std::size_t kChildren = 4;    // of a heap entry: half the cache misses of a binary heap

constexpr std::size_t kMostReserved = std::size_t{1} << 26;    // entries, 1 GiB

}  // namespace

Frontier::Frontier(std::size_t memory_bytes, Dropped dropped)
    : capacity_(std::max<std::size_t>(memory_bytes / sizeof(QueuedRewrite), 1024)), dropped_(std::move(dropped)) {
  // Reserves address space alone, until it is used; growing would copy the entries and hold both copies. Any system
  // grants kMostReserved.
  heap_.reserve(std::min(capacity_, kMostReserved));
}

void Frontier::push(const QueuedRewrite& rewrite) {
  if (heap_.size() + lent_ == capacity_) evict();
  insert(rewrite);
}

void Frontier::insert(const QueuedRewrite& rewrite) {
  std::size_t at = heap_.size();
  heap_.push_back(rewrite);
  for (; at > 0 && rewrite < heap_[(at - 1) / kChildren]; at = (at - 1) / kChildren) heap_[at] = heap_[(at - 1) / kChildren];
  heap_[at] = rewrite;
  most_ = std::max(most_, heap_.size() + lent_);
}

QueuedRewrite Frontier::pop() {
  const QueuedRewrite first = heap_.front(), last = heap_.back();
  heap_.pop_back();
  if (heap_.empty()) return first;
  std::size_t at = 0;
  for (std::size_t child = 1; child < heap_.size(); child = at * kChildren + 1) {
    const auto begin = heap_.begin() + static_cast<std::ptrdiff_t>(child);
    const auto end = heap_.begin() + static_cast<std::ptrdiff_t>(std::min(child + kChildren, heap_.size()));
    const auto least = std::min_element(begin, end);
    if (!(*least < last)) break;
    heap_[at] = *least;
    at = static_cast<std::size_t>(least - heap_.begin());
  }
  heap_[at] = last;
  return first;
}

// Gives up the most expensive quarter at once, so that the next pushes are cheap again.
void Frontier::evict() {
  const auto middle = heap_.begin() + static_cast<std::ptrdiff_t>(capacity_ - capacity_ / 4 - lent_);
  std::nth_element(heap_.begin(), middle, heap_.end());
  std::for_each(middle, heap_.end(), dropped_);
  evicted_ += heap_.end() - middle;
  heap_.erase(middle, heap_.end());
  std::sort(heap_.begin(), heap_.end());    // a sorted array is a heap
}

}  // namespace rlflow
