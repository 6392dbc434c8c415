// Random shapes for the variables of random instances of rules.
#pragma once

#include "verification/instance_demands.hpp"

namespace rlflow {

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
