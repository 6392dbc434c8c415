// Arithmetic modulo primes below 2^62 on arrays, for the exact evaluation of rules (taso_ext/verify).
#include "bindings/bindings.hpp"

#include <cstdint>
#include <stdexcept>

namespace rlflow {
namespace {

__extension__ using Wide = unsigned __int128;
using Residues = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

constexpr std::int64_t kGreatestPrime = (std::int64_t{1} << 62) - 1;
constexpr py::ssize_t kLazyTerms = 8;    // as many products of two 62-bit residues as a 128-bit sum surely holds

void check_prime(std::int64_t prime) {
  if (prime < 2 || prime > kGreatestPrime) throw std::invalid_argument("a field's order must lie in [2, 2^62)");
}

std::int64_t multiply(std::int64_t a, std::int64_t b, std::int64_t prime) {
  check_prime(prime);
  return static_cast<std::int64_t>(static_cast<Wide>(a) * static_cast<Wide>(b) % static_cast<Wide>(prime));
}

std::int64_t power(std::int64_t base, std::int64_t exponent, std::int64_t prime) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = multiply(result, base, prime);
    base = multiply(base, base, prime);
  }
  return result;
}

Residues matmul(const Residues& a, const Residues& b, std::int64_t prime) {
  check_prime(prime);
  if (a.ndim() != 3 || b.ndim() != 3 || a.shape(0) != b.shape(0) || a.shape(2) != b.shape(1)) {
    throw std::invalid_argument("expected arrays [batch, m, k] and [batch, k, n]");
  }
  const py::ssize_t batch = a.shape(0), m = a.shape(1), k = a.shape(2), n = b.shape(2);
  Residues product({batch, m, n});
  const auto left = a.unchecked<3>(), right = b.unchecked<3>();
  auto out = product.mutable_unchecked<3>();
  const Wide modulus = static_cast<Wide>(prime);
  for (py::ssize_t s = 0; s < batch; ++s) {
    for (py::ssize_t i = 0; i < m; ++i) {
      for (py::ssize_t j = 0; j < n; ++j) {
        Wide sum = 0;
        for (py::ssize_t t = 0; t < k; ++t) {
          sum += static_cast<Wide>(left(s, i, t)) * static_cast<Wide>(right(s, t, j));
          if (t % kLazyTerms == kLazyTerms - 1) sum %= modulus;
        }
        out(s, i, j) = static_cast<std::int64_t>(sum % modulus);
      }
    }
  }
  return product;
}

}  // namespace

void bind_verification(py::module_& module) {
  module.def("field_multiply", py::vectorize(multiply), py::arg("a"), py::arg("b"), py::arg("prime"));
  module.def("field_power", py::vectorize(power), py::arg("base"), py::arg("exponent"), py::arg("prime"));
  module.def("field_matmul", &matmul, py::arg("a"), py::arg("b"), py::arg("prime"));
}

}  // namespace rlflow
