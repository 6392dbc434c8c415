#include "rewriting/matcher.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace rlflow {

Matcher::Matcher(std::shared_ptr<Context> context, std::shared_ptr<const RuleBook> book, std::shared_ptr<RecipeBook> recipes)
    : context_(std::move(context)), book_(std::move(book)), recipes_(std::move(recipes)), may_be_(book_->statements), table_(1024) {}

const Matcher::Rules& Matcher::rules_at(SignatureId signature) {
  if (signature >= rules_at_.size()) rules_at_.resize(signature + 1);
  if (!rules_at_[signature]) {
    auto rules = std::make_unique<Rules>();
    const OperatorId op = context_->signature(signature).op;
    if (op < known_operator_count()) {
      for (const std::int32_t r : book_->by_anchor[op]) {
        const Rule& rule = book_->rules[r];
        if (may_be(book_->statement_begin[r] + rule.plan[0], signature)) (rule.far ? rules->far : rules->near).push_back(r);
      }
    }
    std::ranges::stable_sort(rules->near, std::ranges::greater(), [&](std::int32_t r) { return book_->rules[r].radius; });
    rules_at_[signature] = std::move(rules);
  }
  return *rules_at_[signature];
}

Matcher::Neighbourhood::Neighbourhood(const Graph& graph, NodeId anchor) : graph_(graph), anchor_(anchor), commutative_(graph.signature(anchor).commutative) {
  const auto operands = graph.operands(anchor);
  for (std::size_t i = 0; i < std::min(operands.size(), kMostShared); ++i) {
    if (operands[i] != kNoValue && graph.consumers(operands[i]).size() > 1) shared_ |= 1U << i;
  }
}

bool Matcher::Neighbourhood::suit(const Rule& rule) {
  if (commutative_ ? std::popcount(rule.shared) > std::popcount(shared_) : (rule.shared & ~shared_) != 0) return false;
  if (rule.makers.empty() && rule.readers.empty()) return true;
  if (!neighbours_) neighbours_ = neighbours();
  return std::ranges::all_of(rule.makers, [&](const OperatorSet& set) { return set.meets(neighbours_->makers); }) &&
         std::ranges::all_of(rule.readers, [&](const OperatorSet& set) { return set.meets(neighbours_->readers); });
}

Matcher::Neighbours Matcher::Neighbourhood::neighbours() const {
  Neighbours found;
  const Node& node = graph_.node(anchor_);
  for (const ValueId operand : graph_.operands(anchor_)) {
    const NodeId maker = operand == kNoValue ? kNoNode : graph_.value(operand).producer;
    if (maker != kNoNode) found.makers.add(graph_.signature(maker).op);
  }
  for (std::uint32_t k = 0; k < node.output_count; ++k) {
    for (const NodeId reader : graph_.consumers(node.output_begin + static_cast<ValueId>(k))) found.readers.add(graph_.signature(reader).op);
  }
  return found;
}

void Matcher::find_near(const Graph& graph, NodeId anchor, std::int32_t distance, MatchList& out) {
  const Rules& rules = rules_at(graph.node(anchor).signature);
  if (rules.near.empty() || book_->rules[rules.near[0]].radius < distance) return;
  Neighbourhood around(graph, anchor);
  for (const std::int32_t r : rules.near) {
    const Rule& rule = book_->rules[r];
    if (rule.radius < distance) return;
    if (around.suit(rule)) find(graph, r, anchor, out);
  }
}

// Every step calls this for all anchors, hence the early return.
void Matcher::find_far(const Graph& graph, NodeId anchor, MatchList& out) {
  const Rules& rules = rules_at(graph.node(anchor).signature);
  if (rules.far.empty()) return;
  Neighbourhood around(graph, anchor);
  for (const std::int32_t r : rules.far) {
    if (around.suit(book_->rules[r])) find(graph, r, anchor, out);
  }
}

// Returns whether the lists that a statement would bind to operands or results are short enough to be matched.
static bool lists_fit(const Statement& statement, const Signature& signature) {
  const bool starred_result = !statement.mapped && statement.results[0].starred;
  return (statement.stars == 0 || signature.inputs.size() <= kMostFollowed) && (!starred_result || signature.outputs.size() <= kMostFollowed);
}

// Returns whether an operator of this signature, looked at alone, can stand for a source statement (numbered over all
// rules).
bool Matcher::may_be(std::size_t statement, SignatureId signature) {
  std::vector<char>& known = may_be_[statement];
  if (signature >= known.size()) known.resize(signature + 64);
  char& answer = known[signature];
  if (answer == 0) {
    const auto rule_index = std::upper_bound(book_->statement_begin.begin(), book_->statement_begin.end(), statement) - book_->statement_begin.begin() - 1;
    const Rule& rule = book_->rules[rule_index];
    const std::size_t index = statement - book_->statement_begin[rule_index];
    const auto orders = static_cast<std::uint32_t>(std::max<std::size_t>(2, context_->signature(signature).inputs.size() + 1));
    answer = 1;
    const bool fits = lists_fit(rule.source[index], context_->signature(signature));
    for (std::uint32_t order = 0; fits && order < orders && answer == 1; ++order) {
      Reading reading(*context_, rule);
      if (reading.add(index, {signature, order}) && reading.consistent(false)) answer = 2;
    }
  }
  return answer == 2;
}

// Returns whether two operators can be elements of one mapped statement.
bool Matcher::may_be_siblings(std::size_t statement, Role first, Role other) {
  const std::u32string key = {static_cast<char32_t>(rule_index_), static_cast<char32_t>(statement), first.signature,
                              first.order, other.signature, other.order};
  const auto [at, fresh] = siblings_.try_emplace(key, false);
  if (fresh) {
    Reading reading(*context_, *rule_);
    at->second = reading.add(statement, first) && reading.add(statement, other) && reading.consistent(false);
  }
  return at->second;
}

// Returns whether enough operators read what the elements of a mapped statement share. This is seldom true, and cheap
// to check.
bool Matcher::may_have_siblings(const Statement& statement, NodeId anchor) const {
  const auto operands = graph_->operands(anchor);
  const auto shared = std::find_if(statement.arguments.begin(), statement.arguments.end(), [](const Term& t) { return !t.starred; });
  const auto at = static_cast<std::size_t>(shared - statement.arguments.begin());
  const auto read = [&](ValueId value) {
    return value != kNoValue && graph_->consumers(value).size() >= static_cast<std::size_t>(rule_->least_elements);
  };
  if (graph_->signature(anchor).commutative) return std::any_of(operands.begin(), operands.end(), read);
  return at < operands.size() && read(operands[at]);
}

void Matcher::find(const Graph& graph, std::int32_t rule, NodeId anchor, MatchList& out) {
  graph_ = &graph, rule_ = &book_->rules[rule], rule_index_ = rule, anchor_ = anchor, out_ = &out, first_ = out.matches.size();
  bound_ = 0;
  looked_at_ = 0;
  elements_.clear();
  items_.clear();
  nodes_.assign(rule_->source.size(), {});
  const std::size_t index = rule_->plan[0];
  if (!rule_->source[index].mapped) return try_node(0, anchor);
  if (!may_have_siblings(rule_->source[index], anchor) || !usable(index, anchor)) return;
  const auto group = siblings(index, anchor);
  if (!group.empty() && group[0].node == anchor) try_group(0, group, true);
}

void Matcher::go_back(const Mark& mark) {
  bound_ = mark.bound;
  elements_.resize(mark.nodes);
  items_.resize(mark.items);
}

bool Matcher::is_matched(NodeId node) const {
  return std::any_of(elements_.begin(), elements_.end(), [&](const Element& element) { return element.node == node; });
}

bool Matcher::usable(std::size_t statement, NodeId id) {
  if (++looked_at_ > kMostLookedAt) {
    throw InvalidInput("rule '" + rule_->name + "' can be matched in too many ways: looked at more than " + std::to_string(kMostLookedAt) +
                       " operators around one. Write operators that are alike as one starred statement, or leave the rule out");
  }
  const Node& node = graph_->node(id);
  return !node.weight_only && !node.identity && may_be(book_->statement_begin[rule_index_] + statement, node.signature) && !is_matched(id);
}

// Returns whether a tensor is a weight if the rule demands one, and is none if the rule demands that.
bool Matcher::has_right_origin(const Slot& slot, ValueId value) const {
  return graph_->value(value).weight_only ? !slot.computed : !slot.weight_only;
}

bool Matcher::bind_value(std::int32_t slot, ValueId value) {
  if (value == kNoValue) return false;
  if (is_bound(slot)) return values_[slot] == value;
  const Slot& plan = rule_->slots[slot];
  if (!has_right_origin(plan, value)) return false;
  if (plan.inner && graph_->uses(value) != plan.reads) return false;    // an operator outside reads it
  values_[slot] = value;
  bound_ |= std::uint64_t{1} << slot;
  return true;
}

bool Matcher::bind_list(std::int32_t slot, std::span<const ValueId> values) {
  if (is_bound(slot)) {
    return std::equal(values.begin(), values.end(), items_.begin() + lists_[slot].begin, items_.begin() + lists_[slot].begin + lists_[slot].count);
  }
  for (const ValueId value : values) {
    if (value == kNoValue || !has_right_origin(rule_->slots[slot], value)) return false;
  }
  lists_[slot] = {static_cast<std::uint32_t>(items_.size()), static_cast<std::uint32_t>(values.size())};
  items_.insert(items_.end(), values.begin(), values.end());
  bound_ |= std::uint64_t{1} << slot;
  return true;
}

bool Matcher::bind_outputs(const Statement& statement, NodeId id) {
  const Node& node = graph_->node(id);
  if (statement.results[0].starred) {
    column_.resize(node.output_count);
    std::iota(column_.begin(), column_.end(), node.output_begin);
    return bind_list(statement.results[0].slot, column_);
  }
  for (std::uint32_t i = 0; i < node.output_count; ++i) {
    if (!bind_value(statement.results[i].slot, node.output_begin + static_cast<ValueId>(i))) return false;
  }
  return true;
}

bool Matcher::bind_operands(const Statement& statement, NodeId node, std::uint32_t order) {
  const auto operands = graph_->operands(node);
  if (statement.stars == 0) {    // as many as there are arguments, as may_be() has checked
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!bind_value(statement.arguments[i].slot, operands[order == 1 ? 1 - i : i])) return false;
    }
    return true;
  }
  bool fit = true;
  const bool arity = share_operands(*rule_, statement, operands.size(), order, [&](std::size_t i, std::size_t begin, std::size_t count) {
    const Term& term = statement.arguments[i];
    fit = fit && (term.starred ? bind_list(term.slot, operands.subspan(begin, count)) : bind_value(term.slot, operands[begin]));
  });
  return arity && fit;
}

// Returns in how many ways the operands can be the arguments.
std::uint32_t Matcher::orders(const Statement& statement, NodeId node) const {
  const auto operands = graph_->operands(node);
  if (statement.stars == 2) return static_cast<std::uint32_t>(operands.size() + 3 - statement.arguments.size());
  return statement.stars == 0 && operands.size() == 2 && operands[0] != operands[1] && graph_->signature(node).commutative ? 2 : 1;
}

void Matcher::step(std::size_t depth) {
  if (depth == rule_->plan.size()) return accept();
  if (rule_->source[rule_->plan[depth]].mapped) step_mapped(depth);
  else step_single(depth);
}

void Matcher::try_node(std::size_t depth, NodeId node) {
  const std::size_t index = rule_->plan[depth];
  const Statement& statement = rule_->source[index];
  if (!usable(index, node)) return;
  const Mark before = mark();
  if (bind_outputs(statement, node) && in_order()) {
    nodes_[index] = {static_cast<std::uint32_t>(elements_.size()), 1};
    elements_.push_back({node, 0});
    const Mark inner = mark();
    const std::uint32_t count = orders(statement, node);
    for (std::uint32_t order = 0; order < count; ++order) {
      elements_[nodes_[index].begin].order = order;
      if (bind_operands(statement, node, order)) step(depth + 1);
      go_back(inner);
    }
  }
  go_back(before);
}

// Returns the readers of a tensor, or none if they are too many to be paired with one another.
std::span<const NodeId> Matcher::followed(ValueId value) const {
  const auto consumers = graph_->consumers(value);
  return consumers.size() <= kMostFollowed ? consumers : std::span<const NodeId>();
}

void Matcher::step_single(std::size_t depth) {
  const Statement& statement = rule_->source[rule_->plan[depth]];
  for (const Term& result : statement.results) {
    if (!is_bound(result.slot)) continue;
    const NodeId producer = graph_->value(result.starred ? items_[lists_[result.slot].begin] : values_[result.slot]).producer;
    if (producer != kNoNode) try_node(depth, producer);
    return;
  }
  for (const Term& argument : statement.arguments) {
    if (!is_bound(argument.slot) || (argument.starred && lists_[argument.slot].count == 0)) continue;
    NodeId last = kNoNode;
    for (const NodeId consumer : followed(argument.starred ? items_[lists_[argument.slot].begin] : values_[argument.slot])) {
      if (consumer != std::exchange(last, consumer)) try_node(depth, consumer);    // it may read the value twice
    }
    return;
  }
}

// Binds the operands that one element of a mapped statement shares with the others, and checks the rest: starred
// arguments that are bound already must agree.
bool Matcher::bind_element(const Statement& statement, NodeId node, std::uint32_t order, std::size_t index) {
  const auto operands = graph_->operands(node);
  if (operands.size() != statement.arguments.size()) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Term& term = statement.arguments[i];
    const ValueId operand = operands[order == 1 && operands.size() == 2 ? 1 - i : i];
    if (!term.starred) {
      if (!bind_value(term.slot, operand)) return false;
    } else if (operand == kNoValue || !has_right_origin(rule_->slots[term.slot], operand)) {
      return false;
    } else if (is_bound(term.slot)) {
      const Span list = lists_[term.slot];
      if (index >= list.count || items_[list.begin + index] != operand) return false;
    }
  }
  return true;
}

// Returns whether `a` comes before `b` in the order of interchangeable nodes. It is the order of the start graph, so
// that merged results come out in the order in which later operators want to read them. Unlike ranks and ids, it does
// not depend on what else was rewritten, and when.
bool Matcher::comes_before(NodeId a, NodeId b) const {
  return std::pair(graph_->node(a).site, graph_->origin(a)) < std::pair(graph_->node(b).site, graph_->origin(b));
}

// Returns whether the interchangeable results that are bound come in their one order.
bool Matcher::in_order() const {
  return std::all_of(rule_->unordered.begin(), rule_->unordered.end(), [&](const auto& pair) {
    if (!is_bound(pair.first) || !is_bound(pair.second)) return true;
    const NodeId first = graph_->value(values_[pair.first]).producer, second = graph_->value(values_[pair.second]).producer;
    return first != kNoNode && second != kNoNode && !comes_before(second, first);
  });
}

// Returns the maximal set of nodes that fit the statement together with `first` through a shared operand, in order; it
// is empty if `first` does not fit. Callers use a set only if `first` is its first member, so that each set is used
// once.
std::vector<Matcher::Element> Matcher::siblings(std::size_t index, NodeId first) {
  const Statement& statement = rule_->source[index];
  std::vector<Element> group;
  const auto shared = std::find_if(statement.arguments.begin(), statement.arguments.end(), [](const Term& t) { return !t.starred; });
  if (shared == statement.arguments.end()) return group;
  const Mark before = mark();
  for (std::uint32_t order = 0; order < orders(statement, first) && group.empty(); ++order) {
    if (!bind_element(statement, first, order, 0)) {
      go_back(before);
      continue;
    }
    const auto consumers = followed(values_[shared->slot]);
    const Role role{graph_->node(first).signature, order};
    NodeId last = kNoNode;
    for (const NodeId consumer : consumers) {
      if (consumer == std::exchange(last, consumer)) continue;
      if (consumer == first) group.push_back({first, order});
      else if (consumers.size() > 1 && usable(index, consumer)) {
        for (std::uint32_t other = 0; other < orders(statement, consumer); ++other) {
          const Mark bound = mark();
          const bool fits = bind_element(statement, consumer, other, 0) && may_be_siblings(index, role, {graph_->node(consumer).signature, other});
          go_back(bound);
          if (!fits) continue;
          group.push_back({consumer, other});
          break;
        }
      }
    }
  }
  go_back(before);
  std::sort(group.begin(), group.end(), [&](const Element& a, const Element& b) { return comes_before(a.node, b.node); });
  return group;
}

// Tries a group of nodes in their given order. If `order_known` is false, the operands of each node may be swapped.
void Matcher::try_group(std::size_t depth, std::span<const Element> group, bool order_known) {
  const std::size_t index = rule_->plan[depth];
  const Statement& statement = rule_->source[index];
  if (group.size() < static_cast<std::size_t>(rule_->least_elements)) return;
  for (std::size_t k = 0; k < group.size(); ++k) {
    if (!usable(index, group[k].node)) return;
    for (std::size_t j = 0; j < k; ++j) {
      if (group[j].node == group[k].node) return;
    }
  }
  if (order_known) return bind_group(depth, group);
  std::vector<Element> ordered(group.begin(), group.end());
  for (std::uint32_t leading = 0; leading < orders(statement, group[0].node); ++leading) {
    const Mark before = mark();
    bool fit = true;
    for (std::size_t k = 0; k < ordered.size() && fit; ++k) {
      fit = false;
      const std::uint32_t from = k == 0 ? leading : 0, to = k == 0 ? leading + 1 : orders(statement, ordered[k].node);
      for (std::uint32_t order = from; order < to && !fit; ++order) {
        const Mark bound = mark();
        ordered[k].order = order;
        fit = bind_element(statement, ordered[k].node, order, k);
        if (!fit) go_back(bound);
      }
    }
    go_back(before);
    if (fit) bind_group(depth, ordered);
  }
}

void Matcher::bind_group(std::size_t depth, std::span<const Element> group) {
  const std::size_t index = rule_->plan[depth];
  const Statement& statement = rule_->source[index];
  const Mark before = mark();
  bool fit = true;
  for (std::size_t k = 0; k < group.size() && fit; ++k) fit = bind_element(statement, group[k].node, group[k].order, k);
  std::vector<ValueId> column(group.size());
  for (std::size_t i = 0; i < statement.arguments.size() && fit; ++i) {
    if (!statement.arguments[i].starred) continue;
    for (std::size_t k = 0; k < group.size(); ++k) {
      const auto operands = graph_->operands(group[k].node);
      column[k] = operands[group[k].order == 1 && operands.size() == 2 ? 1 - i : i];
    }
    fit = bind_list(statement.arguments[i].slot, column);
  }
  for (std::size_t k = 0; k < group.size(); ++k) column[k] = graph_->node(group[k].node).output_begin;
  if (fit && bind_list(statement.results[0].slot, column)) {
    nodes_[index] = {static_cast<std::uint32_t>(elements_.size()), static_cast<std::uint32_t>(group.size())};
    elements_.insert(elements_.end(), group.begin(), group.end());
    step(depth + 1);
  }
  go_back(before);
}

void Matcher::step_mapped(std::size_t depth) {
  const Statement& statement = rule_->source[rule_->plan[depth]];
  std::vector<Element> group;
  if (const std::int32_t slot = statement.results[0].slot; is_bound(slot)) {
    for (std::uint32_t k = 0; k < lists_[slot].count; ++k) {
      group.push_back({graph_->value(items_[lists_[slot].begin + k]).producer, 0});
      if (group.back().node == kNoNode) return;
    }
    return try_group(depth, group, false);
  }
  for (const Term& argument : statement.arguments) {
    if (!argument.starred || !is_bound(argument.slot)) continue;
    const Span list = lists_[argument.slot];
    for (std::uint32_t k = 0; k < list.count; ++k) {    // each element must have this one reader
      const ValueId value = items_[list.begin + k];
      const auto consumers = graph_->consumers(value);
      if (consumers.size() != 1 || graph_->is_output(value)) return;
      group.push_back({consumers[0], 0});
    }
    return try_group(depth, group, false);
  }
  for (const Term& argument : statement.arguments) {
    if (argument.starred || !is_bound(argument.slot)) continue;
    NodeId last = kNoNode;
    for (const NodeId first : followed(values_[argument.slot])) {
      if (first == std::exchange(last, first) || !usable(rule_->plan[depth], first)) continue;
      group = siblings(rule_->plan[depth], first);
      if (!group.empty() && group[0].node == first) try_group(depth, group, true);
    }
    return;
  }
}

// Returns whether no operator outside reads a result that dies, and no variable is a result of a matched operator.
bool Matcher::stands_alone() const {
  const auto free = [&](ValueId value) {
    if (graph_->is_output(value)) return false;
    const auto consumers = graph_->consumers(value);
    return std::all_of(consumers.begin(), consumers.end(), [&](NodeId consumer) { return is_matched(consumer); });
  };
  // A variable that is an inner result would be read after it is gone; one that is an output would close a cycle.
  const auto outside = [&](ValueId value) {
    const NodeId producer = graph_->value(value).producer;
    return producer == kNoNode || !is_matched(producer);
  };
  const auto every = [&](std::int32_t slot, const auto& holds) {
    if (!rule_->slots[slot].starred) return is_bound(slot) && holds(values_[slot]);
    if (!is_bound(slot)) return true;    // an empty list
    const Span list = lists_[slot];
    return std::all_of(items_.begin() + list.begin, items_.begin() + list.begin + list.count, holds);
  };
  for (const std::int32_t slot : rule_->shielded) {
    if (!every(slot, free)) return false;
  }
  return std::all_of(rule_->variables.begin(), rule_->variables.end(), [&](const Variable& variable) { return every(variable.slot, outside); });
}

void Matcher::lay_out(MatchList& out) const {
  for (const Span span : nodes_) {
    for (std::uint32_t k = 0; k < span.count; ++k) out.ids.push_back(elements_[span.begin + k].node);
  }
  for (std::size_t slot = 0; slot < rule_->slots.size(); ++slot) {
    if (!is_bound(static_cast<std::int32_t>(slot))) continue;
    if (!rule_->slots[slot].starred) {
      out.ids.push_back(values_[slot]);
      continue;
    }
    const Span list = lists_[slot];
    out.ids.insert(out.ids.end(), items_.begin() + list.begin, items_.begin() + list.begin + list.count);
  }
}

const Recipe& Matcher::recipe_of(std::span<const ValueId> values) {
  key_.clear();
  key_.push_back(static_cast<std::uint32_t>(rule_index_));
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (rule_->source[i].mapped) key_.push_back(nodes_[i].count);
    for (std::uint32_t k = 0; k < nodes_[i].count; ++k) {
      const Element& element = elements_[nodes_[i].begin + k];
      key_.push_back(graph_->node(element.node).signature);
      key_.push_back(element.order);
    }
  }
  std::uint32_t bits = 0, count = 0;
  std::size_t at = 0;
  for (std::size_t slot = 0; slot < rule_->slots.size(); ++slot) {
    if (!is_bound(static_cast<std::int32_t>(slot))) continue;
    const std::size_t size = rule_->slots[slot].starred ? lists_[slot].count : 1;
    if (rule_->slots[slot].variable >= 0) {
      for (std::size_t k = 0; k < size; ++k) {
        bits |= static_cast<std::uint32_t>(graph_->value(values[at + k]).weight_only) << (count % 32);
        if (++count % 32 == 0) key_.push_back(std::exchange(bits, 0));
      }
    }
    at += size;
  }
  key_.push_back(bits);

  std::uint64_t hash = 0;
  for (const std::uint32_t word : key_) hash = mix(hash ^ word);
  std::size_t slot = hash & (table_.size() - 1);
  for (; table_[slot].second; slot = (slot + 1) & (table_.size() - 1)) {
    if (table_[slot].first == hash && table_[slot].second->key == key_) return *table_[slot].second;
  }
  const Recipe& recipe = recipes_->find(key_);
  table_[slot] = {hash, &recipe};
  if (2 * ++table_used_ > table_.size()) {
    std::vector<std::pair<std::uint64_t, const Recipe*>> larger(2 * table_.size());
    for (const auto& entry : table_) {
      if (!entry.second) continue;
      std::size_t to = entry.first & (larger.size() - 1);
      while (larger[to].second) to = (to + 1) & (larger.size() - 1);
      larger[to] = entry;
    }
    table_.swap(larger);
  }
  return recipe;
}

// Marks in `needs` the replaced tensors, by position in the recipe, that are needed to compute the tensors `fresh`.
// Walks upwards from what their new nodes read, and stops at ranks below those of the replaced tensors' producers.
void Matcher::find_needs(const Recipe& recipe, std::span<const ValueId> values, std::span<const ValueRef> fresh, char* needs) {
  if (++walk_ == 0) std::fill(visited_.begin(), visited_.end(), 0), walk_ = 1;
  stack_.clear();
  std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
  for (const auto& [old, ref] : recipe.replaced) lowest = std::min(lowest, graph_->rank(graph_->value(values[old]).producer));
  const auto push = [&](ValueId value) {
    if (value == kNoValue) return;
    const NodeId producer = graph_->value(value).producer;
    if (producer == kNoNode || graph_->rank(producer) < lowest) return;
    for (std::size_t i = 0; i < recipe.replaced.size(); ++i) {
      if (values[recipe.replaced[i].first] != value) continue;
      needs[i] = 1;    // what this tensor needs is found by its own walk
      return;
    }
    if (visited_[producer] == walk_) return;
    visited_[producer] = walk_;
    stack_.push_back(producer);
  };
  refs_.assign(fresh.begin(), fresh.end());
  for (std::size_t next = 0; next < refs_.size(); ++next) {
    if (!is_new(refs_[next])) {
      push(values[refs_[next]]);
      continue;
    }
    const NewNode& node = recipe.nodes[recipe.values[new_index(refs_[next])].producer];
    for (std::uint32_t k = 0; k < node.operand_count; ++k) {
      const ValueRef operand = recipe.operands[node.operand_begin + k];
      if (std::find(refs_.begin(), refs_.end(), operand) == refs_.end()) refs_.push_back(operand);
    }
  }
  while (!stack_.empty()) {
    const NodeId node = stack_.back();
    stack_.pop_back();
    for (const ValueId operand : graph_->operands(node)) push(operand);
  }
}

// Returns whether some replaced tensor would be needed, directly or through others, to compute itself.
bool Matcher::closes_cycle(const Recipe& recipe, std::span<const ValueId> values) {
  visited_.resize(std::max(visited_.size(), graph_->node_count()));
  const std::size_t count = recipe.replaced.size();
  fresh_.clear();
  for (const auto& [old, fresh] : recipe.replaced) fresh_.push_back(fresh);
  needs_.assign(count, 0);
  find_needs(recipe, values, fresh_, needs_.data());
  if (std::find(needs_.begin(), needs_.end(), 1) == needs_.end()) return false;    // nearly always so
  needs_.assign(count * count, 0);
  for (std::size_t i = 0; i < count; ++i) find_needs(recipe, values, std::span(fresh_).subspan(i, 1), needs_.data() + i * count);
  for (std::size_t via = 0; via < count; ++via) {
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; needs_[i * count + via] && j < count; ++j) needs_[i * count + j] |= needs_[via * count + j];
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (needs_[i * count + i]) return true;
  }
  return false;
}

void Matcher::accept() {
  if (!in_order() || !stands_alone()) return;
  MatchList& out = *out_;
  const auto begin = static_cast<std::uint32_t>(out.ids.size());
  lay_out(out);
  const std::span<const ValueId> values(out.ids.data() + begin + elements_.size(), out.ids.size() - begin - elements_.size());
  const Recipe& recipe = recipe_of(values);
  Hash128 key{21, static_cast<std::uint64_t>(rule_index_)};
  for (std::size_t i = begin; i < begin + elements_.size(); ++i) key = fold(key, graph_->origin(out.ids[i]));
  for (const ValueId value : values) key = fold(key, graph_->value_origin(value));
  const Match match{.key = key, .recipe = &recipe, .delta_ms = std::numeric_limits<double>::quiet_NaN(), .anchor = anchor_,
                    .rule = rule_index_, .location = -1, .begin = begin};
  if (!recipe.legal || does_the_same_as_another(out, match) || (rule_->may_cycle && closes_cycle(recipe, values))) {
    out.ids.resize(begin);
    return;
  }
  out.matches.push_back(match);
}

// Returns whether the rewrite gives the same graph as another match of this rule and anchor.
bool Matcher::does_the_same_as_another(const MatchList& out, const Match& match) {
  if (out.matches.size() == first_) {    // nearly always so
    effects_.clear();
    return false;
  }
  while (effects_.size() < out.matches.size() - first_) effects_.push_back(effect(out, out.matches[first_ + effects_.size()]));
  return std::find(effects_.begin(), effects_.end(), effect(out, match)) != effects_.end();
}

// Returns a name for what a match does to the graph: which operators it takes away, and what is read instead. Of a matched
// operator that stays, it matters what it computes and not which of several alike it is: whoever shares one of them can
// share the others afterwards.
Hash128 Matcher::effect(const MatchList& out, const Match& match) {
  const Recipe& recipe = *match.recipe;
  const auto nodes = out.nodes(match);
  const auto values = out.values(match);
  const auto name = [&](ValueId value) {
    const NodeId producer = graph_->value(value).producer;
    if (producer == kNoNode || std::find(nodes.begin(), nodes.end(), producer) == nodes.end()) return graph_->value_origin(value);
    const auto operands = graph_->operands(producer);
    const Hash128 hash = hash_node(graph_->signature(producer), graph_->node(producer).identity, operands.size(), [&](std::size_t k) {
      return operands[k] == kNoValue ? kNoValueHash : graph_->value_origin(operands[k]);
    });
    return hash_result(hash, static_cast<std::uint32_t>(graph_->value(value).index));
  };
  const auto read = [&](ValueRef ref) { return is_new(ref) ? made_[new_index(ref)] : name(values[ref]); };
  Hash128 sum;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!recipe.kept[i]) sum += fold(Hash128{1, 1}, graph_->origin(nodes[i]));
  }
  made_.assign(recipe.values.size(), {});
  for (const NewNode& node : recipe.nodes) {
    const Hash128 hash = hash_node(context_->signature(node.signature), 0, node.operand_count,
                                   [&](std::size_t k) { return read(recipe.operands[node.operand_begin + k]); });
    for (std::uint32_t k = 0; k < node.value_count; ++k) made_[node.first_value + k] = hash_result(hash, k);
  }
  for (const auto& [old, ref] : recipe.replaced) sum += fold(fold(Hash128{2, 2}, graph_->value_origin(values[old])), read(ref));
  return sum;
}

}  // namespace rlflow
