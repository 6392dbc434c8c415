#include "graph.hpp"

#include <algorithm>
#include <numeric>

namespace rlflow {

ValueId Graph::add_input(NameId name, TypeId type) {
  values_.push_back({.type = type, .name = name, .input = static_cast<std::int32_t>(inputs_.size())});
  inputs_.push_back(static_cast<ValueId>(values_.size() - 1));
  return inputs_.back();
}

ValueId Graph::add_weight(NameId name, const std::string& handle, TypeId type) {
  values_.push_back({.type = type, .name = name, .weight = static_cast<std::int32_t>(weights_->handles.size()),
                     .weight_only = true});
  weights_->handles.push_back(handle);
  weights_->hashes.push_back(hash_bytes(handle, 15));
  return static_cast<ValueId>(values_.size() - 1);
}

NodeId Graph::add_node(SignatureId signature, std::span<const ValueId> operands, std::span<const NameId> output_names,
                       NameId name, bool stateful, std::int32_t site) {
  const auto id = static_cast<NodeId>(nodes_.size());
  const Signature& info = context_->signature(signature);
  Node node{.signature = signature,
            .input_begin = static_cast<std::uint32_t>(operands_.size()),
            .input_count = static_cast<std::uint32_t>(operands.size()),
            .output_begin = static_cast<ValueId>(values_.size()),
            .output_count = static_cast<std::uint32_t>(info.outputs.size()),
            .site = site,
            .name = name,
            .identity = stateful ? static_cast<std::uint32_t>(id + 1) : 0};
  node.weight_only = !stateful && !operands.empty();
  for (const ValueId operand : operands) {
    node.weight_only = node.weight_only && (operand == kNoValue || values_[operand].weight_only);
  }
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  for (std::uint32_t i = 0; i < node.output_count; ++i) {
    values_.push_back({.type = info.outputs[i], .producer = id, .name = i < output_names.size() ? output_names[i] : 0,
                       .weight_only = node.weight_only});
  }
  nodes_.push_back(node);
  return id;
}

void Graph::replace(ValueId old, ValueId fresh, bool take_name) {
  for (const NodeId consumer : consumers(old)) {
    const Node& node = nodes_[consumer];
    std::replace(operands_.begin() + node.input_begin, operands_.begin() + node.input_begin + node.input_count, old, fresh);
  }
  std::replace(outputs_.begin(), outputs_.end(), old, fresh);
  if (take_name) values_[fresh].name = values_[old].name;
}

void Graph::finalize() {
  const std::size_t node_count = nodes_.size(), value_count = values_.size();
  enum : std::int32_t { kDead = -1, kNeeded = -2, kOpen = -3 };
  rank_.assign(node_count, kDead);
  order_.clear();
  // Depth-first from the outputs: marks what is needed and lists it producers first.
  std::vector<std::pair<NodeId, std::uint32_t>> stack;
  for (const ValueId output : outputs_) {
    const NodeId root = values_[output].producer;
    if (root != kNoNode && rank_[root] == kDead) stack.emplace_back(root, 0), rank_[root] = kOpen;
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      const Node& node = nodes_[id];
      if (next == node.input_count) {
        rank_[id] = static_cast<std::int32_t>(order_.size());
        order_.push_back(id);
        stack.pop_back();
        continue;
      }
      const ValueId operand = operands_[node.input_begin + next++];
      const NodeId producer = operand == kNoValue ? kNoNode : values_[operand].producer;
      if (producer == kNoNode || rank_[producer] >= 0) continue;
      if (rank_[producer] == kOpen) throw InvalidInput("the nodes form a cycle; a model must be a directed acyclic graph");
      rank_[producer] = kOpen;
      stack.emplace_back(producer, 0);
    }
  }
  consumer_begin_.assign(value_count + 1, 0);
  for (const NodeId id : order_) {
    for (const ValueId operand : operands(id)) {
      if (operand != kNoValue) ++consumer_begin_[operand + 1];
    }
  }
  std::partial_sum(consumer_begin_.begin(), consumer_begin_.end(), consumer_begin_.begin());
  consumers_.resize(consumer_begin_.back());
  std::vector<std::uint32_t> fill(consumer_begin_.begin(), consumer_begin_.end() - 1);
  for (NodeId id = 0; id < static_cast<NodeId>(node_count); ++id) {    // by id: a rewrite elsewhere keeps this order
    if (rank_[id] < 0) continue;
    for (const ValueId operand : operands(id)) {
      if (operand != kNoValue) consumers_[fill[operand]++] = id;
    }
  }
  output_uses_.assign(value_count, 0);
  for (const ValueId output : outputs_) ++output_uses_[output];
}

void Graph::number_sites() {
  std::int32_t next = 0;
  for (const NodeId id : order_) {
    if (!nodes_[id].weight_only) nodes_[id].site = next++;
  }
}

std::size_t Graph::runtime_node_count() const {
  return static_cast<std::size_t>(
      std::count_if(order_.begin(), order_.end(), [&](NodeId id) { return !nodes_[id].weight_only; }));
}

Hash128 Graph::hash() const {
  std::vector<Hash128> of(values_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const ValueId input = inputs_[i];
    of[input] = fold(fold(Hash128{11, 12}, i), context_->type_hash(values_[input].type));
  }
  Hash128 live;    // a sum, so that it is the multiset of run-time nodes that counts
  std::vector<Hash128> operand_hashes;
  const auto operand_hash = [&](ValueId operand) {
    if (operand == kNoValue) return Hash128{13, 14};
    const Value& value = values_[operand];
    return value.weight >= 0 ? weights_->hashes[value.weight] : of[operand];
  };
  for (const NodeId id : order_) {
    const Node& node = nodes_[id];
    const Signature& info = context_->signature(node.signature);
    operand_hashes.clear();
    for (const ValueId operand : operands(id)) operand_hashes.push_back(operand_hash(operand));
    if (info.commutative) std::sort(operand_hashes.begin(), operand_hashes.end());
    Hash128 hash = fold(info.hash, node.identity);
    for (const Hash128& operand : operand_hashes) hash = fold(hash, operand);
    for (std::uint32_t i = 0; i < node.output_count; ++i) of[node.output_begin + i] = fold(hash, i);
    if (!node.weight_only) live = {live.high + hash.high, live.low + hash.low};
  }
  Hash128 whole = fold(Hash128{16, 17}, live);
  for (const ValueId output : outputs_) whole = fold(whole, operand_hash(output));
  return whole;
}

}  // namespace rlflow
