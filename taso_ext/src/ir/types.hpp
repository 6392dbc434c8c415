// Element types, tensor types and operator attributes, which all other headers use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rlflow {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
using TypeId = std::uint32_t;
using AttributesId = std::uint32_t;
using SignatureId = std::uint32_t;
using NameId = std::uint32_t;
using OperatorId = std::uint32_t;

inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

// A problem in what the user gave (a model, a rule file, an index). It becomes ValueError in Python.
class InvalidInput : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

using Dims = std::vector<std::int64_t>;

// The most elements of a tensor. The limit keeps the size of a tensor in bits, and a few times that, within 63 bits.
inline constexpr double kMostElements = 1e15;

// What is known about the elements of a weight. If several kinds describe a tensor, its kind is the first of them. The
// last two say only that all elements are finite, and for kNonzero that none is zero.
struct Content {
  enum class Kind : std::uint8_t { kUnknown, kUniform, kIdentity, kIdentityKernel, kAveragingKernel, kNonzero, kFinite };
  Kind kind = Kind::kUnknown;
  double value = 0;    // value of all elements if the kind is kUniform
  [[nodiscard]] bool operator==(const Content&) const = default;
};

// The type of a tensor. `dtype` is ONNX's TensorProto.DataType; 0 means "not a tensor". `dims` has a meaning only if
// `ranked` is true. Weights of different content have different types. Results of operators have no content, so content
// never distinguishes two results.
struct TensorType {
  int dtype = 0;
  bool ranked = false;
  Dims dims;
  Content content{};

  [[nodiscard]] bool operator==(const TensorType&) const = default;
  // Returns whether the tensor has at most kMostElements elements; only then may the methods below be called. Extents
  // of 0 count as 1, so that no partial product overflows either.
  [[nodiscard]] bool is_countable() const;
  // Returns the number of elements; 0 if the shape is unknown.
  [[nodiscard]] std::int64_t elements() const;
  // Returns the number of bytes in memory, rounded up for types of less than a byte; 0 if the shape is unknown.
  [[nodiscard]] std::int64_t bytes() const;
};

[[nodiscard]] bool is_floating(int dtype);
// Returns the name of an element type in ONNX's textual syntax, such as "float" or "int64"; an empty text for none.
[[nodiscard]] std::string_view dtype_name(int dtype);
// Returns the element type of that name; 0 if there is none.
[[nodiscard]] int dtype_named(std::string_view name);

// Returns whether all elements of a tensor are known to be finite, and to be other than zero.
[[nodiscard]] bool is_finite(const TensorType& type);
[[nodiscard]] bool is_nonzero(const TensorType& type);

// Returns whether the last two axes are known to hold identity matrices.
[[nodiscard]] bool is_identity(const TensorType& type);
// Returns whether a tensor is known to be a convolution weight [n, n / groups, k...] that copies its input: every k is
// odd, and the centre is 1.
[[nodiscard]] bool is_identity_kernel(const TensorType& type);
// Returns whether a tensor is known to be a convolution weight [n, n / groups, k...] that computes the mean of each
// channel's window.
[[nodiscard]] bool is_averaging_kernel(const TensorType& type);

// Returns whether a floating element type holds a finite number with the precision that it has for numbers of ordinary
// size: neither as infinity, nor as zero, nor with the few bits of a number that is very small.
[[nodiscard]] bool can_hold(int dtype, double value);

// Returns whether a number in a model is the expected one, up to the rounding that exporters do. They write 2 or 0.5 as
// it is: an expected number of float32 has to be there exactly. Of sqrt(2) a model may hold a number of float32 within
// two units in the last place, or one of double within four of its units.
[[nodiscard]] bool nearly_equal(double found, double expected);

// The digest of an attribute that the engine carries but does not look into (a tensor, a subgraph, ...).
struct OpaqueAttribute {
  std::string digest;
  [[nodiscard]] bool operator==(const OpaqueAttribute&) const = default;
};

using Attribute = std::variant<std::int64_t, double, std::string, Dims, std::vector<double>, std::vector<std::string>,
                               OpaqueAttribute>;

// Attributes sorted by name; the names are unique.
using AttributeMap = std::vector<std::pair<std::string, Attribute>>;

[[nodiscard]] const Attribute* find_attribute(const AttributeMap& attributes, std::string_view name);
[[nodiscard]] std::int64_t int_attribute(const AttributeMap& attributes, std::string_view name, std::int64_t fallback);
// Returns the list of integers stored under `name`, or nullptr if there is none.
[[nodiscard]] const Dims* ints_attribute(const AttributeMap& attributes, std::string_view name);

// Returns x mixed by a 64-bit finaliser with full avalanche (the splitmix64 constants of Steele et al. 2014).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace rlflow
