#include "frontier.hpp"

#include <algorithm>

namespace rlflow {
namespace {

// Heap operations keep the greatest on top; here that is the one to be served first.
bool served_later(const QueuedRewrite& a, const QueuedRewrite& b) { return b < a; }

}  // namespace

Frontier::Frontier(std::size_t memory_bytes, Dropped dropped)
    : capacity_(std::max<std::size_t>(memory_bytes / sizeof(QueuedRewrite), 1024)), dropped_(std::move(dropped)) {
  heap_.reserve(capacity_);    // address space only, until it is used: growing would copy, and hold both copies
}

void Frontier::push(const QueuedRewrite& rewrite) {
  if (heap_.size() == capacity_) evict();
  heap_.push_back(rewrite);
  std::push_heap(heap_.begin(), heap_.end(), served_later);
  most_ = std::max(most_, heap_.size());
}

QueuedRewrite Frontier::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), served_later);
  const QueuedRewrite first = heap_.back();
  heap_.pop_back();
  return first;
}

// Gives up the dearest quarter at once, so that the next pushes are cheap again.
void Frontier::evict() {
  const auto middle = heap_.begin() + static_cast<std::ptrdiff_t>(capacity_ - capacity_ / 4);
  std::nth_element(heap_.begin(), middle, heap_.end());
  std::for_each(middle, heap_.end(), dropped_);
  evicted_ += heap_.end() - middle;
  heap_.erase(middle, heap_.end());
  std::make_heap(heap_.begin(), heap_.end(), served_later);
}

}  // namespace rlflow
