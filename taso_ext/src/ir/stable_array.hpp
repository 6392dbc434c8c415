// An append-only array whose elements never move, so that readers need no lock while one writer appends.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

namespace rlflow {

// Chunks double in size, which bounds their number. A reader must have learned of an index after the element was
// appended (through a lock, or because the reader appended it); writers must exclude one another.
template <typename T>
class StableArray {
 public:
  StableArray() = default;
  StableArray(const StableArray&) = delete;
  StableArray& operator=(const StableArray&) = delete;
  ~StableArray() {
    for (std::size_t k = 0; k < kChunks; ++k) delete[] chunks_[k].load(std::memory_order_relaxed);
  }

  [[nodiscard]] const T& operator[](std::size_t index) const {
    const auto [chunk, offset] = place(index);
    return chunks_[chunk].load(std::memory_order_acquire)[offset];
  }
  [[nodiscard]] std::size_t size() const { return size_.load(std::memory_order_acquire); }

  void push_back(T item) {
    const std::size_t index = size_.load(std::memory_order_relaxed);
    const auto [chunk, offset] = place(index);
    if (chunk >= kChunks) throw std::length_error("more distinct types or signatures than the engine can number");
    T* items = chunks_[chunk].load(std::memory_order_relaxed);
    if (!items) {
      auto fresh = std::make_unique<T[]>(kFirst << chunk);
      items = fresh.get();
      chunks_[chunk].store(fresh.release(), std::memory_order_release);
    }
    items[offset] = std::move(item);
    size_.store(index + 1, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kFirst = 64, kChunks = 24;
  static std::pair<std::size_t, std::size_t> place(std::size_t index) {
    const std::size_t shifted = index + kFirst;
    const auto chunk = static_cast<std::size_t>(std::bit_width(shifted)) - static_cast<std::size_t>(std::bit_width(kFirst));
    return {chunk, shifted - (kFirst << chunk)};
  }
  std::array<std::atomic<T*>, kChunks> chunks_{};
  std::atomic<std::size_t> size_{0};
};

}  // namespace rlflow
