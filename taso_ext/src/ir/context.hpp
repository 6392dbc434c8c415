// Interning tables shared by all graphs that descend from one model: types, attributes, names, operator signatures.
#pragma once

#include <bit>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "ir/operators.hpp"
#include "ir/stable_array.hpp"
#include "ir/types.hpp"

namespace rlflow {

struct Hash128 {
  std::uint64_t high = 0, low = 0;
  [[nodiscard]] bool operator==(const Hash128&) const = default;
  [[nodiscard]] auto operator<=>(const Hash128&) const = default;
  constexpr Hash128& operator+=(const Hash128& other) { return high += other.high, low += other.low, *this; }
  constexpr Hash128& operator-=(const Hash128& other) { return high -= other.high, low -= other.low, *this; }
};

// Returns a running hash with `other` folded in; the order matters. Each half is a product of two 64-bit words that
// depend on all four input words, with its upper half folded onto its lower one; the constants are those of wyhash
// (Wang Yi). A flipped input bit flips every output bit with a probability of 0.42 to 0.58.
[[nodiscard]] constexpr Hash128 fold(Hash128 hash, Hash128 other) {
  const auto multiply = [](std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
  };
  return {multiply(hash.high ^ std::rotl(other.low, 29) ^ 0xa0761d6478bd642fULL, hash.low + other.high + 0xe7037ed1a0b428dbULL),
          multiply(hash.low ^ std::rotl(other.high, 17) ^ 0x8ebc6af09c88c6e3ULL, hash.high + other.low + 0x589965cc75374cc3ULL)};
}
[[nodiscard]] constexpr Hash128 fold(Hash128 hash, std::uint64_t word) { return fold(hash, Hash128{word, ~word}); }

// The properties of an operator with given attributes and input types that do not depend on its place in a graph.
struct Signature {
  Hash128 hash;
  bool symmetric = false;      // the operands may be permuted
  bool commutative = false;    // symmetric, and has two operands
  bool constant = false;       // a constant written in a rule
  Execution execution = Execution::kOpaque;
  OperatorId op = 0;
  AttributesId attributes = 0;
  double flops = 0;
  double bytes = 0;
  double output_bytes = 0;    // bytes of the first output
  std::vector<TypeId> inputs;    // kNoType for an absent optional input
  std::vector<TypeId> outputs;
};

inline constexpr TypeId kNoType = 0xffffffffu;

// The tables. Threads may share them: known entries are read without a lock, new ones are added under a lock. Ids
// depend on the order in which entries are met, and therefore on how threads run; nothing that a user sees may depend
// on ids.
class Context {
 public:
  Context() { (void)name(""); }

  [[nodiscard]] TypeId type(const TensorType& type);
  [[nodiscard]] const TensorType& type(TypeId id) const { return types_[id]; }
  [[nodiscard]] Hash128 type_hash(TypeId id) const { return type_hashes_[id]; }
  [[nodiscard]] AttributesId attributes(const AttributeMap& attributes);
  [[nodiscard]] const AttributeMap& attributes(AttributesId id) const { return attributes_[id]; }
  [[nodiscard]] NameId name(std::string_view name);    // the empty name has id 0
  [[nodiscard]] const std::string& name(NameId id) const { return names_[id]; }
  [[nodiscard]] OperatorId op(std::string_view domain, std::string_view op_type);
  [[nodiscard]] std::pair<std::string_view, std::string_view> op_name(OperatorId op) const;  // (domain, op_type)

  // Returns the signature of an operator whose output types are given, as in an imported model.
  [[nodiscard]] SignatureId given(OperatorId op, AttributesId attributes, std::span<const TypeId> inputs,
                                  std::span<const TypeId> outputs);
  // Returns the signature of an operator that a rule creates, or nothing if it would be invalid; failures are kept too.
  [[nodiscard]] std::optional<SignatureId> inferred(OperatorId op, AttributesId attributes, std::span<const TypeId> inputs);
  [[nodiscard]] const Signature& signature(SignatureId id) const { return signatures_[id]; }

  // Returns `attributes` without the entries named in `listed`.
  [[nodiscard]] AttributesId without(AttributesId attributes, const std::vector<std::string>& listed);

 private:
  [[nodiscard]] SignatureId add(Signature signature);

  std::recursive_mutex writing_;    // recursive, because adding an entry may add another
  StableArray<TensorType> types_;
  StableArray<Hash128> type_hashes_;
  std::unordered_map<std::string, TypeId> type_ids_;
  StableArray<AttributeMap> attributes_;
  std::unordered_map<std::string, AttributesId> attribute_ids_;
  StableArray<std::string> names_;
  std::unordered_map<std::string, NameId> name_ids_;
  StableArray<std::pair<std::string, std::string>> unknown_ops_;
  std::unordered_map<std::string, OperatorId> unknown_op_ids_;
  StableArray<Signature> signatures_;
  std::unordered_map<std::u32string, SignatureId> given_;
  std::unordered_map<std::u32string, std::optional<SignatureId>> inferred_;
};

[[nodiscard]] Hash128 hash_bytes(std::string_view bytes, std::uint64_t seed);

}  // namespace rlflow
