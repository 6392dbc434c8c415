#include "rewrite.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace rlflow {
namespace {

// Attributes of a target operator: the kept rest, overridden by the evaluated ones.
std::optional<AttributesId> target_attributes(Context& context, const Statement& statement, const Binding& binding,
                                              const Scope& scope, TypeId first_operand) {
  if (statement.op_variable >= 0) return binding.operators[statement.op_variable].second;
  AttributeMap map;
  if (statement.rest >= 0) map = context.attributes(binding.rests[statement.rest]);
  for (const AttributePattern& pattern : statement.attributes) {
    auto value = evaluate_attribute(pattern, scope, context.type(first_operand).dims.size());
    if (!value) return std::nullopt;
    const auto at = std::lower_bound(map.begin(), map.end(), pattern.name,
                                     [](const auto& entry, const std::string& name) { return entry.first < name; });
    Attribute attribute = to_attribute(std::move(*value));
    if (at != map.end() && at->first == pattern.name) at->second = std::move(attribute);
    else map.emplace(at, pattern.name, std::move(attribute));
  }
  complete_attributes(*statement.op, map);
  return context.attributes(map);
}

// Builds the target side of a rule on top of a match.
class Planner final : public Scope {
 public:
  Planner(const Graph& graph, const Rule& rule, const Binding& binding)
      : graph_(graph), rule_(rule), binding_(binding), plain_(rule.value_names.size(), kNoValue), lists_(rule.value_names.size()) {
    for (const Variable& variable : rule.variables) {
      plain_[variable.slot] = binding.values[variable.slot];
      lists_[variable.slot].assign(binding.lists[variable.slot].begin(), binding.lists[variable.slot].end());
    }
    for (std::size_t i = 0; i < rule.source.size(); ++i) {
      if (!binding.nodes[i].empty() && i == rule.plan[0]) anchor_site_ = graph.node(binding.nodes[i][0]).site;
    }
  }

  std::optional<Edit> plan() {
    for (const Statement& statement : rule_.target) {
      if (!build(statement)) return std::nullopt;
    }
    if (!collect_outputs()) return std::nullopt;
    inherit_sites();
    return std::move(edit_);
  }

  const Quantity* symbol(std::int32_t slot) const override {
    return binding_.symbol_bound[slot] ? &binding_.symbols[slot] : nullptr;
  }
  const Dims* dims(std::int32_t slot) const override {
    const ValueRef ref = plain_[slot] != kNoValue ? plain_[slot] : binding_.values[slot];
    return ref == kNoValue ? nullptr : &graph_.context().type(type_of(ref)).dims;
  }

 private:
  TypeId type_of(ValueRef ref) const { return is_new(ref) ? edit_.values[new_index(ref)].type : graph_.value(ref).type; }
  bool weight_only(ValueRef ref) const {
    return is_new(ref) ? edit_.values[new_index(ref)].weight_only : graph_.value(ref).weight_only;
  }

  bool build(const Statement& statement) {
    if (!statement.op && statement.op_variable < 0) {    // `y = x`
      const Term from = statement.arguments[0], to = statement.results[0];
      if (to.starred) lists_[to.slot] = lists_[from.slot];
      else plain_[to.slot] = plain_[from.slot];
      return true;
    }
    if (!statement.mapped) return build_single(statement);
    std::size_t count = 0;
    for (const Term& term : statement.arguments) {
      if (term.starred) count = std::max(count, lists_[term.slot].size());
    }
    std::vector<ValueRef> results;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<ValueRef> operands;
      for (const Term& term : statement.arguments) {
        if (term.starred && lists_[term.slot].size() != count) return false;
        operands.push_back(term.starred ? lists_[term.slot][i] : plain_[term.slot]);
      }
      const auto first = add(statement, std::move(operands));
      if (!first) return false;
      results.push_back(*first);
    }
    lists_[statement.results[0].slot] = std::move(results);
    return true;
  }

  bool build_single(const Statement& statement) {
    std::vector<ValueRef> operands;
    for (const Term& term : statement.arguments) {
      if (term.starred) operands.insert(operands.end(), lists_[term.slot].begin(), lists_[term.slot].end());
      else operands.push_back(plain_[term.slot]);
    }
    const auto first = add(statement, std::move(operands));
    if (!first) return false;
    const std::size_t count = edit_.values.size() - new_index(*first);
    if (statement.results[0].starred) {
      for (std::size_t i = 0; i < count; ++i) lists_[statement.results[0].slot].push_back(*first - static_cast<ValueRef>(i));
      return true;
    }
    if (count != statement.results.size()) return false;
    for (std::size_t i = 0; i < count; ++i) plain_[statement.results[i].slot] = *first - static_cast<ValueRef>(i);
    return true;
  }

  // Adds one operator and returns its first value.
  std::optional<ValueRef> add(const Statement& statement, std::vector<ValueRef> operands) {
    Context& context = graph_.context();
    std::vector<TypeId> types;
    bool constant = true;
    for (const ValueRef operand : operands) {
      if (operand == kNoValue) return std::nullopt;
      types.push_back(type_of(operand));
      constant = constant && weight_only(operand);
    }
    if (types.empty()) return std::nullopt;
    const auto attributes = target_attributes(context, statement, binding_, *this, types[0]);
    if (!attributes) return std::nullopt;
    const OperatorId op = statement.op ? *statement.op : binding_.operators[statement.op_variable].first;
    const auto signature = context.inferred(op, *attributes, types);
    if (!signature) return std::nullopt;
    NewNode node{.signature = *signature, .operands = std::move(operands), .first_value = edit_.values.size(),
                 .weight_only = constant, .site = anchor_site_};
    for (const TypeId type : context.signature(*signature).outputs) {
      edit_.values.push_back({.type = type, .producer = edit_.nodes.size(), .weight_only = constant});
    }
    edit_.nodes.push_back(std::move(node));
    return new_value(edit_.nodes.back().first_value);
  }

  bool collect_outputs() {
    for (const Term& output : rule_.outputs) {
      if (!output.starred) {
        if (!output_becomes(binding_.values[output.slot], plain_[output.slot])) return false;
        continue;
      }
      const auto &old = binding_.lists[output.slot], &fresh = lists_[output.slot];
      if (old.size() != fresh.size()) return false;
      for (std::size_t i = 0; i < old.size(); ++i) {
        if (!output_becomes(old[i], fresh[i])) return false;
      }
    }
    return true;
  }
  bool output_becomes(ValueId old, ValueRef fresh) {
    if (fresh == kNoValue || type_of(fresh) != graph_.value(old).type) return false;
    // A run-time output never turns into a weight here: constant folding is the clean-up's work.
    if (weight_only(fresh)) return false;
    edit_.replaced.emplace_back(old, fresh);
    return true;
  }

  // The node that produces a replaced output stands where the old producer stood.
  void inherit_sites() {
    for (const auto& [old, fresh] : edit_.replaced) {
      if (!is_new(fresh)) continue;
      const NodeId producer = graph_.value(old).producer;
      NewNode& node = edit_.nodes[edit_.values[new_index(fresh)].producer];
      if (node.first_value == new_index(fresh)) node.site = graph_.node(producer).site;
    }
  }

  const Graph& graph_;
  const Rule& rule_;
  const Binding& binding_;
  std::vector<ValueRef> plain_;
  std::vector<std::vector<ValueRef>> lists_;
  std::int32_t anchor_site_ = 0;
  Edit edit_;
};

// Whether some replaced value is needed to compute something the new nodes read. Walks upwards from what they read and
// stops at ranks below the replaced ones, so with a single output it usually ends at once.
bool closes_cycle(const Graph& graph, const Edit& edit) {
  std::int32_t lowest = graph.rank(graph.value(edit.replaced[0].first).producer);
  for (const auto& [old, fresh] : edit.replaced) lowest = std::min(lowest, graph.rank(graph.value(old).producer));
  std::unordered_set<NodeId> targets, seen;
  for (const auto& [old, fresh] : edit.replaced) targets.insert(graph.value(old).producer);
  std::vector<NodeId> stack;
  const auto push = [&](ValueId value) {
    const NodeId producer = value < 0 ? kNoNode : graph.value(value).producer;
    if (producer != kNoNode && graph.rank(producer) >= lowest && seen.insert(producer).second) stack.push_back(producer);
  };
  for (const NewNode& node : edit.nodes) {
    for (const ValueRef operand : node.operands) push(is_new(operand) ? kNoValue : operand);
  }
  for (const auto& [old, fresh] : edit.replaced) push(is_new(fresh) ? kNoValue : fresh);
  while (!stack.empty()) {
    const NodeId node = stack.back();
    stack.pop_back();
    if (targets.count(node)) return true;
    for (const ValueId operand : graph.operands(node)) push(operand);
  }
  return false;
}

// The graph as it will be after an edit, seen only where it differs.
class Overlay {
 public:
  Overlay(const Graph& graph, const Edit& edit) : graph_(graph), edit_(edit), new_uses_(edit.values.size()) {
    for (const auto& [old, fresh] : edit.replaced) {
      const std::int32_t moved = graph.uses(old);
      change(old, -moved);
      add_use(fresh, moved);
    }
    std::vector<bool> needed(edit.nodes.size());
    for (std::size_t i = edit.nodes.size(); i-- > 0;) {    // new nodes nobody reads are never created
      const NewNode& node = edit.nodes[i];
      const std::size_t end = i + 1 < edit.nodes.size() ? edit.nodes[i + 1].first_value : edit.values.size();
      for (std::size_t k = node.first_value; k < end; ++k) needed[i] = needed[i] || new_uses_[k] > 0;
      if (!needed[i]) continue;
      for (const ValueRef operand : node.operands) add_use(operand, 1);
    }
    needed_ = std::move(needed);
    std::vector<NodeId> check;
    for (const auto& [old, fresh] : edit.replaced) check.push_back(graph.value(old).producer);
    while (!check.empty()) {    // what nobody reads any more dies, and so on upwards
      const NodeId id = check.back();
      check.pop_back();
      if (id == kNoNode || dead(id) || !graph.alive(id)) continue;
      const Node& node = graph.node(id);
      bool used = false;
      for (std::uint32_t i = 0; i < node.output_count; ++i) used = used || uses(node.output_begin + static_cast<ValueId>(i)) > 0;
      if (used) continue;
      dead_.push_back(id);
      for (const ValueId operand : graph.operands(id)) {
        if (operand == kNoValue) continue;
        change(operand, -1);
        check.push_back(graph.value(operand).producer);
      }
    }
  }

  [[nodiscard]] bool needed(std::size_t node) const { return needed_[node]; }
  [[nodiscard]] bool dead(NodeId id) const { return std::find(dead_.begin(), dead_.end(), id) != dead_.end(); }
  [[nodiscard]] const std::vector<NodeId>& dead_nodes() const { return dead_; }
  [[nodiscard]] const std::vector<std::pair<ValueId, std::int32_t>>& changes() const { return changes_; }
  [[nodiscard]] std::int32_t uses(ValueRef ref) const {
    if (is_new(ref)) return new_uses_[new_index(ref)];
    for (const auto& [value, delta] : changes_) {
      if (value == ref) return graph_.uses(ref) + delta;
    }
    return graph_.uses(ref);
  }
  [[nodiscard]] ValueRef current(ValueId value) const {
    for (const auto& [old, fresh] : edit_.replaced) {
      if (old == value) return fresh;
    }
    return value;
  }
  [[nodiscard]] bool fused(SignatureId signature_id, std::span<const ValueId> operands, bool translate) const {
    const Context& context = graph_.context();
    const Signature& signature = context.signature(signature_id);
    if (signature.execution != Execution::kElementwise) return false;
    return std::ranges::any_of(operands, [&](ValueId operand) {
      if (operand == kNoValue) return false;
      const ValueRef ref = translate ? current(operand) : operand;
      if (is_new(ref)) {
        const NewValue& value = edit_.values[new_index(ref)];
        if (value.weight_only) return false;
        return absorbs(&context.signature(edit_.nodes[value.producer].signature), value.type, uses(ref), signature);
      }
      const Value& value = graph_.value(ref);
      if (value.producer == kNoNode || value.weight_only) return false;
      return absorbs(&graph_.signature(value.producer), value.type, uses(ref), signature);
    });
  }

 private:
  void change(ValueId value, std::int32_t delta) {
    for (auto& [known, total] : changes_) {
      if (known == value) {
        total += delta;
        return;
      }
    }
    changes_.emplace_back(value, delta);
  }
  void add_use(ValueRef ref, std::int32_t count) {
    if (is_new(ref)) new_uses_[new_index(ref)] += count;
    else if (ref != kNoValue) change(ref, count);
  }

  const Graph& graph_;
  const Edit& edit_;
  std::vector<std::int32_t> new_uses_;
  std::vector<bool> needed_;
  std::vector<std::pair<ValueId, std::int32_t>> changes_;
  std::vector<NodeId> dead_;
};

}  // namespace

std::optional<Edit> plan_edit(const Graph& graph, const Rule& rule, const Binding& binding) {
  auto edit = Planner(graph, rule, binding).plan();
  if (!edit || closes_cycle(graph, *edit)) return std::nullopt;
  return edit;
}

double price_edit(const Graph& graph, const Edit& edit, CostTable& costs) {
  const Overlay after(graph, edit);
  const Context& context = graph.context();
  double delta = 0;
  for (const NodeId id : after.dead_nodes()) {
    if (!graph.node(id).weight_only) delta -= costs.milliseconds(context, graph.node(id).signature, is_fused(graph, id));
  }
  for (std::size_t i = 0; i < edit.nodes.size(); ++i) {
    const NewNode& node = edit.nodes[i];
    if (node.weight_only || !after.needed(i)) continue;
    delta += costs.milliseconds(context, node.signature, after.fused(node.signature, node.operands, false));
  }
  // Surviving readers of values whose number of uses changed may be fused now, or not any more.
  std::vector<NodeId> readers;
  for (const auto& [value, change] : after.changes()) {
    const auto consumers = graph.consumers(value);
    readers.insert(readers.end(), consumers.begin(), consumers.end());
  }
  std::sort(readers.begin(), readers.end());
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  for (const NodeId id : readers) {
    const Node& node = graph.node(id);
    if (node.weight_only || after.dead(id) || graph.signature(id).execution != Execution::kElementwise) continue;
    const bool before = is_fused(graph, id), now = after.fused(node.signature, graph.operands(id), true);
    if (before == now) continue;
    delta += costs.milliseconds(context, node.signature, now) - costs.milliseconds(context, node.signature, before);
  }
  return delta;
}

std::vector<ValueId> apply_edit(Graph& graph, const Edit& edit) {
  const std::vector<NodeId> before = graph.order();
  std::vector<ValueId> created(edit.values.size()), changed;
  const auto resolve = [&](ValueRef ref) { return is_new(ref) ? created[new_index(ref)] : ref; };
  for (const NewNode& node : edit.nodes) {
    std::vector<ValueId> operands;
    for (const ValueRef operand : node.operands) operands.push_back(resolve(operand));
    const NodeId id = graph.add_node(node.signature, operands, {}, graph.context().name(""), false, node.site);
    changed.insert(changed.end(), operands.begin(), operands.end());
    for (std::uint32_t k = 0; k < graph.node(id).output_count; ++k) {
      created[node.first_value + k] = graph.node(id).output_begin + static_cast<ValueId>(k);
    }
  }
  // All at once: an output of one pair may be an operand in another.
  std::vector<char> named(edit.values.size());
  for (const auto& [old, fresh] : edit.replaced) {
    const bool take_name = is_new(fresh) && !std::exchange(named[new_index(fresh)], 1);
    graph.replace(old, resolve(fresh), take_name);
    changed.push_back(resolve(fresh));
  }
  graph.finalize();
  for (const NodeId id : before) {
    if (graph.alive(id)) continue;
    const auto operands = graph.operands(id);
    changed.insert(changed.end(), operands.begin(), operands.end());
  }
  std::erase(changed, kNoValue);
  return changed;
}

}  // namespace rlflow
