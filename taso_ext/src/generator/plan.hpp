// An operator at operands of given shapes, as index tables that kernels follow.
#pragma once

#include <optional>

#include "generator/field.hpp"
#include "generator/grid.hpp"

namespace rlflow::generator {

// How a plan is carried out.
enum class Kernel : std::uint8_t { kGather, kLinear, kBilinear, kAdd, kSub, kMul, kDiv, kMax, kMaxOfRows, kPointwise };

// An operator at operands of given shapes. The tensors of all shape sets stand behind one another, and tables index
// into that. `rows` delimits the entries of each element; it is empty if each element has one entry.
struct Plan {
  Kernel kernel = Kernel::kGather;
  Kind kind = Kind::kAdd;
  Shapes shapes;
  std::uint32_t elements = 0;    // of the result, all shape sets together
  std::uint64_t key = 0;         // of the random function
  std::uint64_t shape_key = 0;   // of the shapes, for fingerprints
  std::vector<std::uint16_t> left, right;
  std::vector<std::uint32_t> rows;
  std::vector<Element> scales[kPrimes];    // by element, for averages

  static constexpr std::uint16_t kZero = 0xffff;     // a gathered zero
  static constexpr std::uint16_t kRight = 0x8000;    // gathered from the right operand
};

// Returns the plan of an operator; nothing if the shapes do not fit, the result is one of the operands or has more than
// kMostElements elements, or a comparison has too few elements.
[[nodiscard]] std::optional<Plan> make_plan(const Operator& op, std::uint64_t key, const Shapes& a, const Shapes* b);

[[nodiscard]] std::uint64_t key_of(const Shapes& shapes);
[[nodiscard]] std::int32_t elements_of(const Dims& dims);

// The inverses of a divisor's elements, kept for the next tensor that is divided by it.
struct Inverse {
  const Element* of = nullptr;
  std::vector<Element> values;
};

// Writes the result in both primes, `plan.elements` elements each, to `out`. The operands hold `a_elements` and
// `b_elements` elements in each prime. Returns false if a divisor is zero.
[[nodiscard]] bool evaluate(const Plan& plan, const Element* a, std::size_t a_elements, const Element* b, std::size_t b_elements,
                            Element* out, Inverse& inverse);

// Returns a 64-bit digest of a result and its shapes.
[[nodiscard]] std::uint64_t fingerprint(const Plan& plan, const Element* values);

// Returns the elements of a leaf in both primes.
[[nodiscard]] std::vector<Element> draw(const Leaf& leaf, std::uint64_t seed);

}  // namespace rlflow::generator
