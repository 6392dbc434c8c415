#include "ir/types.hpp"

#include <algorithm>
#include <cmath>

namespace rlflow {
namespace {

// Bits per element by TensorProto.DataType (onnx.proto): FLOAT=1, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING,
// BOOL, FLOAT16, DOUBLE, UINT32, UINT64, COMPLEX64, COMPLEX128, BFLOAT16, FLOAT8 x4, UINT4, INT4, FLOAT4, FLOAT8E8M0,
// UINT2, INT2. A string is counted as one pointer.
constexpr int kBits[] = {0, 32, 8, 8, 16, 16, 32, 64, 64, 8, 16, 64, 32, 64, 64, 128, 16, 8, 8, 8, 8, 4, 4, 4, 8, 2, 2};

// The names of these types in ONNX's textual syntax.
constexpr std::string_view kNames[] = {
    "", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "double", "uint32",
    "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2"};
static_assert(std::size(kNames) == std::size(kBits));

}  // namespace

bool TensorType::is_countable() const {
  double product = 1;
  for (const std::int64_t extent : dims) product *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  return product <= kMostElements;
}

std::int64_t TensorType::elements() const {
  if (!ranked) return 0;
  std::int64_t product = 1;
  for (const std::int64_t extent : dims) product *= extent;
  return product;
}

std::int64_t TensorType::bytes() const {
  if (dtype < 0 || dtype >= static_cast<int>(std::size(kBits))) return elements();
  return (elements() * kBits[dtype] + 7) / 8;
}

bool is_floating(int dtype) { return dtype == 1 || dtype == 10 || dtype == 11 || dtype == 16; }

std::string_view dtype_name(int dtype) { return dtype > 0 && dtype < std::ssize(kNames) ? kNames[dtype] : ""; }

int dtype_named(std::string_view name) {
  const auto* at = std::find(std::begin(kNames) + 1, std::end(kNames), name);
  return at == std::end(kNames) ? 0 : static_cast<int>(at - std::begin(kNames));
}

bool can_hold(int dtype, double value) {
  if (value == 0) return true;
  if (!std::isfinite(value)) return false;
  struct Format {
    int dtype, mantissa, least, most;    // bits of the fraction, and the exponents of normal numbers
  };
  constexpr Format kFormats[] = {{1, 23, -126, 127}, {10, 10, -14, 15}, {16, 7, -126, 127}};
  const auto* format = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& each) { return each.dtype == dtype; });
  if (format == std::end(kFormats)) return true;    // double
  const int exponent = std::ilogb(value);
  const double unit = std::ldexp(1.0, std::max(exponent, format->least) - format->mantissa);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::ilogb(rounded) <= format->most && std::abs(rounded - value) <= std::ldexp(std::abs(value), -format->mantissa - 1);
}

bool nearly_equal(double found, double expected) {
  if (found == expected) return true;
  const auto is_float = [](double value) { return static_cast<double>(static_cast<float>(value)) == value; };
  if (!std::isfinite(found) || !std::isfinite(expected) || is_float(expected)) return false;
  constexpr int kFloat = 23, kDouble = 52;    // bits of the fraction
  const double unit = std::ldexp(1.0, std::ilogb(expected) - (is_float(found) ? kFloat : kDouble));
  return std::abs(found - expected) <= (is_float(found) ? 2 : 4) * unit;
}

bool is_finite(const TensorType& type) {
  if (type.content.kind == Content::Kind::kUniform) return std::isfinite(type.content.value);
  return type.content.kind != Content::Kind::kUnknown;
}

bool is_nonzero(const TensorType& type) {
  if (type.content.kind == Content::Kind::kUniform) return std::isfinite(type.content.value) && type.content.value != 0;
  return type.content.kind == Content::Kind::kNonzero;
}

bool is_identity(const TensorType& type) {
  if (type.content.kind == Content::Kind::kIdentity) return true;
  const std::size_t rank = type.dims.size();
  return type.content == Content{Content::Kind::kUniform, 1.0} && rank >= 2 && type.dims[rank - 1] == 1 && type.dims[rank - 2] == 1;
}

bool is_identity_kernel(const TensorType& type) {
  if (type.content.kind == Content::Kind::kIdentityKernel) return true;
  const bool ones = std::all_of(type.dims.begin() + std::min<std::ptrdiff_t>(1, std::ssize(type.dims)), type.dims.end(), [](std::int64_t extent) { return extent == 1; });
  return type.content == Content{Content::Kind::kUniform, 1.0} && type.dims.size() >= 3 && ones;
}

bool is_averaging_kernel(const TensorType& type) {
  if (type.content.kind == Content::Kind::kAveragingKernel) return true;
  if (type.dims.size() < 3) return false;
  double window = 1;
  for (std::size_t i = 2; i < type.dims.size(); ++i) window *= static_cast<double>(type.dims[i]);
  if (type.content.kind == Content::Kind::kIdentityKernel) return window == 1;
  return type.content.kind == Content::Kind::kUniform && type.dims[1] == 1 && nearly_equal(type.content.value, 1.0 / window);
}

const Attribute* find_attribute(const AttributeMap& attributes, std::string_view name) {
  const auto at = std::lower_bound(attributes.begin(), attributes.end(), name,
                                   [](const auto& entry, std::string_view key) { return entry.first < key; });
  return at != attributes.end() && at->first == name ? &at->second : nullptr;
}

std::int64_t int_attribute(const AttributeMap& attributes, std::string_view name, std::int64_t fallback) {
  const Attribute* found = find_attribute(attributes, name);
  const auto* number = found ? std::get_if<std::int64_t>(found) : nullptr;
  return number ? *number : fallback;
}

const Dims* ints_attribute(const AttributeMap& attributes, std::string_view name) {
  const Attribute* found = find_attribute(attributes, name);
  return found ? std::get_if<Dims>(found) : nullptr;
}

}  // namespace rlflow
