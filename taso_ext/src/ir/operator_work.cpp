// Arithmetic and memory traffic of operators.
#include <algorithm>

#include "ir/operator_table.hpp"

namespace rlflow {
namespace {

using namespace operators;
using Types = std::span<const TensorType* const>;

double sum_bytes(Types types) {
  double total = 0;
  for (const TensorType* type : types) total += type ? static_cast<double>(type->bytes()) : 0.0;
  return total;
}

// Returns the size of a kernel's window, but at most kMostElements, so that prices stay finite for any kernel_shape.
double kernel_window(const AttributeMap& attributes) {
  const Dims* kernel = ints_attribute(attributes, "kernel_shape");
  double window = 1;
  for (const std::int64_t extent : kernel ? *kernel : Dims{}) window *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  return std::min(window, kMostElements);
}

}  // namespace

double count_flops(OperatorId op, const AttributeMap& attributes, Types inputs, Types outputs) {
  const auto elements = [](const TensorType* type) { return type ? static_cast<double>(type->elements()) : 0.0; };
  const double out = outputs.empty() ? 0.0 : elements(outputs[0]);
  const double in = inputs.empty() ? 0.0 : elements(inputs[0]);
  switch (op) {
    case kConv:
    case kFusedConv:
    case kConvTranspose: {
      const TensorType* weights = inputs.size() > 1 ? inputs[1] : nullptr;
      if (!weights || weights->dims.size() < 2) return out;
      const double each = 2.0 * static_cast<double>(weights->dims[1]) * kernel_window(attributes);
      return (op == kConvTranspose ? in : out) * each + (inputs.size() > 2 ? out : 0.0);
    }
    case kMatMul: return !inputs.empty() && inputs[0] && !inputs[0]->dims.empty() ? 2.0 * out * static_cast<double>(inputs[0]->dims.back()) : out;
    case kFusedMatMul: {
      const Dims& a = inputs.empty() || !inputs[0] ? Dims{} : inputs[0]->dims;
      const std::size_t behind = int_attribute(attributes, "transA", 0) != 0 ? 2 : 1;
      return a.size() >= behind ? 2.0 * out * static_cast<double>(a[a.size() - behind]) : out;
    }
    case kFusedGemm:
    case kGemm: {
      if (inputs.empty() || !inputs[0] || inputs[0]->dims.size() != 2) return out;
      const double depth = static_cast<double>(inputs[0]->dims[int_attribute(attributes, "transA", 0) ? 0 : 1]);
      return 2.0 * out * depth + (inputs.size() > 2 ? out : 0.0);
    }
    case kMultiHead:
    case kAttention: {
      // Two matrix products of 2 q k d operations each; the key length k is the second-to-last extent of the key.
      const TensorType* key = inputs.size() > 1 ? inputs[1] : nullptr;
      return key && key->dims.size() > 1 ? 4.0 * out * static_cast<double>(key->dims[key->dims.size() - 2]) : out;
    }
    case kMaxPool:
    case kAveragePool: return out * kernel_window(attributes);
    case kSoftmax:
    case kLogSoftmax: return 5.0 * out;
    case kLayerNorm: return 8.0 * out;
    case kSkipNorm:
    case kSkipRmsNorm: return 9.0 * out;
    case kBatchNorm: return 2.0 * out;
    case kCast: return 0.0;
    default: break;
  }
  if (op >= known_operator_count()) return out;
  switch (operator_info(op).execution) {
    case kElementwise: return out * std::max<double>(1.0, static_cast<double>(inputs.size()) - 1.0);
    case kKernel:
    case kOpaque: return std::max(in, out);
    default: return 0.0;
  }
}

double count_bytes(OperatorId op, Types inputs, Types outputs) {
  if (op == kGather) {  // it reads the rows that it picks, not the whole table
    return 2.0 * sum_bytes(outputs) + (inputs.size() > 1 && inputs[1] ? static_cast<double>(inputs[1]->bytes()) : 0.0);
  }
  if (op == kSlice) return 2.0 * sum_bytes(outputs);
  return sum_bytes(inputs) + sum_bytes(outputs);
}

}  // namespace rlflow
