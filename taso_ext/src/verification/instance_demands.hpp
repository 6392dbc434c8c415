// What the conditions of a rule ask of its weights and symbols, for random instances.
#pragma once

#include "rules/expression.hpp"
#include "verification/instance_dice.hpp"

namespace rlflow {

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

}  // namespace rlflow
