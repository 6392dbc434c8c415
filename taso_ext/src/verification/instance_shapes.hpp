// Random shapes for the variables of random instances of rules, and what conditions ask of weights and symbols.
#pragma once

#include "rules/expression.hpp"
#include "verification/instance_dice.hpp"

namespace rlflow {

// What the conditions of a rule ask of its weights and symbols.
class Demands {
 public:
  // Reals that conditions mention are added to the dice.
  Demands(const Rule& rule, Dice& dice);

  // Weights whose content some condition asks for, by value slot.
  [[nodiscard]] const std::vector<std::int32_t>& asked() const { return asked_; }
  // Contents that a weight may have to have, as far as they follow from what is known.
  [[nodiscard]] std::vector<Content> contents(std::int32_t slot, const Scope& known) const;
  // Sometimes what a condition says that a symbol equals.
  [[nodiscard]] std::optional<Quantity> wanted(std::int32_t symbol, const Scope& known);
  // A multiple of what was drawn, at least what the conditions ask of the symbol: groups still divide it.
  [[nodiscard]] std::int64_t at_least(std::int32_t symbol, std::int64_t drawn) const;
  // Whether a tensor of its dims can have the content.
  [[nodiscard]] static bool can_hold(const TensorType& type);

 private:
  // A pattern, or the value of an expression.
  struct Demand {
    std::int32_t slot;
    Content::Kind kind;
    const Expression* value;
  };

  void collect(const Expression& condition);
  void collect_equal(const Expression& side, const Expression& other);
  [[nodiscard]] bool is_weight(std::int32_t slot) const;

  const Rule& rule_;
  Dice& dice_;
  std::vector<Demand> demands_, wanted_;    // of weights by value slot, of symbols by symbol slot
  std::vector<std::int64_t> least_;         // by symbol slot
  std::vector<std::int32_t> asked_;
};

// Symbols bound so far.
struct Bindings {
  std::vector<Quantity> symbols;
  std::vector<char> bound;

  void set(std::int32_t slot, Quantity value) {
    symbols[slot] = std::move(value);
    bound[slot] = 1;
  }
};

// What an operator that slides a window asks of the shape of an operand: few random ones would fit.
struct Window {
  enum class Role : std::uint8_t { kNone, kInput, kKernel } role = Role::kNone;
  std::int64_t group = 1;
  Dims other{};    // of the kernel for the input, of the input for the kernel; empty where not known yet
};

class ShapeDraw {
 public:
  ShapeDraw(Dice& dice, const Demands& demands, Bindings& bindings) : dice_(dice), demands_(demands), bindings_(bindings) {}

  // Another graph is drawn.
  void begin();
  // Of the element of a variable of declared shape; binds its symbols.
  Dims declared(const std::vector<Extent>& shape, std::size_t element, const Window& window);
  // Of a variable of any shape; tends to fit to what is there.
  Dims open(const std::vector<Dims>& known);
  // Like another but for one extent: parts of a concatenation may be unequal.
  Dims beside(const Dims& first);

 private:
  Dims part_of_base();
  std::int64_t extent(std::size_t at, const Window& window);
  Dims middle(std::size_t at, const Window& window);

  Dice& dice_;
  const Demands& demands_;
  Bindings& bindings_;
  Dims base_;    // where extents are alike
};

}  // namespace rlflow
