#include "generator/basis.hpp"

#include <algorithm>
#include <tuple>

namespace rlflow::generator {
namespace {

constexpr std::uint32_t kAnything = 0xffe;    // an operand of a law that is a variable
constexpr std::uint32_t kConstant = 0xffd;
constexpr int kMostTies = 8;    // symmetric operators with operands that look alike, for which all orders are tried

constexpr std::size_t kDegenerate = ~std::size_t{0};    // in place of the position of a noted equation

using Content = Leaf::Content;

std::uint64_t index_key(std::uint32_t root, std::uint32_t a, std::uint32_t b) { return std::uint64_t{root} << 32 | a << 16 | b; }

void collect_leaves(const TermStore& store, Code code, std::vector<TermId>& out) {
  if (code.is_leaf()) {
    if (store.grid().leaves[code.a()].content != Content::kVariable) return;
    if (std::find(out.begin(), out.end(), code.a()) == out.end()) out.push_back(code.a());
    return;
  }
  collect_leaves(store, store.term(code.a()).code, out);
  if (code.b() != kNoTerm) collect_leaves(store, store.term(code.b()).code, out);
}

bool contains(const TermStore& store, Code whole, Code part) {
  if (whole == part) return true;
  if (whole.is_leaf()) return false;
  return contains(store, store.term(whole.a()).code, part) || (whole.b() != kNoTerm && contains(store, store.term(whole.b()).code, part));
}

// Returns the number of operators of an expression written out: a shared one counts as often as it is read.
int written_size(const TermStore& store, Code code) {
  if (code.is_leaf()) return 0;
  return 1 + written_size(store, store.term(code.a()).code) + (code.b() == kNoTerm ? 0 : written_size(store, store.term(code.b()).code));
}

bool covers(const std::vector<TermId>& all, const std::vector<TermId>& some) {
  return std::all_of(some.begin(), some.end(), [&](TermId id) { return std::find(all.begin(), all.end(), id) != all.end(); });
}

// Collects the proper operands that are operators, larger ones first.
void collect_operands(const TermStore& store, Code code, std::vector<TermId>& out) {
  if (code.is_leaf()) return;
  for (const TermId id : {code.a(), code.b()}) {
    if (id == kNoTerm || store.term(id).code.is_leaf()) continue;
    if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
  }
  for (const TermId id : {code.a(), code.b()}) {
    if (id != kNoTerm) collect_operands(store, store.term(id).code, out);
  }
}

}  // namespace

std::uint64_t Basis::skeleton(TermId id) {
  while (skeletons_.size() <= id) skeletons_.push_back(skeleton(store_.term(static_cast<TermId>(skeletons_.size())).code));
  return skeletons_[id];
}

// Returns a hash that is equal for expressions that differ in their variables alone.
std::uint64_t Basis::skeleton(Code code) {
  if (code.is_leaf()) return mix(store_.term(code.a()).type ^ mix(static_cast<std::uint64_t>(store_.grid().leaves[code.a()].content)));
  const std::uint64_t a = skeleton(code.a()), b = code.b() == kNoTerm ? 1 : skeleton(code.b());
  const bool symmetric = store_.grid().operators[code.op()].symmetric;
  return mix(code.op() ^ (symmetric ? mix(a) + mix(b) : mix(mix(a) ^ b)));
}

// Writes both sides of an equation as tokens, with variables numbered as they come.
struct Basis::Spelling {
  Basis& basis;
  std::uint32_t order = 0;    // a bit for each tie: whether its operands change places
  int ties = 0;
  std::vector<TermId> names{};
  Tokens tokens{};

  void spell(Code code) {
    if (code.is_leaf()) return spell_leaf(code.a());
    TermId a = code.a(), b = code.b();
    tokens.push_back(code.op() << 16);
    if (b != kNoTerm && basis.store_.grid().operators[code.op()].symmetric && a != b) {
      const std::uint64_t of_a = basis.skeleton(a), of_b = basis.skeleton(b);
      if (of_a > of_b || (of_a == of_b && ties < kMostTies && (order >> ties++ & 1))) std::swap(a, b);
    }
    spell(basis.store_.term(a).code);
    if (b != kNoTerm) spell(basis.store_.term(b).code);
  }

  void spell_leaf(TermId id) {
    const Content content = basis.store_.grid().leaves[id].content;
    std::uint32_t name = 0x800 | static_cast<std::uint32_t>(content);
    if (content == Content::kVariable) {
      const auto at = std::find(names.begin(), names.end(), id);
      name = static_cast<std::uint32_t>(at - names.begin());
      if (at == names.end()) names.push_back(id);
    }
    tokens.push_back(kLeaf << 16 | name);
    tokens.push_back(basis.store_.term(id).type);
  }
};

// Returns a hash that is equal for equations that differ only in the names of variables and the order of symmetric
// operands.
std::uint64_t Basis::name_of(const Equation& equation) {
  Tokens best;
  const auto spell = [&](Code first, Code second) {
    int ties = 0;
    for (std::uint32_t order = 0; order < 1u << ties || order == 0; ++order) {
      Spelling spelling{.basis = *this, .order = order};
      spelling.spell(first);
      spelling.tokens.push_back(~0u);
      spelling.spell(second);
      ties = spelling.ties;
      if (best.empty() || spelling.tokens < best) best = std::move(spelling.tokens);
    }
  };
  spell(equation.left, equation.right);
  if (store_.level(equation.left) == store_.level(equation.right)) spell(equation.right, equation.left);
  std::uint64_t name = 0;
  for (const std::uint32_t token : best) name = mix(name ^ token);
  return name;
}

void Basis::note(const Equation& equation) {
  const auto [at, fresh] = names_.try_emplace(name_of(equation), noted_.size());
  if (!fresh) {
    if (at->second == kDegenerate) return;
    Equation& first = noted_[at->second];    // fingerprints decide which one comes first, but not which one stays
    if (std::tie(equation.left, equation.right) < std::tie(first.left, first.right)) first = equation;
    return;
  }
  ++counts_.after_renaming;
  if (degenerate(equation)) {
    at->second = kDegenerate;
    return;
  }
  ++counts_.after_degenerate;
  noted_.push_back(equation);
}

// Returns whether neither side can be rewritten to the other: both have variables of their own, or the only side that
// could be rewritten is a bare variable or stands within the other.
bool Basis::degenerate(const Equation& equation) const {
  std::vector<TermId> left, right;
  collect_leaves(store_, equation.left, left);
  collect_leaves(store_, equation.right, right);
  if (covers(left, right)) return false;
  return !covers(right, left) || equation.right.is_leaf() || contains(store_, equation.left, equation.right);
}

void Basis::settle() {
  struct Ranked {
    int size, variables;
    Equation equation;
  };
  std::vector<Ranked> ranked;
  for (const Equation& equation : noted_) {
    std::vector<TermId> leaves;
    collect_leaves(store_, equation.left, leaves);
    ranked.push_back({written_size(store_, equation.left) + written_size(store_, equation.right), static_cast<int>(leaves.size()), equation});
  }
  noted_.clear();
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    if (a.size != b.size) return a.size < b.size;
    if (a.variables != b.variables) return a.variables > b.variables;    // instances follow what they are instances of
    return a.equation.left != b.equation.left ? a.equation.left < b.equation.left : a.equation.right < b.equation.right;
  });
  for (const Ranked& each : ranked) {
    if (implied(each.equation)) continue;
    ++counts_.after_implied;
    if (auto law = generalised(each.equation)) {
      ++counts_.after_common;
      add_law(std::move(*law));
    }
  }
}

void Basis::bring(Law law) {
  law.own = false;
  add_law(std::move(law));
}

void Basis::add_law(Law law) {
  const auto number = static_cast<std::uint32_t>(laws_.size());
  for (const bool forward : {true, false}) {
    const Tree& tree = forward ? law.left : law.right;
    const Tree::Node& root = tree.nodes.back();
    if (root.op == kLeaf) continue;
    const auto kind = [&](std::int32_t node) {
      if (node < 0) return kAnything;
      const Tree::Node& operand = tree.nodes[static_cast<std::size_t>(node)];
      return operand.op != kLeaf ? operand.op : operand.a < 0 ? kConstant : kAnything;
    };
    const std::uint32_t a = kind(root.a), b = kind(root.b);
    index_[index_key(root.op, a, b)].emplace_back(number, forward);
    if (a != b && store_.grid().operators[root.op].symmetric) index_[index_key(root.op, b, a)].emplace_back(number, forward);
  }
  laws_.push_back(std::move(law));
}

bool Basis::implied(const Equation& equation) {
  const auto kinds = [&](TermId id) {
    std::vector<std::uint32_t> all = {kAnything};
    if (id == kNoTerm) return all;
    if (store_.term(id).constant) all.push_back(kConstant);
    for (const Code code : store_.members(id)) {
      if (!code.is_leaf() && std::find(all.begin(), all.end(), code.op()) == all.end()) all.push_back(code.op());
    }
    return all;
  };
  for (const std::uint32_t a : kinds(equation.left.a())) {
    for (const std::uint32_t b : kinds(equation.left.b())) {
      const auto at = index_.find(index_key(equation.left.op(), a, b));
      if (at == index_.end()) continue;
      auto& laws = at->second;
      for (std::size_t i = 0; i < laws.size(); ++i) {
        if (!rewrites(laws_[laws[i].first], laws[i].second, equation)) continue;
        std::swap(laws[i], laws[i / 2]);    // few laws imply most equations, so they move to the front
        return true;
      }
    }
  }
  return false;
}

// Finds the ways in which a tree matches an expression. An operand may be any expression of its class.
struct Basis::Side {
  using Found = std::function<bool()>;
  const TermStore& store;
  const Tree& tree;
  std::vector<TermId> bound;

  bool match_root(Code code, const Found& found) { return match_code(tree.nodes.back(), code, found); }

 private:
  bool match(std::int32_t node, TermId id, const Found& found) {
    const Tree::Node& pattern = tree.nodes[static_cast<std::size_t>(node)];
    if (pattern.op == kLeaf) return match_leaf(pattern, id, found);
    const std::vector<Code>& members = store.members(id);
    return std::any_of(members.begin(), members.end(), [&](Code code) { return match_code(pattern, code, found); });
  }

  bool match_code(const Tree::Node& pattern, Code code, const Found& found) {
    if (code.op() != pattern.op || (pattern.b < 0) != (code.b() == kNoTerm)) return false;
    if (match_operands(pattern, code.a(), code.b(), found)) return true;
    const bool symmetric = pattern.b >= 0 && code.a() != code.b() && store.grid().operators[pattern.op].symmetric;
    return symmetric && match_operands(pattern, code.b(), code.a(), found);
  }

  bool match_operands(const Tree::Node& pattern, TermId a, TermId b, const Found& found) {
    if (pattern.b < 0) return match(pattern.a, a, found);
    return match(pattern.a, a, [&] { return match(pattern.b, b, found); });
  }

  bool match_leaf(const Tree::Node& pattern, TermId id, const Found& found) {
    if (pattern.a < 0) {
      const Code code = store.term(id).code;
      return code.is_leaf() && static_cast<std::int32_t>(store.grid().leaves[code.a()].content) == -1 - pattern.a && found();
    }
    TermId& place = bound[static_cast<std::size_t>(pattern.a)];
    if (place == id) return found();
    if (place != kNoTerm) return false;
    place = id;
    if (found()) return true;
    place = kNoTerm;
    return false;
  }
};

// Returns whether the law turns the left side into the right one, or into a smaller expression of the same class.
bool Basis::rewrites(const Law& law, bool forward, const Equation& equation) {
  const Tree &from = forward ? law.left : law.right, &to = forward ? law.right : law.left;
  Side side{store_, from, std::vector<TermId>(static_cast<std::size_t>(law.variables), kNoTerm)};
  const int level = store_.level(equation.left);
  std::vector<Element> scratch;
  return side.match_root(equation.left, [&] {
    const auto code = instance(to, side.bound);
    if (!code) return false;
    if (*code == equation.right) return true;
    if (code->is_leaf()) return false;
    const int reached = store_.level(*code);
    if (reached > level || (reached == level && !(*code < equation.left))) return false;
    return store_.evaluate(*code, scratch) == equation.fingerprint;
  });
}

// Returns the first constant of a content; grids have each content in one shape.
TermId Basis::constant(Leaf::Content content) const {
  const auto& leaves = store_.grid().leaves;
  const auto at = std::find_if(leaves.begin(), leaves.end(), [&](const Leaf& leaf) { return leaf.content == content; });
  return at == leaves.end() ? kNoTerm : static_cast<TermId>(at - leaves.begin());
}

// Returns the expression that a tree becomes, its operands replaced by the terms of their classes; nothing if it has no
// such operand.
std::optional<Code> Basis::instance(const Tree& tree, const std::vector<TermId>& bound) const {
  std::vector<TermId> made(tree.nodes.size(), kNoTerm);
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const Tree::Node& node = tree.nodes[i];
    const bool last = i + 1 == tree.nodes.size();
    if (node.op == kLeaf) {
      made[i] = node.a < 0 ? constant(static_cast<Content>(-1 - node.a)) : bound[static_cast<std::size_t>(node.a)];
      if (made[i] == kNoTerm) return std::nullopt;
      if (last) return store_.term(made[i]).code;
      continue;
    }
    TermId a = made[static_cast<std::size_t>(node.a)], b = node.b < 0 ? kNoTerm : made[static_cast<std::size_t>(node.b)];
    if (b != kNoTerm && a > b && store_.grid().operators[node.op].symmetric) std::swap(a, b);
    const Code code = Code::of(node.op, a, b);
    const auto known = store_.known(code);
    if (last) return known ? store_.term(*known).code : code;
    if (!known) return std::nullopt;
    made[i] = *known;
  }
  return std::nullopt;
}

namespace {

// Evaluates expressions in which some terms are replaced by random tensors of their shapes.
class Generaliser {
 public:
  explicit Generaliser(TermStore& store) : store_(store) {}

  // Makes a term a variable if both sides stay equal.
  void replace_if_equal(Code left, Code right, TermId replaced) {
    add(replaced);
    std::vector<Element> a, b;
    if (!evaluate(left, kNoTerm, a) || !evaluate(right, kNoTerm, b) || a != b) fresh_.pop_back();
  }

  std::int32_t build(Code code, TermId id, Tree& tree, std::vector<TermId>& variables) const {
    const bool variable = is_fresh(id) || (code.is_leaf() && store_.grid().leaves[code.a()].content == Content::kVariable);
    if (variable || code.is_leaf()) {
      const TypeId type = store_.term(id).type;
      tree.nodes.push_back({.op = kLeaf, .a = variable ? number(id, variables) : -1 - static_cast<std::int32_t>(store_.grid().leaves[code.a()].content), .b = -1, .type = type});
    } else {
      const TypeId type = id == kNoTerm ? store_.type_of(code) : store_.term(id).type;
      const std::int32_t a = build(store_.term(code.a()).code, code.a(), tree, variables);
      const std::int32_t b = code.b() == kNoTerm ? -1 : build(store_.term(code.b()).code, code.b(), tree, variables);
      tree.nodes.push_back({.op = code.op(), .a = a, .b = b, .type = type});
    }
    return static_cast<std::int32_t>(tree.nodes.size()) - 1;
  }

  bool changed() const { return !fresh_.empty(); }

 private:
  static std::int32_t number(TermId id, std::vector<TermId>& variables) {
    const auto at = std::find(variables.begin(), variables.end(), id);
    const auto number = static_cast<std::int32_t>(at - variables.begin());
    if (at == variables.end()) variables.push_back(id);
    return number;
  }

  bool is_fresh(TermId id) const {
    return std::any_of(fresh_.begin(), fresh_.end(), [&](const auto& each) { return each.first == id; });
  }

  void add(TermId id) {
    Leaf leaf{.name = "", .content = Content::kVariable, .shapes = store_.shapes(store_.term(id).type)};
    fresh_.emplace_back(id, draw(leaf, mix(store_.grid().seed ^ mix(0x51ed2701 + fresh_.size()))));
  }

  bool evaluate(Code code, TermId id, std::vector<Element>& out) {
    for (const auto& [term, values] : fresh_) {
      if (term == id) return out = values, true;
    }
    if (code.is_leaf()) {
      const Term& leaf = store_.term(code.a());
      out.assign(leaf.values, leaf.values + kPrimes * store_.elements(leaf.type));
      return true;
    }
    std::vector<Element> a, b;
    if (!evaluate(store_.term(code.a()).code, code.a(), a)) return false;
    if (code.b() != kNoTerm && !evaluate(store_.term(code.b()).code, code.b(), b)) return false;
    const Plan* plan = store_.plan(code.op(), store_.type_of(code.a()), store_.type_of(code.b()));
    out.resize(kPrimes * plan->elements);
    Inverse inverse;
    const std::vector<Element>& right = code.b() == kNoTerm ? a : b;
    return generator::evaluate(*plan, a.data(), a.size() / kPrimes, right.data(), right.size() / kPrimes, out.data(), inverse);
  }

  TermStore& store_;
  std::vector<std::pair<TermId, std::vector<Element>>> fresh_;
};

}  // namespace

// Returns the equation in which every operand that both sides share, and whose content does not matter, is a variable.
// Returns nothing if an equation that was generalised before is the same.
std::optional<Law> Basis::generalised(const Equation& equation) {
  std::vector<TermId> of_left, of_right;
  collect_operands(store_, equation.left, of_left);
  collect_operands(store_, equation.right, of_right);
  Generaliser generaliser(store_);
  for (const TermId id : of_left) {
    const bool shared = std::find(of_right.begin(), of_right.end(), id) != of_right.end();
    if (shared) generaliser.replace_if_equal(equation.left, equation.right, id);
  }
  Law law;
  std::vector<TermId> variables;
  generaliser.build(equation.left, kNoTerm, law.left, variables);
  const Code right = equation.right;
  generaliser.build(right, right.is_leaf() ? right.a() : kNoTerm, law.right, variables);
  law.variables = static_cast<int>(variables.size());
  if (generaliser.changed()) {
    std::uint64_t name = 1;
    for (const Tree* tree : {&law.left, &law.right}) {
      for (const Tree::Node& node : tree->nodes) {
        name = mix(mix(mix(name ^ node.op) ^ static_cast<std::uint64_t>(node.a + 64)) ^ static_cast<std::uint64_t>(node.b + 64));
      }
    }
    if (!names_.try_emplace(name, kDegenerate).second) return std::nullopt;
  }
  return law;
}

}  // namespace rlflow::generator
