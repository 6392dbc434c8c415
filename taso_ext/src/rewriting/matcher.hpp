// The matcher, which finds the places of a graph where a rule applies.
#pragma once

#include "ir/graph.hpp"
#include "rewriting/recipe.hpp"
#include "rules/rule.hpp"

namespace rlflow {

struct Match {
  Hash128 key;              // of the rule and the origins of all that it binds: the same for one rewrite in any graph
  const Recipe* recipe = nullptr;
  double delta_ms = 0;      // change of the cost; NaN while unknown
  NodeId anchor = kNoNode;
  std::int32_t rule = 0;
  std::int32_t location = -1;
  std::uint32_t begin = 0;    // where its nodes and tensors, laid out as the recipe says, begin in MatchList::ids
};

struct MatchList {
  std::vector<Match> matches;
  std::vector<std::int32_t> ids;

  [[nodiscard]] NodeId root(const Match& match) const { return ids[match.begin + match.recipe->root]; }
  [[nodiscard]] std::span<const NodeId> nodes(const Match& match) const { return {ids.data() + match.begin, match.recipe->node_count}; }
  [[nodiscard]] std::span<const ValueId> values(const Match& match) const {
    return {ids.data() + match.begin + match.recipe->node_count, match.recipe->value_count};
  }
};

// The longest list that a starred name can stand for, and the most readers of a tensor among which rules look for
// partners. What exceeds the limit is not matched; without a limit, 10^5 readers of one tensor would be 5 * 10^9 pairs.
inline constexpr std::size_t kMostFollowed = 512;
// The most operators that are looked at for one rule from one anchor. k interchangeable operators have k! orders.
inline constexpr std::size_t kMostLookedAt = 1'000'000;

// Walks the graph along the plans of the rules and looks only at which operator reads which tensor. Signatures decide
// attributes, shapes, conditions and the target, once for all places that look alike (recipe.hpp). One thread at a time
// may use a matcher.
class Matcher {
 public:
  Matcher(std::shared_ptr<Context> context, std::shared_ptr<const RuleBook> book, std::shared_ptr<RecipeBook> recipes);

  // Append all legal rewrites with this anchor, in an order that depends only on what the rules can see. Of matches that
  // do the same, it is the first: of those that swap the operands of a sum which both sides read alike, and of those that
  // share one or another of several operators that compute the same. find_near() takes the rules that are not far and
  // whose radius is at least `distance`; find_far() takes the rules that are far.
  void find_near(const Graph& graph, NodeId anchor, std::int32_t distance, MatchList& out);
  void find_far(const Graph& graph, NodeId anchor, MatchList& out);

 private:
  // The rules whose anchor an operator of some signature may be.
  struct Rules {
    std::vector<std::int32_t> near, far;    // near: those of the greatest radius first
  };
  struct Neighbours {
    OperatorSet makers, readers;
  };
  // What a rule can ask about an anchor before it is matched there. An answer that takes time is computed when it is
  // asked for.
  class Neighbourhood {
   public:
    Neighbourhood(const Graph& graph, NodeId anchor);
    [[nodiscard]] bool suit(const Rule& rule);

   private:
    [[nodiscard]] Neighbours neighbours() const;

    const Graph& graph_;
    NodeId anchor_;
    std::uint32_t shared_ = 0;    // bit i: operand i has several readers
    bool commutative_;
    std::optional<Neighbours> neighbours_;
  };
  struct Span {
    std::uint32_t begin = 0, count = 0;
  };
  struct Element {
    NodeId node;
    std::uint32_t order;
  };
  struct Mark {    // the state to go back to when a branch is given up
    std::uint64_t bound;
    std::size_t nodes, items;
  };
  [[nodiscard]] const Rules& rules_at(SignatureId signature);
  void find(const Graph& graph, std::int32_t rule, NodeId anchor, MatchList& out);
  [[nodiscard]] bool may_be(std::size_t statement, SignatureId signature);
  [[nodiscard]] bool may_be_siblings(std::size_t statement, Role first, Role other);
  [[nodiscard]] bool usable(std::size_t statement, NodeId node);
  [[nodiscard]] bool is_matched(NodeId node) const;
  [[nodiscard]] bool is_bound(std::int32_t slot) const { return (bound_ >> slot) & 1U; }
  [[nodiscard]] Mark mark() const { return {bound_, elements_.size(), items_.size()}; }
  void go_back(const Mark& mark);
  [[nodiscard]] bool bind_value(std::int32_t slot, ValueId value);
  [[nodiscard]] bool bind_list(std::int32_t slot, std::span<const ValueId> values);
  [[nodiscard]] bool bind_outputs(const Statement& statement, NodeId node);
  [[nodiscard]] bool bind_operands(const Statement& statement, NodeId node, std::uint32_t order);
  [[nodiscard]] bool bind_element(const Statement& statement, NodeId node, std::uint32_t order, std::size_t index);
  [[nodiscard]] std::uint32_t orders(const Statement& statement, NodeId node) const;
  [[nodiscard]] std::span<const NodeId> followed(ValueId value) const;
  void step(std::size_t depth);
  void step_single(std::size_t depth);
  void step_mapped(std::size_t depth);
  void try_node(std::size_t depth, NodeId node);
  void try_group(std::size_t depth, std::span<const Element> group, bool order_known);
  void bind_group(std::size_t depth, std::span<const Element> group);
  [[nodiscard]] bool has_right_origin(const Slot& slot, ValueId value) const;
  [[nodiscard]] bool may_have_siblings(const Statement& statement, NodeId anchor) const;
  [[nodiscard]] std::vector<Element> siblings(std::size_t statement, NodeId first);
  [[nodiscard]] bool in_order() const;
  [[nodiscard]] bool comes_before(NodeId a, NodeId b) const;
  void accept();
  [[nodiscard]] bool stands_alone() const;
  void lay_out(MatchList& out) const;
  [[nodiscard]] const Recipe& recipe_of(std::span<const ValueId> values);
  void find_needs(const Recipe& recipe, std::span<const ValueId> values, std::span<const ValueRef> fresh, char* needs);
  [[nodiscard]] bool closes_cycle(const Recipe& recipe, std::span<const ValueId> values);
  [[nodiscard]] bool does_the_same_as_another(const MatchList& out, const Match& match);
  [[nodiscard]] Hash128 effect(const MatchList& out, const Match& match);

  std::shared_ptr<Context> context_;
  std::shared_ptr<const RuleBook> book_;
  std::shared_ptr<RecipeBook> recipes_;

  // Answers about signatures that are remembered; in `may_be_`, 0 means unknown, 1 no, 2 yes.
  std::vector<std::vector<char>> may_be_;    // [statement][signature]
  std::unordered_map<std::u32string, bool> siblings_;
  std::vector<std::unique_ptr<const Rules>> rules_at_;    // [signature]
  std::vector<std::pair<std::uint64_t, const Recipe*>> table_;    // open addressing; its size is a power of two
  std::size_t table_used_ = 0;

  // The match under construction.
  const Graph* graph_ = nullptr;
  const Rule* rule_ = nullptr;
  std::int32_t rule_index_ = 0;
  NodeId anchor_ = kNoNode;
  MatchList* out_ = nullptr;
  std::size_t first_ = 0;                  // position in `out_` of the first match of this rule and anchor
  std::uint64_t bound_ = 0;                // bits by value slot
  std::size_t looked_at_ = 0;              // operators looked at from this anchor
  std::array<ValueId, kMostNames> values_{};
  std::array<Span, kMostNames> lists_{};   // into items_
  std::vector<ValueId> items_, column_;
  std::vector<Span> nodes_;                // by source statement, into elements_
  std::vector<Element> elements_;
  std::vector<std::uint32_t> key_;
  std::vector<std::uint32_t> visited_;     // by node: the last walk that visited it
  std::uint32_t walk_ = 0;
  std::vector<NodeId> stack_;
  std::vector<ValueRef> fresh_, refs_;
  std::vector<char> needs_;
  std::vector<Hash128> made_, effects_;    // effects_: of the matches from `first_` on, as far as they were asked for
};

}  // namespace rlflow
