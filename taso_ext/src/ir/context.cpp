#include "ir/context.hpp"

#include <algorithm>
#include <cstring>

namespace rlflow {
namespace {

// Append a value to a byte string in an injective way: the length of a part of variable size precedes the part.
void put(std::string& out, std::int64_t number) { out.append(reinterpret_cast<const char*>(&number), sizeof number); }
void put(std::string& out, double number) { out.append(reinterpret_cast<const char*>(&number), sizeof number); }
void put(std::string& out, std::string_view text) {
  put(out, static_cast<std::int64_t>(text.size()));
  out.append(text);
}
void put(std::string& out, const std::string& text) { put(out, std::string_view(text)); }
void put(std::string& out, const OpaqueAttribute& opaque) { put(out, std::string_view(opaque.digest)); }
template <typename T>
void put(std::string& out, const std::vector<T>& list) {
  put(out, static_cast<std::int64_t>(list.size()));
  for (const T& item : list) put(out, item);
}

std::string bytes_of(const AttributeMap& attributes) {
  std::string out;
  for (const auto& [name, value] : attributes) {
    put(out, name);
    out.push_back(static_cast<char>('0' + value.index()));
    std::visit([&](const auto& held) { put(out, held); }, value);
  }
  return out;
}

std::string bytes_of(const TensorType& type) {
  std::string out;
  put(out, static_cast<std::int64_t>(type.dtype));
  out.push_back(type.ranked ? 'r' : 'u');
  put(out, type.dims);
  if (type.content.kind != Content::Kind::kUnknown) {
    out.push_back(static_cast<char>('0' + static_cast<int>(type.content.kind)));
    put(out, type.content.value);
  }
  return out;
}

// Returns the key of a signature. The scratch string avoids an allocation in the common case, a known signature.
const std::u32string& signature_key(OperatorId op, AttributesId attributes, std::span<const TypeId> inputs,
                                    std::span<const TypeId> outputs) {
  thread_local std::u32string key;
  key.clear();
  key.push_back(op);
  key.push_back(attributes);
  key.push_back(static_cast<char32_t>(inputs.size()));
  key.append(inputs.begin(), inputs.end());
  key.append(outputs.begin(), outputs.end());
  return key;
}

std::vector<const TensorType*> pointers(const Context& context, std::span<const TypeId> ids) {
  std::vector<const TensorType*> out;
  for (const TypeId id : ids) out.push_back(id == kNoType ? nullptr : &context.type(id));
  return out;
}

}  // namespace

Hash128 hash_bytes(std::string_view bytes, std::uint64_t seed) {
  Hash128 hash{mix(seed), mix(~seed)};
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min<std::size_t>(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), size);
    hash = fold(fold(hash, word), size);
    bytes.remove_prefix(size);
  }
  return hash;
}

TypeId Context::type(const TensorType& type) {
  const std::lock_guard guard(writing_);
  const auto [at, fresh] = type_ids_.try_emplace(bytes_of(type), static_cast<TypeId>(types_.size()));
  if (fresh) {
    types_.push_back(type);
    // Whether a weight is finite or nonzero follows from the weight, so it does not tell graphs apart.
    TensorType hashed = type;
    if (hashed.content.kind == Content::Kind::kNonzero || hashed.content.kind == Content::Kind::kFinite) hashed.content = {};
    type_hashes_.push_back(hash_bytes(bytes_of(hashed), 4));
  }
  return at->second;
}

AttributesId Context::attributes(const AttributeMap& attributes) {
  const std::lock_guard guard(writing_);
  const auto [at, fresh] = attribute_ids_.try_emplace(bytes_of(attributes), static_cast<AttributesId>(attributes_.size()));
  if (fresh) attributes_.push_back(attributes);
  return at->second;
}

NameId Context::name(std::string_view name) {
  const std::lock_guard guard(writing_);
  const auto [at, fresh] = name_ids_.try_emplace(std::string(name), static_cast<NameId>(names_.size()));
  if (fresh) names_.push_back(std::string(name));
  return at->second;
}

OperatorId Context::op(std::string_view domain, std::string_view op_type) {
  const bool own = domain.empty() || domain == "ai.onnx";
  // A dot in the name of one of ONNX's own operators would make it look like an operator of another domain.
  if (own ? op_type.find('.') == std::string_view::npos : true) {
    if (const auto known = own ? known_operator(op_type) : known_operator(std::string(domain) + "." + std::string(op_type))) return *known;
  }
  const std::lock_guard guard(writing_);
  std::string key(domain);
  key.push_back('\0');
  key.append(op_type);
  const auto next = static_cast<OperatorId>(known_operator_count() + unknown_ops_.size());
  const auto [at, fresh] = unknown_op_ids_.try_emplace(std::move(key), next);
  if (fresh) unknown_ops_.push_back({std::string(domain), std::string(op_type)});
  return at->second;
}

std::pair<std::string_view, std::string_view> Context::op_name(OperatorId op) const {
  if (op < known_operator_count()) return {operator_info(op).domain, operator_info(op).name};
  const auto& [domain, op_type] = unknown_ops_[op - known_operator_count()];
  return {domain, op_type};
}

SignatureId Context::add(Signature signature) {
  const bool known = signature.op < known_operator_count();
  const auto inputs = pointers(*this, signature.inputs), outputs = pointers(*this, signature.outputs);
  const AttributeMap& map = attributes(signature.attributes);
  const OperatorInfo* info = known ? &operator_info(signature.op) : nullptr;
  signature.execution = info ? info->execution : Execution::kOpaque;
  signature.symmetric = info && info->symmetric;
  signature.commutative = signature.symmetric && signature.inputs.size() == 2;
  signature.flops = count_flops(signature.op, map, inputs, outputs);
  signature.bytes = count_bytes(signature.op, inputs, outputs);
  signature.output_bytes = outputs.empty() || !outputs[0] ? 0.0 : static_cast<double>(outputs[0]->bytes());
  const auto [domain, op_type] = op_name(signature.op);
  Hash128 hash = fold(hash_bytes(domain, 1), hash_bytes(op_type, 2));
  hash = fold(hash, hash_bytes(bytes_of(map), 3));
  for (const TypeId output : signature.outputs) {
    hash = fold(hash, output == kNoType ? Hash128{5, 5} : type_hash(output));
  }
  signature.hash = hash;
  signatures_.push_back(std::move(signature));
  return static_cast<SignatureId>(signatures_.size() - 1);
}

SignatureId Context::given(OperatorId op, AttributesId attributes, std::span<const TypeId> inputs,
                           std::span<const TypeId> outputs) {
  const std::lock_guard guard(writing_);
  const auto inferred_id = inferred(op, attributes, inputs);
  if (inferred_id && std::ranges::equal(signature(*inferred_id).outputs, outputs)) return *inferred_id;
  const std::u32string& key = signature_key(op, attributes, inputs, outputs);
  if (const auto at = given_.find(key); at != given_.end()) return at->second;
  const std::u32string stored = key;
  const SignatureId id = add({.hash = {}, .op = op, .attributes = attributes, .inputs = {inputs.begin(), inputs.end()},
                              .outputs = {outputs.begin(), outputs.end()}});
  given_.emplace(stored, id);
  return id;
}

std::optional<SignatureId> Context::inferred(OperatorId op, AttributesId attribute_id, std::span<const TypeId> inputs) {
  const std::lock_guard guard(writing_);
  const std::u32string& key = signature_key(op, attribute_id, inputs, {});
  if (const auto at = inferred_.find(key); at != inferred_.end()) return at->second;
  const std::u32string stored = key;
  std::optional<SignatureId> id;
  const auto types = pointers(*this, inputs);
  const bool complete = std::none_of(types.begin(), types.end(), [](const TensorType* type) { return type == nullptr; });
  if (const auto outputs = complete ? infer_outputs(op, attributes(attribute_id), types) : std::nullopt) {
    std::vector<TypeId> output_ids;
    for (const TensorType& output : *outputs) output_ids.push_back(type(output));
    id = add({.hash = {}, .constant = inputs.empty(), .op = op, .attributes = attribute_id, .inputs = {inputs.begin(), inputs.end()},
              .outputs = std::move(output_ids)});
  }
  inferred_.emplace(stored, id);
  return id;
}

AttributesId Context::without(AttributesId id, const std::vector<std::string>& listed) {
  AttributeMap rest;
  for (const auto& entry : attributes(id)) {
    if (std::find(listed.begin(), listed.end(), entry.first) == listed.end()) rest.push_back(entry);
  }
  return attributes(rest);
}

}  // namespace rlflow
