// Turns the bytes of a fuzzer into choices. Once they are used up every choice is 0.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace rlflow::fuzz {

class ByteSource {
 public:
  explicit ByteSource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  // Below `count`, which must not be 0.
  std::size_t below(std::size_t count) { return (count <= 256 ? byte() : number<std::uint16_t>()) % count; }
  bool one_in(int n) { return byte() % n == n - 1; }
  template <typename T>
  T number() {
    T out{};
    const std::size_t size = std::min(sizeof out, bytes_.size());
    if (size > 0) std::memcpy(&out, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return out;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace rlflow::fuzz
