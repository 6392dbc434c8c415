// The equations that are worth keeping: none that is another one under new names, that says nothing, or that others
// imply.
#pragma once

#include "generator/enumeration.hpp"

namespace rlflow::generator {

// An expression over numbered variables. Operands stand before their readers; the last node is the whole expression.
struct Tree {
  struct Node {
    std::uint32_t op = kLeaf;
    std::int32_t a = -1, b = -1;    // nodes; for a leaf, a is a variable's number, or -1 - content for a constant
    TypeId type = 0;                // in the grid in which it was found
  };
  std::vector<Node> nodes;
};

// An equation that stands for all its instances.
struct Law {
  Tree left, right;
  int variables = 0;
  bool own = true;    // found in this grid, not brought from another one
};

struct BasisCounts {
  std::uint64_t after_renaming = 0, after_degenerate = 0, after_implied = 0, after_common = 0;    // equations left
};

class Basis {
 public:
  explicit Basis(TermStore& store) : store_(store) {}

  // Adds a law of another grid. It prunes equations; its `own` is false.
  void bring(Law law);
  // Notes an equation, unless the same one with other names was noted.
  void note(const Equation& equation);
  // Prunes the noted equations, smaller ones first; the rest become laws.
  void settle();

  [[nodiscard]] const std::vector<Law>& laws() const { return laws_; }
  [[nodiscard]] const BasisCounts& counts() const { return counts_; }

 private:
  using Tokens = std::vector<std::uint32_t>;
  struct Spelling;
  struct Side;

  std::uint64_t skeleton(TermId id);
  std::uint64_t skeleton(Code code);
  std::uint64_t name_of(const Equation& equation);
  void add_law(Law law);
  [[nodiscard]] bool degenerate(const Equation& equation) const;
  [[nodiscard]] bool implied(const Equation& equation);
  [[nodiscard]] bool rewrites(const Law& law, bool forward, const Equation& equation);
  [[nodiscard]] std::optional<Code> instance(const Tree& tree, const std::vector<TermId>& bound) const;
  [[nodiscard]] TermId constant(Leaf::Content content) const;
  std::optional<Law> generalised(const Equation& equation);

  TermStore& store_;
  BasisCounts counts_;
  std::vector<std::uint64_t> skeletons_;
  std::unordered_map<std::uint64_t, std::size_t> names_;    // to positions in `noted_`, or kDegenerate
  std::vector<Equation> noted_;
  std::vector<Law> laws_;
  std::unordered_map<std::uint64_t, std::vector<std::pair<std::uint32_t, bool>>> index_;    // by root and its operands
};

}  // namespace rlflow::generator
