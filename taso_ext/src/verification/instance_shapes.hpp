// Random shapes for the variables of random instances of rules, and what conditions demand of weights and symbols.
#pragma once

#include "rules/expression.hpp"
#include "verification/instance_dice.hpp"

namespace rlflow {

// What the conditions of a rule demand of its weights and symbols.
class Demands {
 public:
  // Adds the reals that conditions mention to the dice. The target, too, asks for the contents whose value it uses.
  Demands(const Rule& rule, Dice& dice);

  // Returns the value slots of the weights whose content some condition asks for.
  [[nodiscard]] const std::vector<std::int32_t>& asked() const { return asked_; }
  // Returns the contents that conditions may demand of a weight, as far as they follow from what is known.
  [[nodiscard]] std::vector<Content> contents(std::int32_t slot, const Scope& known) const;
  // Returns numbers at and beside the bounds that conditions give the value of a weight, as far as they are known. The
  // dice return numbers beside literals anyway.
  [[nodiscard]] std::vector<double> bounds(std::int32_t slot, const Scope& known) const;
  // Returns, most of the time, what a condition says that a symbol equals.
  [[nodiscard]] std::optional<Quantity> wanted(std::int32_t symbol, const Scope& known);
  // Returns a multiple of `drawn` that is at least what the conditions demand of the symbol. Groups still divide it.
  [[nodiscard]] std::int64_t at_least(std::int32_t symbol, std::int64_t drawn) const;
  // Returns the element type that a condition demands of a tensor, or nothing.
  [[nodiscard]] std::optional<int> dtype(std::int32_t slot) const;
  // Returns whether a tensor of the type's shape can have its content.
  [[nodiscard]] static bool can_hold(const TensorType& type);

 private:
  // A demand for a pattern, or for the value of an expression.
  struct Demand {
    std::int32_t slot;
    Content::Kind kind;
    const Expression* value;
  };

  void collect(const Expression& condition);
  void ask(const Expression& expression);
  void collect_equal(const Expression& side, const Expression& other);
  void collect_bound(const Expression& side, const Expression& other);
  [[nodiscard]] bool is_weight(std::int32_t slot) const;

  const Rule& rule_;
  Dice& dice_;
  std::vector<Demand> demands_, wanted_;    // on weights by value slot, on symbols by symbol slot
  std::vector<Demand> bounds_;              // of weights by value slot
  std::vector<std::int64_t> least_;         // by symbol slot
  std::vector<std::int32_t> asked_;
  std::vector<std::pair<std::int32_t, int>> dtypes_;    // element types by value slot
};

// The symbols bound so far.
struct Bindings {
  std::vector<Quantity> symbols;
  std::vector<char> bound;

  void set(std::int32_t slot, Quantity value) {
    symbols[slot] = std::move(value);
    bound[slot] = 1;
  }
};

// What an operator that slides a window demands of the shape of an operand; few random shapes would fit.
struct Window {
  enum class Role : std::uint8_t { kNone, kInput, kKernel } role = Role::kNone;
  std::int64_t group = 1;
  Dims other{};    // shape of the kernel for the input, of the input for the kernel; empty if not known yet
};

class ShapeDraw {
 public:
  ShapeDraw(Dice& dice, const Demands& demands, Bindings& bindings) : dice_(dice), demands_(demands), bindings_(bindings) {}

  // Begins another graph.
  void begin();
  // Returns the shape of an element of a variable with a declared shape; binds its symbols. Returns nothing if one of
  // them is bound to something that does not stand there.
  std::optional<Dims> declared(const std::vector<Extent>& shape, std::size_t element, const Window& window);
  // Returns the shape of a variable that may have any shape; it tends to fit the known shapes.
  Dims open(const std::vector<Dims>& known);
  // Returns a shape that differs from another one in one extent, because parts of a concatenation may be unequal.
  Dims beside(const Dims& first);

 private:
  bool is_fit(const Extent& extent) const;
  Dims part_of_base();
  std::int64_t extent(std::size_t at, const Window& window);
  Dims middle(std::size_t at, const Window& window);

  Dice& dice_;
  const Demands& demands_;
  Bindings& bindings_;
  Dims base_;    // for shapes whose extents are alike
};

}  // namespace rlflow
