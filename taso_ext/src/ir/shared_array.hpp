// An array that shares its beginning with its copies.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace rlflow {

// An array whose copies share the items of the last freeze() and own those appended since. Shared items never change.
template <typename T>
class SharedArray {
 public:
  [[nodiscard]] const T& operator[](std::size_t index) const {
    return index < shared_count_ ? shared_items_[index] : own_[index - shared_count_];
  }
  [[nodiscard]] T& own(std::size_t index) { return own_[index - shared_count_]; }
  [[nodiscard]] std::size_t size() const { return shared_count_ + own_.size(); }
  [[nodiscard]] std::size_t own_bytes() const { return own_.capacity() * sizeof(T); }
  void push_back(const T& item) { own_.push_back(item); }

  // Becomes a copy of `other` and keeps the memory that it has allocated.
  void assign(const SharedArray& other) {
    shared_ = other.shared_, shared_items_ = other.shared_items_, shared_count_ = other.shared_count_;
    own_.assign(other.own_.begin(), other.own_.end());
  }
  // Returns a copy of all items, which the caller may change.
  [[nodiscard]] std::vector<T> take() {
    std::vector<T> all;
    all.reserve(size());
    all.insert(all.end(), shared_items_, shared_items_ + shared_count_);
    all.insert(all.end(), own_.begin(), own_.end());
    return all;
  }
  // Replaces all items; copies made from now on share them.
  void freeze(std::vector<T> items) {
    shared_ = std::make_shared<const std::vector<T>>(std::move(items));
    shared_items_ = shared_->data(), shared_count_ = shared_->size();
    own_.clear();
  }
  void freeze() { freeze(take()); }

 private:
  std::shared_ptr<const std::vector<T>> shared_;
  const T* shared_items_ = nullptr;
  std::size_t shared_count_ = 0;
  std::vector<T> own_;
};

}  // namespace rlflow
