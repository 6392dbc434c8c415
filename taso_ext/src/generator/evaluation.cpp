// The kernels that follow a plan, in each prime.
#include <algorithm>
#include <cstring>

#include "generator/plan.hpp"

namespace rlflow::generator {
namespace {

// Products of two elements are below 2^122, so that the sum of this many is below 2^128.
constexpr std::uint32_t kMostProducts = 64;

template <class F>
void gather(const Plan& plan, const Element* a, const Element* b, Element* out) {
  for (std::uint32_t i = 0; i < plan.elements; ++i) {
    const std::uint16_t from = plan.left[i];
    out[i] = from < Plan::kRight ? a[from] : from == Plan::kZero ? 0 : b[from & (Plan::kRight - 1)];
  }
}

template <class F>
void linear(const Plan& plan, int prime, const Element* a, Element* out) {
  for (std::uint32_t i = 0; i < plan.elements; ++i) {
    Wide sum = 0;
    for (std::uint32_t j = plan.rows[i]; j < plan.rows[i + 1]; ++j) sum += a[plan.left[j]];
    out[i] = F::reduce(sum);
  }
  if (plan.scales[prime].empty()) return;
  for (std::uint32_t i = 0; i < plan.elements; ++i) out[i] = F::mul(out[i], plan.scales[prime][i]);
}

template <class F>
void bilinear(const Plan& plan, const Element* a, const Element* b, Element* out) {
  const std::uint16_t *left = plan.left.data(), *right = plan.right.data();
  for (std::uint32_t i = 0; i < plan.elements; ++i) {
    Wide sum = 0;
    const std::uint32_t end = plan.rows[i + 1];
    for (std::uint32_t j = plan.rows[i]; j < end;) {
      const std::uint32_t stop = std::min(end, j + kMostProducts - 1);
      for (; j < stop; ++j) sum += static_cast<Wide>(a[left[j]]) * b[right[j]];
      sum = F::reduce(sum);
    }
    out[i] = static_cast<Element>(sum);
  }
}

template <class Combine>
void elementwise(const Plan& plan, const Element* a, const Element* b, Element* out, Combine combine) {
  if (plan.left.empty()) {
    for (std::uint32_t i = 0; i < plan.elements; ++i) out[i] = combine(a[i], b[i]);
  } else {
    for (std::uint32_t i = 0; i < plan.elements; ++i) out[i] = combine(a[plan.left[i]], b[plan.right[i]]);
  }
}

template <class F>
Element greater(Element a, Element b) {
  return F::place(a) >= F::place(b) ? a : b;
}

template <class F>
void max_of_rows(const Plan& plan, const Element* a, Element* out) {
  for (std::uint32_t i = 0; i < plan.elements; ++i) {
    Element best = a[plan.left[plan.rows[i]]];
    for (std::uint32_t j = plan.rows[i] + 1; j < plan.rows[i + 1]; ++j) best = greater<F>(best, a[plan.left[j]]);
    out[i] = best;
  }
}

// Computes all inverses at the cost of one (Montgomery's trick). Returns false if an element is zero.
template <class F>
bool invert(const Element* a, std::size_t count, Element* out) {
  Element product = 1;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = product;
    product = F::mul(product, a[i]);
  }
  if (product == 0) return false;
  Element inverse = F::inverse(product);
  for (std::size_t i = count; i-- > 0;) {
    out[i] = F::mul(out[i], inverse);
    inverse = F::mul(inverse, a[i]);
  }
  return true;
}

template <class F>
bool pointwise(const Plan& plan, const Element* a, Element* out) {
  switch (plan.kind) {
    case Kind::kRelu:
      for (std::uint32_t i = 0; i < plan.elements; ++i) out[i] = greater<F>(a[i], 0);
      return true;
    case Kind::kNeg:
      for (std::uint32_t i = 0; i < plan.elements; ++i) out[i] = F::sub(0, a[i]);
      return true;
    case Kind::kReciprocal: return invert<F>(a, plan.elements, out);
    case Kind::kZeroFixing:
      for (std::uint32_t i = 0; i < plan.elements; ++i) out[i] = a[i] == 0 ? 0 : F::random(a[i] ^ plan.key);
      return true;
    default:
      for (std::uint32_t i = 0; i < plan.elements; ++i) out[i] = F::random(a[i] ^ plan.key);
      return true;
  }
}

template <class F>
bool evaluate_in(const Plan& plan, int prime, const Element* a, const Element* b, const Element* inverse, Element* out) {
  switch (plan.kernel) {
    case Kernel::kGather: gather<F>(plan, a, b, out); return true;
    case Kernel::kLinear: linear<F>(plan, prime, a, out); return true;
    case Kernel::kBilinear: bilinear<F>(plan, a, b, out); return true;
    case Kernel::kAdd: elementwise(plan, a, b, out, F::add); return true;
    case Kernel::kSub: elementwise(plan, a, b, out, F::sub); return true;
    case Kernel::kMul: elementwise(plan, a, b, out, F::mul); return true;
    case Kernel::kDiv: elementwise(plan, a, inverse, out, F::mul); return true;
    case Kernel::kMax: elementwise(plan, a, b, out, greater<F>); return true;
    case Kernel::kMaxOfRows: max_of_rows<F>(plan, a, out); return true;
    case Kernel::kPointwise: return pointwise<F>(plan, a, out);
  }
  return false;
}

// Returns the random multipliers of a fingerprint's elements.
const std::vector<std::uint64_t>& multipliers() {
  static const auto* const all = [] {
    auto* made = new std::vector<std::uint64_t>(1 << 14);
    for (std::size_t i = 0; i < made->size(); ++i) (*made)[i] = mix(0x1b873593ULL + i) | 1;
    return made;
  }();
  return *all;
}

template <class F>
void draw_into(const Leaf& leaf, std::uint64_t seed, std::vector<Element>& out) {
  for (const Dims& dims : leaf.shapes) {
    const std::int32_t count = elements_of(dims), last = dims.empty() ? 1 : dims.back();
    std::int32_t window = 1;
    for (std::size_t i = 2; i < dims.size(); ++i) window *= dims[i];
    for (std::int32_t i = 0; i < count; ++i) {
      switch (leaf.content) {
        case Leaf::Content::kVariable: out.push_back(F::random(mix(seed + out.size()))); break;
        case Leaf::Content::kZero: out.push_back(0); break;
        case Leaf::Content::kOne: out.push_back(1); break;
        case Leaf::Content::kIdentity: out.push_back(i / last % dims[dims.size() - 2] == i % last); break;
        case Leaf::Content::kIdentityKernel: out.push_back(i / window / dims[1] == i / window % dims[1] && i % window == window / 2); break;
        case Leaf::Content::kAveragingKernel: out.push_back(F::inverse(static_cast<Element>(window))); break;
      }
    }
  }
}

}  // namespace

bool evaluate(const Plan& plan, const Element* a, std::size_t a_elements, const Element* b, std::size_t b_elements, Element* out,
              Inverse& inverse) {
  if (plan.kernel == Kernel::kDiv && inverse.of != b) {
    inverse.values.resize(kPrimes * b_elements);
    inverse.of = nullptr;
    if (!invert<First>(b, b_elements, inverse.values.data())) return false;
    if (!invert<Second>(b + b_elements, b_elements, inverse.values.data() + b_elements)) return false;
    inverse.of = b;
  }
  return evaluate_in<First>(plan, 0, a, b, inverse.values.data(), out) &&
         evaluate_in<Second>(plan, 1, a + a_elements, b + b_elements, inverse.values.data() + b_elements, out + plan.elements);
}

std::uint64_t fingerprint(const Plan& plan, const Element* values) {
  const std::uint64_t* const factors = multipliers().data();
  Wide sum = plan.shape_key;
  for (std::uint32_t i = 0; i < kPrimes * plan.elements; ++i) sum += static_cast<Wide>(values[i]) * factors[i];
  return mix(static_cast<std::uint64_t>(sum) ^ mix(static_cast<std::uint64_t>(sum >> 64)) ^ plan.shape_key);
}

std::vector<Element> draw(const Leaf& leaf, std::uint64_t seed) {
  std::vector<Element> values;
  draw_into<First>(leaf, seed, values);
  draw_into<Second>(leaf, seed, values);
  return values;
}

}  // namespace rlflow::generator
