#include "rewriting/rewrite.hpp"

#include <algorithm>
#include <limits>

namespace rlflow {

void Preview::change_uses(ValueId value, std::int32_t delta) {
  for (auto& [known, total] : changes_) {
    if (known == value) {
      total += delta;
      return;
    }
  }
  changes_.emplace_back(value, delta);
}

// Adds `count` uses of a tensor; `ref` is a reference as in a recipe.
void Preview::add_use(ValueRef ref, std::int32_t count) {
  if (is_new(ref)) new_uses_[new_index(ref)] += count;
  else change_uses(values_[ref], count);
}

bool Preview::is_dead(NodeId id) const { return std::find(dead_.begin(), dead_.end(), id) != dead_.end(); }

std::int32_t Preview::uses_after(ValueId value) const {
  for (const auto& [changed, delta] : changes_) {
    if (changed == value) return graph_->uses(value) + delta;
  }
  return graph_->uses(value);
}

void Preview::look_at(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values) {
  graph_ = &graph, recipe_ = &recipe, nodes_ = nodes, values_ = values;
  dead_.clear();
  // A node that dies outside the match may have read a replaced tensor, which then has fewer readers, and so on.
  for (std::size_t known = 0;; known = dead_.size()) {
    count_uses();
    find_dead();
    const bool outside = std::any_of(dead_.begin(), dead_.end(), [&](NodeId id) { return !graph_->node(id).weight_only && !is_consumed(id); });
    if (!outside || dead_.size() == known) return;
  }
}

// Returns whether a node belongs to the match and goes away.
bool Preview::is_consumed(NodeId id) const {
  const auto at = std::find(nodes_.begin(), nodes_.end(), id);
  return at != nodes_.end() && !recipe_->kept[at - nodes_.begin()];
}

// Returns how many uses of a replaced tensor live on.
std::int32_t Preview::moved_uses(ValueId old) const {
  std::int32_t uses = graph_->uses(old);
  for (const NodeId consumer : graph_->consumers(old)) uses -= is_consumed(consumer) || is_dead(consumer);
  return uses;
}

void Preview::count_uses() {
  changes_.clear();
  new_uses_.assign(recipe_->values.size(), 0);
  needed_.assign(recipe_->nodes.size(), 0);
  for (const auto& [old, fresh] : recipe_->replaced) {
    const std::int32_t moved = moved_uses(values_[old]);
    change_uses(values_[old], -moved);
    add_use(fresh, moved);
  }
  for (std::size_t i = recipe_->nodes.size(); i-- > 0;) {    // a node that nothing reads counts as not created
    const NewNode& node = recipe_->nodes[i];
    for (std::uint32_t k = 0; k < node.value_count; ++k) needed_[i] = needed_[i] || new_uses_[node.first_value + k] > 0;
    if (!needed_[i]) continue;
    for (std::uint32_t k = 0; k < node.operand_count; ++k) add_use(recipe_->operands[node.operand_begin + k], 1);
  }
}

// Finds the nodes that nothing reads any more, and so on upwards.
void Preview::find_dead() {
  dead_.clear();
  pending_.clear();
  for (const auto& [old, fresh] : recipe_->replaced) pending_.push_back(graph_->value(values_[old]).producer);
  while (!pending_.empty()) {
    const NodeId id = pending_.back();
    pending_.pop_back();
    if (id == kNoNode || is_dead(id)) continue;
    const Node& node = graph_->node(id);
    bool used = false;
    for (std::uint32_t i = 0; i < node.output_count; ++i) used = used || uses_after(node.output_begin + static_cast<ValueId>(i)) > 0;
    if (used) continue;
    dead_.push_back(id);
    for (const ValueId operand : graph_->operands(id)) {
      if (operand == kNoValue) continue;
      change_uses(operand, -1);
      pending_.push_back(graph_->value(operand).producer);
    }
  }
}

bool Preview::absorbed_by_new(const Signature& pointwise, ValueRef ref) const {
  const NewValue& value = recipe_->values[new_index(ref)];
  const NewNode& producer = recipe_->nodes[value.producer];
  return !producer.weight_only && absorbs(&graph_->context().signature(producer.signature), value.type, new_uses_[new_index(ref)], pointwise);
}

bool Preview::absorbed(const Signature& pointwise, ValueId operand) const {
  const Value& value = graph_->value(operand);
  return value.producer != kNoNode && !value.weight_only &&
         absorbs(&graph_->signature(value.producer), value.type, uses_after(operand), pointwise);
}

// Returns whether an operator of the old graph that stays is fused after the rewrite.
bool Preview::fused_after(const Signature& signature, std::span<const ValueId> operands) const {
  return std::any_of(operands.begin(), operands.end(), [&](ValueId operand) {
    if (operand == kNoValue) return false;
    for (const auto& [old, fresh] : recipe_->replaced) {
      if (values_[old] == operand) return is_new(fresh) ? absorbed_by_new(signature, fresh) : absorbed(signature, values_[fresh]);
    }
    return absorbed(signature, operand);
  });
}

double Preview::price(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes,
                      std::span<const ValueId> values, std::span<const char> fused, std::span<const double> node_ms,
                      const CostModel& costs) {
  look_at(graph, recipe, nodes, values);
  double delta = 0;
  for (const NodeId id : dead_) {
    if (!graph.node(id).weight_only) delta -= node_ms[id];
  }
  for (std::size_t i = 0; i < recipe.nodes.size(); ++i) {
    const NewNode& node = recipe.nodes[i];
    if (node.weight_only || !needed_[i]) continue;
    const Signature& signature = graph.context().signature(node.signature);
    bool absorbed_now = false;
    for (std::uint32_t k = 0; k < node.operand_count && signature.execution == Execution::kElementwise && !absorbed_now; ++k) {
      const ValueRef ref = recipe.operands[node.operand_begin + k];
      absorbed_now = is_new(ref) ? absorbed_by_new(signature, ref) : absorbed(signature, values[ref]);
    }
    delta += costs.price(signature, absorbed_now).ms;
  }
  // Readers that stay may be fused now, or not any more, if the number of uses of what they read changed.
  readers_.clear();
  for (const auto& [value, change] : changes_) {
    if (graph.value(value).weight_only) continue;    // never absorbs anything
    for (const NodeId reader : graph.consumers(value)) {
      const Node& node = graph.node(reader);
      const Signature& signature = graph.signature(reader);
      if (signature.execution != Execution::kElementwise || node.weight_only || is_dead(reader)) continue;
      if (std::find(readers_.begin(), readers_.end(), reader) != readers_.end()) continue;
      readers_.push_back(reader);
      const bool now = fused_after(signature, graph.operands(reader));
      if (now != static_cast<bool>(fused[reader])) delta += costs.price(signature, now).ms - node_ms[reader];
    }
  }
  return delta;
}

Hash128 Preview::plain_hash(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values) {
  look_at(graph, recipe, nodes, values);
  rehashed_.resize(std::max(rehashed_.size(), graph.value_count()));
  value_hashes_.resize(rehashed_.size());
  stale_.resize(std::max(stale_.size(), graph.node_count()));
  gone_.resize(stale_.size());
  if (++call_ == 0) {
    std::fill(rehashed_.begin(), rehashed_.end(), 0);
    std::fill(stale_.begin(), stale_.end(), 0);
    std::fill(gone_.begin(), gone_.end(), 0);
    call_ = 1;
  }
  const Context& context = graph.context();
  const auto hash_of = [&](ValueId value) {
    return value != kNoValue && rehashed_[value] == call_ ? value_hashes_[value] : graph.value_hash(value);
  };
  const auto set_hash = [&](ValueId value, Hash128 hash) {
    value_hashes_[value] = hash;
    rehashed_[value] = call_;
    for (const NodeId consumer : graph.consumers(value)) stale_[consumer] = call_;
  };

  Hash128 live = graph.live_sum();
  new_hashes_.resize(recipe.values.size());
  for (std::size_t i = 0; i < recipe.nodes.size(); ++i) {
    const NewNode& node = recipe.nodes[i];
    const Hash128 hash = hash_node(context.signature(node.signature), 0, node.operand_count, [&](std::size_t k) {
      const ValueRef ref = recipe.operands[node.operand_begin + k];
      return is_new(ref) ? new_hashes_[new_index(ref)] : graph.value_hash(values[ref]);
    });
    for (std::uint32_t k = 0; k < node.value_count; ++k) new_hashes_[node.first_value + k] = hash_result(hash, k);
    if (needed_[i] && !node.weight_only) live += hash;
  }
  std::int32_t first = std::numeric_limits<std::int32_t>::max();
  for (const auto& [old, fresh] : recipe.replaced) {
    first = std::min(first, graph.rank(graph.value(values[old]).producer));
    set_hash(values[old], is_new(fresh) ? new_hashes_[new_index(fresh)] : graph.value_hash(values[fresh]));
  }
  for (const NodeId id : dead_) {
    if (!graph.node(id).weight_only) live -= graph.node_hash(id);
    gone_[id] = call_;
  }
  for (auto at = graph.order().begin() + first; at != graph.order().end(); ++at) {
    if (stale_[*at] != call_ || gone_[*at] == call_) continue;
    const Node& node = graph.node(*at);
    const auto reads = graph.operands(*at);
    const Hash128 hash = hash_node(context.signature(node.signature), node.identity, reads.size(), [&](std::size_t k) { return hash_of(reads[k]); });
    if (hash == graph.node_hash(*at)) continue;
    if (!node.weight_only) live += hash, live -= graph.node_hash(*at);
    for (std::uint32_t k = 0; k < node.output_count; ++k) set_hash(node.output_begin + static_cast<ValueId>(k), hash_result(hash, k));
  }
  Hash128 whole = hash_live(live);
  for (const ValueId output : graph.outputs()) whole = fold(whole, hash_of(output));
  return whole;
}

void Preview::change(const Graph& graph, const Recipe& recipe, std::span<const NodeId> nodes, std::span<const ValueId> values, Change& change) {
  look_at(graph, recipe, nodes, values);
  change.recipe = &recipe;
  change.values = values;
  change.dead = dead_;
  change.needed = needed_;
}

// Returns the live operator on weights alone that has this hash, or kNoNode. `reads` are its operands, which may be
// new. Constant matrices are not shared: all transforms of one kind would read the same matrix and thus become
// siblings.
static NodeId same_weights(const Graph& graph, const Signature& signature, Hash128 hash, std::span<const ValueId> reads) {
  std::span<const NodeId> among;
  if (reads.empty()) {
    if (operator_info(signature.op).name == "ConstantOfShape") among = graph.order();
  } else if (reads[0] != kNoValue && reads[0] < static_cast<ValueId>(graph.value_count())) {
    among = graph.consumers(reads[0]);
  }
  const auto at = std::find_if(among.begin(), among.end(), [&](NodeId id) { return graph.node(id).weight_only && graph.node_hash(id) == hash; });
  return at == among.end() ? kNoNode : *at;
}

void apply(const Graph& graph, const Recipe& recipe, Hash128 key, std::span<const NodeId> nodes,
           std::span<const ValueId> values, Graph& next, std::vector<ValueId>& changed) {
  next.succeed(graph);
  changed.clear();
  std::vector<ValueId> created(recipe.values.size()), operands;
  std::vector<Hash128> hashes(recipe.values.size());    // by new value, of operators on weights alone
  const auto resolve = [&](ValueRef ref) { return is_new(ref) ? created[new_index(ref)] : values[ref]; };
  for (const NewNode& node : recipe.nodes) {
    operands.clear();
    for (std::uint32_t k = 0; k < node.operand_count; ++k) operands.push_back(resolve(recipe.operands[node.operand_begin + k]));
    NodeId id = kNoNode;
    Hash128 origin = fold(key, node.first_value);
    if (node.weight_only) {    // made once, so that rules see that its readers share it, whichever rewrite made it
      const Signature& signature = graph.context().signature(node.signature);
      origin = hash_node(signature, 0, node.operand_count, [&](std::size_t k) {
        const ValueRef ref = recipe.operands[node.operand_begin + k];
        return is_new(ref) ? hashes[new_index(ref)] : graph.value_hash(values[ref]);
      });
      for (std::uint32_t k = 0; k < node.value_count; ++k) hashes[node.first_value + k] = hash_result(origin, k);
      id = same_weights(graph, signature, origin, operands);
    }
    if (id == kNoNode) id = next.add_node(node.signature, operands, graph.node(nodes[node.site_of]).site, origin);
    changed.insert(changed.end(), operands.begin(), operands.end());
    for (std::uint32_t k = 0; k < node.value_count; ++k) {
      created[node.first_value + k] = next.node(id).output_begin + static_cast<ValueId>(k);
    }
  }
  std::vector<char> named(recipe.values.size());
  for (const auto& [old, fresh] : recipe.replaced) {
    const bool take_name = is_new(fresh) && !std::exchange(named[new_index(fresh)], 1);
    next.replace(graph, values[old], resolve(fresh), take_name);
    changed.push_back(values[old]);
    changed.push_back(resolve(fresh));
  }
  next.finalize(graph);
  for (const NodeId id : graph.order()) {
    if (next.alive(id)) continue;
    const auto dead = graph.operands(id);
    changed.insert(changed.end(), dead.begin(), dead.end());
  }
  std::erase(changed, kNoValue);
}

}  // namespace rlflow
