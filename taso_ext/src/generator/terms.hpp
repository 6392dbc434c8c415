// Expressions by class: each known class of equal expressions is one term, whose operands are terms.
#pragma once

#include <deque>
#include <unordered_map>

#include "generator/plan.hpp"

namespace rlflow::generator {

using TermId = std::uint32_t;
using TypeId = std::uint32_t;

inline constexpr int kMostLevels = 4;
inline constexpr TermId kNoTerm = (1u << 26) - 1;    // also the missing second operand

// An operator applied to terms, in one word: 12 bits for the operator, 26 for each operand. A leaf is kLeaf and its
// term.
struct Code {
  std::uint64_t bits = 0;

  [[nodiscard]] static Code of(std::uint32_t op, TermId a, TermId b) { return {std::uint64_t{op} << 52 | std::uint64_t{a} << 26 | b}; }
  [[nodiscard]] std::uint32_t op() const { return static_cast<std::uint32_t>(bits >> 52); }
  [[nodiscard]] TermId a() const { return static_cast<TermId>(bits >> 26) & kNoTerm; }
  [[nodiscard]] TermId b() const { return static_cast<TermId>(bits) & kNoTerm; }
  [[nodiscard]] bool is_leaf() const { return op() == kLeaf; }
  [[nodiscard]] auto operator<=>(const Code&) const = default;
};

// The operators of an expression in ascending order. One that occurs twice counts once. Ports of one Split are one
// operator.
struct Nodes {
  std::array<std::uint32_t, kMostLevels> ids{};
  std::uint8_t count = 0;

  [[nodiscard]] bool contains(std::uint32_t id) const;
  [[nodiscard]] bool operator==(const Nodes&) const = default;
};
// union_size() returns the number of operators of both together. union_of() returns these operators and `added`, but at
// most kMostLevels of them.
[[nodiscard]] int union_size(const Nodes& a, const Nodes& b);
[[nodiscard]] Nodes union_of(const Nodes& a, const Nodes& b, std::uint32_t added);

struct Term {
  Code code;
  TypeId type = 0;
  std::uint8_t level = 0;    // number of operators
  bool linear = true;        // has linear operators alone
  bool constant = false;     // a leaf that is no variable
  Nodes nodes;
  const Element* values = nullptr;
};

// All terms with their elements.
class TermStore {
 public:
  explicit TermStore(const Grid& grid);

  [[nodiscard]] const Term& term(TermId id) const { return terms_[id]; }
  [[nodiscard]] TermId size() const { return static_cast<TermId>(terms_.size()); }
  [[nodiscard]] const Shapes& shapes(TypeId type) const { return types_[type]; }
  [[nodiscard]] std::size_t elements(TypeId type) const { return elements_[type]; }
  [[nodiscard]] const Grid& grid() const { return grid_; }
  [[nodiscard]] std::size_t bytes() const;

  // Returns the plan of an operator at operand types, or nullptr if they do not fit. Keeps it for the next time.
  const Plan* plan(std::uint32_t op, TypeId a, TypeId b);
  // Return the number of operators of an expression whose operands are terms, and whether all of these are linear.
  [[nodiscard]] int level(Code code) const;
  [[nodiscard]] bool linear(Code code) const;
  [[nodiscard]] TypeId type_of(TermId id) const { return id == kNoTerm ? kNoTerm : terms_[id].type; }
  // Returns the type of an expression that has a plan.
  TypeId type_of(Code code);
  // Writes the elements of an expression to `out` and returns their fingerprint, or 0 if the expression has no value.
  std::uint64_t evaluate(Code code, std::vector<Element>& out);

  // Adds a term; evaluates it and keeps its elements.
  TermId add(Code code);
  // Returns the class of an expression that was enumerated, or nothing.
  [[nodiscard]] std::optional<TermId> known(Code code) const;
  void remember(Code code, TermId term);
  // Returns all expressions of a class that were enumerated before the last level.
  [[nodiscard]] const std::vector<Code>& members(TermId id) const { return members_[id]; }

 private:
  TypeId intern(const Shapes& shapes);
  const Element* keep(const std::vector<Element>& values);

  const Grid& grid_;
  std::vector<Term> terms_;
  std::vector<Shapes> types_;
  std::vector<std::size_t> elements_;
  std::unordered_multimap<std::uint64_t, TypeId> type_ids_;
  std::unordered_map<std::uint64_t, std::optional<Plan>> plans_;
  std::unordered_map<std::uint64_t, std::uint32_t> node_ids_;
  std::unordered_map<std::uint64_t, TermId> classes_;
  std::vector<std::vector<Code>> members_;
  std::deque<std::vector<Element>> blocks_;
  Inverse inverse_;
};

// Returns the key of an operator's random function; operators of equal names have equal keys in all grids.
[[nodiscard]] std::uint64_t key_of(const Operator& op, std::uint64_t seed);

}  // namespace rlflow::generator
