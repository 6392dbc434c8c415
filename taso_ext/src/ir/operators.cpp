#include "ir/operators.hpp"

#include <algorithm>
#include <unordered_map>

#include "ir/operator_table.hpp"

namespace rlflow {

using namespace operators;

OperatorId known_operator_count() { return static_cast<OperatorId>(kOperators.size()); }

std::string dotted_name(const OperatorInfo& info) {
  return info.domain.empty() ? std::string(info.name) : std::string(info.domain) + "." + std::string(info.name);
}

std::optional<OperatorId> known_operator(std::string_view name) {
  static const auto* const index = [] {
    auto* map = new std::unordered_map<std::string, OperatorId>();
    for (OperatorId i = 0; i < kOperators.size(); ++i) map->emplace(dotted_name(kOperators[i]), i);
    return map;
  }();
  const auto at = index->find(std::string(name));
  return at == index->end() ? std::nullopt : std::optional(at->second);
}

const OperatorInfo& operator_info(OperatorId known) { return kOperators.at(known); }

// Attributes that a target may leave out, with ONNX's defaults. A size that has no default in ONNX but stands in every
// normal form (num_heads) is 0.
struct Default {
  std::string_view op, name;
  double number = 0;
  bool real = false;
  std::string_view text{};
};
constexpr Default kDefaults[] = {
    {"Pad", "mode", 0, false, "constant"}, {"Pad", "value", 0, true}, {"Gelu", "approximate", 0, false, "none"},
    {"MaxPool", "ceil_mode"}, {"AveragePool", "ceil_mode"}, {"AveragePool", "count_include_pad"},
    {"Gemm", "alpha", 1, true}, {"Gemm", "beta", 1, true}, {"Gemm", "transA"}, {"Gemm", "transB"},
    {"RotaryEmbedding", "interleaved"}, {"RotaryEmbedding", "num_heads"}, {"RotaryEmbedding", "rotary_embedding_dim"},
    {"Attention", "is_causal"}, {"Attention", "softcap", 0, true},
    {"FusedMatMul", "alpha", 1, true}, {"FusedMatMul", "transA"}, {"FusedMatMul", "transB"},
    {"FusedMatMul", "transBatchA"}, {"FusedMatMul", "transBatchB"},
    {"FusedGemm", "alpha", 1, true}, {"FusedGemm", "beta", 1, true}, {"FusedGemm", "transA"}, {"FusedGemm", "transB"},
    {"MultiHeadAttention", "unidirectional"}, {"MultiHeadAttention", "mask_filter_value", -10000, true},
};

bool makes_constant(OperatorId op) { return op == kConstant || op == kConstantOfShape || op == kEyeLike; }

void complete_attributes(OperatorId op, AttributeMap& attributes, int dtype) {
  const auto add = [&](std::string_view name, Attribute value) {
    const auto at = std::lower_bound(attributes.begin(), attributes.end(), name, [](const auto& entry, std::string_view key) { return entry.first < key; });
    if (at == attributes.end() || at->first != name) attributes.emplace(at, std::string(name), std::move(value));
  };
  if (makes_constant(op)) add("dtype", std::int64_t{dtype});
  for (const Default& each : kDefaults) {
    if (kOperators[op].name == each.op) add(each.name, each.text.empty() ? each.real ? Attribute(each.number) : Attribute(static_cast<std::int64_t>(each.number)) : Attribute(std::string(each.text)));
  }
}

}  // namespace rlflow
