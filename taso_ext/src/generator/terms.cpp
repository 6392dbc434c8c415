#include "generator/terms.hpp"

#include <algorithm>

namespace rlflow::generator {
namespace {

constexpr std::size_t kBlock = 1 << 18;    // elements of a block of memory

std::uint64_t plan_key(std::uint32_t op, TypeId a, TypeId b) { return mix(mix(mix(op) ^ a) ^ b); }

}  // namespace

bool Nodes::contains(std::uint32_t id) const { return std::find(ids.begin(), ids.begin() + count, id) != ids.begin() + count; }

int union_size(const Nodes& a, const Nodes& b) {
  int size = a.count;
  for (std::uint8_t i = 0; i < b.count; ++i) size += !a.contains(b.ids[i]);
  return size;
}

Nodes union_of(const Nodes& a, const Nodes& b, std::uint32_t added) {
  Nodes all = a;
  const auto insert = [&](std::uint32_t id) {
    if (all.contains(id) || all.count == kMostLevels) return;
    std::uint8_t at = all.count++;
    for (; at > 0 && all.ids[at - 1] > id; --at) all.ids[at] = all.ids[at - 1];
    all.ids[at] = id;
  };
  for (std::uint8_t i = 0; i < b.count; ++i) insert(b.ids[i]);
  insert(added);
  return all;
}

std::uint64_t key_of(const Operator& op, std::uint64_t seed) {
  std::uint64_t key = mix(seed);
  for (const char c : op.name) key = mix(key ^ static_cast<unsigned char>(c));
  return key;
}

TermStore::TermStore(const Grid& grid) : grid_(grid) {
  for (std::size_t i = 0; i < grid.leaves.size(); ++i) {
    const Leaf& leaf = grid.leaves[i];
    const auto id = static_cast<TermId>(terms_.size());
    terms_.push_back({.code = Code::of(kLeaf, id, kNoTerm), .type = intern(leaf.shapes), .level = 0, .linear = true,
                      .constant = leaf.content != Leaf::Content::kVariable, .nodes = {}, .values = keep(draw(leaf, mix(grid.seed ^ mix(i))))});
    members_.push_back({terms_.back().code});
  }
}

TypeId TermStore::intern(const Shapes& shapes) {
  const std::uint64_t key = key_of(shapes);
  const auto [begin, end] = type_ids_.equal_range(key);
  for (auto at = begin; at != end; ++at) {
    if (types_[at->second] == shapes) return at->second;
  }
  const auto id = static_cast<TypeId>(types_.size());
  types_.push_back(shapes);
  std::size_t elements = 0;
  for (const Dims& dims : shapes) elements += static_cast<std::size_t>(elements_of(dims));
  elements_.push_back(elements);
  type_ids_.emplace(key, id);
  return id;
}

const Element* TermStore::keep(const std::vector<Element>& values) {
  if (blocks_.empty() || blocks_.back().size() + values.size() > kBlock) {
    blocks_.emplace_back();
    blocks_.back().reserve(std::max(kBlock, values.size()));
  }
  auto& block = blocks_.back();
  block.insert(block.end(), values.begin(), values.end());
  return block.data() + block.size() - values.size();
}

std::size_t TermStore::bytes() const { return blocks_.size() * kBlock * sizeof(Element) + terms_.size() * sizeof(Term) + classes_.size() * 40; }

const Plan* TermStore::plan(std::uint32_t op, TypeId a, TypeId b) {
  const auto [at, fresh] = plans_.try_emplace(plan_key(op, a, b));
  if (fresh) {
    const Operator& made = grid_.operators[op];
    const Shapes* right = b == kNoTerm ? nullptr : &types_[b];
    if ((made.operands == 2) == (right != nullptr)) at->second = make_plan(made, key_of(made, grid_.seed), types_[a], right);
  }
  return at->second ? &*at->second : nullptr;
}

int TermStore::level(Code code) const {
  if (code.is_leaf()) return 0;
  if (code.b() == kNoTerm) return terms_[code.a()].nodes.count + 1;
  return union_size(terms_[code.a()].nodes, terms_[code.b()].nodes) + 1;
}

bool TermStore::linear(Code code) const {
  if (code.is_leaf()) return true;
  return grid_.operators[code.op()].linear && terms_[code.a()].linear && (code.b() == kNoTerm || terms_[code.b()].linear);
}

TypeId TermStore::type_of(Code code) { return intern(plan(code.op(), type_of(code.a()), type_of(code.b()))->shapes); }

std::uint64_t TermStore::evaluate(Code code, std::vector<Element>& out) {
  const Plan* made = plan(code.op(), type_of(code.a()), type_of(code.b()));
  if (!made) return 0;
  const Term& a = terms_[code.a()];
  const Term& b = code.b() == kNoTerm ? a : terms_[code.b()];
  out.resize(kPrimes * made->elements);
  inverse_.of = nullptr;
  if (!generator::evaluate(*made, a.values, elements_[a.type], b.values, elements_[b.type], out.data(), inverse_)) return 0;
  return fingerprint(*made, out.data());
}

TermId TermStore::add(Code code) {
  std::vector<Element> values;
  evaluate(code, values);
  const std::uint64_t applied = Code::of(static_cast<std::uint32_t>(grid_.operators[code.op()].node), code.a(), code.b()).bits;
  const std::uint32_t node = node_ids_.try_emplace(applied, static_cast<std::uint32_t>(node_ids_.size())).first->second;
  static const Nodes kNone;
  const Nodes& right = code.b() == kNoTerm ? kNone : terms_[code.b()].nodes;
  const Nodes nodes = union_of(terms_[code.a()].nodes, right, node);
  terms_.push_back({.code = code, .type = type_of(code), .level = nodes.count, .linear = linear(code), .constant = false,
                    .nodes = nodes, .values = keep(values)});
  members_.emplace_back();
  return static_cast<TermId>(terms_.size() - 1);
}

void TermStore::remember(Code code, TermId term) {
  if (classes_.emplace(code.bits, term).second) members_[term].push_back(code);
}

std::optional<TermId> TermStore::known(Code code) const {
  if (code.is_leaf()) return code.a();
  const auto at = classes_.find(code.bits);
  return at == classes_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace rlflow::generator
