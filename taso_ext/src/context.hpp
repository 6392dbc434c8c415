// Interning tables shared by all graphs that descend from one model: types, attributes, names, operator signatures.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "operators.hpp"
#include "types.hpp"

namespace rlflow {

struct Hash128 {
  std::uint64_t high = 0, low = 0;
  [[nodiscard]] bool operator==(const Hash128&) const = default;
  [[nodiscard]] auto operator<=>(const Hash128&) const = default;
};

// Folds one word into a running hash; order matters. The two lanes use unrelated odd multipliers.
[[nodiscard]] constexpr Hash128 fold(Hash128 hash, std::uint64_t word) {
  return {mix(hash.high ^ (word * 0xff51afd7ed558ccdULL)), mix(hash.low + (word ^ 0xc4ceb9fe1a85ec53ULL) * 0x2545f4914f6cdd1dULL)};
}
[[nodiscard]] constexpr Hash128 fold(Hash128 hash, Hash128 other) { return fold(fold(hash, other.high), other.low); }

// Everything about (operator, attributes, input types) that does not depend on where it stands in a graph.
struct Signature {
  OperatorId op = 0;
  AttributesId attributes = 0;
  std::vector<TypeId> inputs;   // kNoType where an optional input is absent
  std::vector<TypeId> outputs;
  Execution execution = Execution::kOpaque;
  bool commutative = false;
  bool contiguous_split = false;
  double flops = 0;
  double bytes = 0;
  Hash128 hash;
};

inline constexpr TypeId kNoType = 0xffffffffu;

// Not synchronised: whoever uses a context from several threads holds `mutex` for the whole call (bindings.cpp does).
class Context {
 public:
  Context() { (void)name(""); }

  std::mutex mutex;

  [[nodiscard]] TypeId type(const TensorType& type);
  [[nodiscard]] const TensorType& type(TypeId id) const { return types_[id]; }
  [[nodiscard]] Hash128 type_hash(TypeId id) const { return type_hashes_[id]; }
  [[nodiscard]] AttributesId attributes(const AttributeMap& attributes);
  [[nodiscard]] const AttributeMap& attributes(AttributesId id) const { return attributes_[id]; }
  [[nodiscard]] NameId name(std::string_view name);    // the empty name has id 0
  [[nodiscard]] const std::string& name(NameId id) const { return names_[id]; }
  [[nodiscard]] OperatorId op(std::string_view domain, std::string_view op_type);
  [[nodiscard]] std::pair<std::string_view, std::string_view> op_name(OperatorId op) const;  // (domain, op_type)

  // Signature of an operator that came with its output types (an imported model).
  [[nodiscard]] SignatureId given(OperatorId op, AttributesId attributes, std::span<const TypeId> inputs,
                                  std::span<const TypeId> outputs);
  // Signature of an operator a rule creates, or nothing when it would be invalid; failures are remembered too.
  [[nodiscard]] std::optional<SignatureId> inferred(OperatorId op, AttributesId attributes, std::span<const TypeId> inputs);
  [[nodiscard]] const Signature& signature(SignatureId id) const { return signatures_[id]; }
  [[nodiscard]] std::size_t signature_count() const { return signatures_.size(); }

  // `attributes` without the entries named in `listed` (sorted); memoised, since patterns ask for it at every node.
  [[nodiscard]] AttributesId without(AttributesId attributes, const std::vector<std::string>& listed);

 private:
  [[nodiscard]] SignatureId add(Signature signature);

  std::deque<TensorType> types_;
  std::vector<Hash128> type_hashes_;
  std::unordered_map<std::string, TypeId> type_ids_;
  std::deque<AttributeMap> attributes_;
  std::unordered_map<std::string, AttributesId> attribute_ids_;
  std::deque<std::string> names_;
  std::unordered_map<std::string, NameId> name_ids_;
  std::deque<std::pair<std::string, std::string>> unknown_ops_;
  std::unordered_map<std::string, OperatorId> unknown_op_ids_;
  std::deque<Signature> signatures_;
  std::unordered_map<std::u32string, SignatureId> given_;
  std::unordered_map<std::u32string, std::optional<SignatureId>> inferred_;
  std::unordered_map<std::uint64_t, AttributesId> without_;
};

[[nodiscard]] Hash128 hash_bytes(std::string_view bytes, std::uint64_t seed);

}  // namespace rlflow
