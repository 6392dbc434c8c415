// Arithmetic modulo the two primes in which expressions are evaluated, 2^61 - 1 and 2^61 - 31, and the random functions
// that stand for nonlinear operators.
#pragma once

#include <cstdint>
#include <vector>

namespace rlflow::generator {

using Element = std::uint64_t;    // in [0, prime)
__extension__ using Wide = unsigned __int128;

// Returns x mixed by a 64-bit finaliser with full avalanche (the splitmix64 constants of Steele et al. 2014).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The integers modulo 2^61 - kShort. A number below 2^128 is reduced by folding the bits from bit 61 on twice.
template <std::uint64_t kShort>
struct Field {
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << 61) - 1;
  static constexpr Element kPrime = kMask + 1 - kShort;

  [[nodiscard]] static Element reduce(Wide x) {
    const Wide once = (x & kMask) + (x >> 61) * kShort;
    const Element twice = static_cast<Element>(once & kMask) + static_cast<Element>(once >> 61) * kShort;
    return twice >= kPrime ? twice - kPrime : twice;
  }
  [[nodiscard]] static Element add(Element a, Element b) { return a + b >= kPrime ? a + b - kPrime : a + b; }
  [[nodiscard]] static Element sub(Element a, Element b) { return a >= b ? a - b : a + kPrime - b; }
  [[nodiscard]] static Element mul(Element a, Element b) { return reduce(static_cast<Wide>(a) * b); }
  // Returns the inverse of a, which is a^(p-2) by Fermat's little theorem; zero for zero.
  [[nodiscard]] static Element inverse(Element a) {
    Element result = 1;
    for (Element exponent = kPrime - 2; exponent; exponent >>= 1, a = mul(a, a)) {
      if (exponent & 1) result = mul(result, a);
    }
    return result;
  }
  [[nodiscard]] static Element random(std::uint64_t key) { return reduce(mix(key)); }
  // Returns the place of a in a random total order of the field, by which Max, Relu and pooling compare. The order has
  // the laws that every total order has, and none that involve arithmetic. Zero stands in the middle: half of the field
  // is above it.
  [[nodiscard]] static std::uint64_t place(Element a) {
    return a == 0 ? std::uint64_t{1} << 63 : mix(a ^ (0x5851f42d4c957f2dULL + kShort));
  }
};

using First = Field<1>;
using Second = Field<31>;
inline constexpr int kPrimes = 2;

}  // namespace rlflow::generator
