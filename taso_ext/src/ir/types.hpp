// Element types, tensor types and operator attributes: the vocabulary every other header speaks.
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

// A problem in what the user gave (a model, a rule file, an index); becomes ValueError in Python.
class InvalidInput : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

using Dims = std::vector<std::int64_t>;

// Keeps every product of extents, in bits and times a few, within 63 bits.
inline constexpr double kMostElements = 1e15;

// What is known of the elements of a weight. A tensor that could be called by several names has the first of them.
struct Content {
  enum class Kind : std::uint8_t { kUnknown, kUniform, kIdentity, kIdentityKernel, kAveragingKernel };
  Kind kind = Kind::kUnknown;
  double value = 0;    // of all elements where kUniform
  [[nodiscard]] bool operator==(const Content&) const = default;
};

// dtype is ONNX's TensorProto.DataType; 0 means "not a tensor". dims are meaningful only when ranked. Weights of
// different content have different types; results of operators have none, so that content never tells results apart.
struct TensorType {
  int dtype = 0;
  bool ranked = false;
  Dims dims;
  Content content{};

  [[nodiscard]] bool operator==(const TensorType&) const = default;
  // Whether it has at most kMostElements; only then may it be counted. Extents of 0 count as 1, so that no partial
  // product overflows either.
  [[nodiscard]] bool is_countable() const;
  // Number of elements; 0 when the shape is unknown.
  [[nodiscard]] std::int64_t elements() const;
  // Bytes in memory; sub-byte types are rounded up; 0 when the shape is unknown.
  [[nodiscard]] std::int64_t bytes() const;
};

[[nodiscard]] bool is_floating(int dtype);

// Whether the last two extents are known to hold identity matrices.
[[nodiscard]] bool is_identity(const TensorType& type);
// Whether it is known to be a convolution weight [n, n / groups, k...] that copies its input: k odd, the centre 1.
[[nodiscard]] bool is_identity_kernel(const TensorType& type);
// Whether it is known to be a convolution weight [n, n / groups, k...] that gives the mean of each channel's window.
[[nodiscard]] bool is_averaging_kernel(const TensorType& type);

// Equal but for rounding: within two units in the last place of float32. Whoever writes a model rounds its constants.
[[nodiscard]] bool nearly_equal(double a, double b);

// Digest of an attribute the engine carries but does not look into (a tensor, a subgraph, ...).
struct OpaqueAttribute {
  std::string digest;
  [[nodiscard]] bool operator==(const OpaqueAttribute&) const = default;
};

using Attribute = std::variant<std::int64_t, double, std::string, Dims, std::vector<double>, std::vector<std::string>,
                               OpaqueAttribute>;

// Sorted by name, names unique.
using AttributeMap = std::vector<std::pair<std::string, Attribute>>;

[[nodiscard]] const Attribute* find_attribute(const AttributeMap& attributes, std::string_view name);
[[nodiscard]] std::int64_t int_attribute(const AttributeMap& attributes, std::string_view name, std::int64_t fallback);
// The list stored under name, or nullptr.
[[nodiscard]] const Dims* ints_attribute(const AttributeMap& attributes, std::string_view name);

// A 64-bit finaliser with full avalanche (the splitmix64 constants of Steele et al. 2014).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace rlflow
