#include "ir/graph.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace rlflow {

ValueId Graph::add_input(NameId name, TypeId type) {
  values_.push_back({.type = type, .name = name, .index = static_cast<std::int32_t>(inputs_.size()), .kind = Value::Kind::kInput});
  inputs_.push_back(static_cast<ValueId>(values_.size() - 1));
  return inputs_.back();
}

ValueId Graph::add_weight(NameId name, const std::string& handle, TypeId type) {
  values_.push_back({.type = type, .name = name, .index = static_cast<std::int32_t>(weights_->handles.size()),
                     .kind = Value::Kind::kWeight, .weight_only = true});
  weights_->handles.push_back(handle);
  weights_->hashes.push_back(hash_bytes(handle, 15));
  return static_cast<ValueId>(values_.size() - 1);
}

NodeId Graph::add_node(SignatureId signature, std::span<const ValueId> operands, std::span<const NameId> output_names,
                       NameId name, bool stateful) {
  const auto id = static_cast<std::uint32_t>(nodes_.size());
  return append({.signature = signature, .name = name, .identity = stateful ? id + 1 : 0}, operands, output_names);
}

NodeId Graph::add_node(SignatureId signature, std::span<const ValueId> operands, std::int32_t site, Hash128 origin) {
  origins_.push_back(origin);
  return append({.signature = signature, .site = site}, operands, {});
}

// Adds a node whose signature, site, name and identity are given.
NodeId Graph::append(Node node, std::span<const ValueId> operands, std::span<const NameId> output_names) {
  const auto id = static_cast<NodeId>(nodes_.size());
  const Signature& info = context_->signature(node.signature);
  node.input_begin = static_cast<std::uint32_t>(operands_.size());
  node.input_count = static_cast<std::uint32_t>(operands.size());
  node.output_begin = static_cast<ValueId>(values_.size());
  node.output_count = static_cast<std::uint32_t>(info.outputs.size());
  node.weight_only = node.identity == 0 && (!operands.empty() || info.constant);
  for (const ValueId operand : operands) {
    node.weight_only = node.weight_only && (operand == kNoValue || values_[operand].weight_only);
  }
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  for (std::uint32_t i = 0; i < node.output_count; ++i) {
    values_.push_back({.type = info.outputs[i], .producer = id, .name = i < output_names.size() ? output_names[i] : 0,
                       .index = static_cast<std::int32_t>(i), .weight_only = node.weight_only});
  }
  nodes_.push_back(node);
  return id;
}

Hash128 Graph::value_origin(ValueId id) const {
  const Value& value = values_[id];
  const Hash128 of = value.kind == Value::Kind::kResult ? origins_[value.producer] : Hash128{18, static_cast<std::uint64_t>(value.kind)};
  return fold(of, static_cast<std::uint64_t>(value.index));
}

void Graph::succeed(const Graph& parent) {
  // Leaves room for a typical rewrite, so that adding to the copy does not move it again.
  const auto copy = [](const auto& from, auto& to, std::size_t room) {
    if (to.capacity() < from.size() + room) {
      to.clear();
      to.reserve(from.size() + from.size() / 16 + room);
    }
    to.assign(from.begin(), from.end());
  };
  context_ = parent.context_;
  weights_ = parent.weights_;
  nodes_.assign(parent.nodes_);
  values_.assign(parent.values_);
  origins_.assign(parent.origins_);
  copy(parent.operands_, operands_, 32);
  copy(parent.node_hashes_, node_hashes_, 8);
  inputs_ = parent.inputs_;
  outputs_ = parent.outputs_;
  rewired_.clear();
}

void Graph::replace(const Graph& parent, ValueId old, ValueId fresh, bool take_name) {
  for (const NodeId consumer : parent.consumers(old)) {
    const Node& node = nodes_[consumer];
    std::replace(operands_.begin() + node.input_begin, operands_.begin() + node.input_begin + node.input_count, old, fresh);
    rewired_.push_back(consumer);
  }
  std::replace(outputs_.begin(), outputs_.end(), old, fresh);
  if (take_name) values_.own(fresh).name = values_[old].name;    // `fresh` belongs to this rewrite, so it is not shared
}

void Graph::finalize() {
  nodes_.freeze();
  values_.freeze();
  renew_origins({19, 20});
  sort_and_link();
  node_hashes_.clear();
  hash_from(0);
}

void Graph::finalize(const Graph& parent) {
  sort_and_link();
  hash_from(static_cast<NodeId>(parent.nodes_.size()));
}

void Graph::sort_and_link() {
  const std::size_t node_count = nodes_.size(), value_count = values_.size();
  enum : std::int32_t { kDead = -1, kNeeded = -2, kOpen = -3 };
  rank_.assign(node_count, kDead);
  order_.clear();
  // A depth-first walk from the outputs marks the nodes that are needed and lists them, producers first.
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
  for (const ValueId output : outputs_) output_uses_[output] += output_uses_[output] < 255;
}

void Graph::renew_origins(Hash128 seed) {
  std::vector<Hash128> origins;
  for (std::size_t id = 0; id < nodes_.size(); ++id) origins.push_back(fold(seed, id));
  origins_.freeze(std::move(origins));
}

void Graph::number_sites() {
  std::vector<Node> nodes = nodes_.take();
  std::int32_t next = 0;
  for (const NodeId id : order_) {
    if (!nodes[id].weight_only) nodes[id].site = next++;
  }
  nodes_.freeze(std::move(nodes));
}

std::size_t Graph::runtime_node_count() const {
  return static_cast<std::size_t>(
      std::count_if(order_.begin(), order_.end(), [&](NodeId id) { return !nodes_[id].weight_only; }));
}

Hash128 Graph::input_hash(const Value& value) const {
  return fold(fold(Hash128{11, 12}, static_cast<std::uint64_t>(value.index)), context_->type_hash(value.type));
}

void Graph::hash_from(NodeId first_fresh) {
  node_hashes_.resize(nodes_.size());
  std::vector<char> stale(nodes_.size());
  for (const NodeId id : rewired_) stale[id] = 1;
  rewired_.clear();
  std::fill(stale.begin() + first_fresh, stale.end(), char{1});
  live_sum_ = {};
  for (const NodeId id : order_) {
    const Node& node = nodes_[id];
    if (stale[id]) {
      const auto reads = operands(id);
      const Hash128 hash = hash_node(context_->signature(node.signature), node.identity, reads.size(),
                                     [&](std::size_t k) { return value_hash(reads[k]); });
      if (hash != node_hashes_[id]) {
        node_hashes_[id] = hash;
        for (std::uint32_t i = 0; i < node.output_count; ++i) {
          for (const NodeId consumer : consumers(node.output_begin + static_cast<ValueId>(i))) stale[consumer] = 1;
        }
      }
    }
    if (!node.weight_only) live_sum_ += node_hashes_[id];
  }
  plain_hash_ = hash_live(live_sum_);
  for (const ValueId output : outputs_) plain_hash_ = fold(plain_hash_, value_hash(output));
  const std::vector<NodeId> same = twins();
  hash_ = same.empty() ? plain_hash_ : fold(plain_hash_, hash_of_twins(same));
}

// Returns the live run-time nodes that compute the same as another one.
std::vector<NodeId> Graph::twins() const {
  const std::size_t size = std::bit_ceil(2 * order_.size() + 1);
  thread_local std::vector<NodeId> table;
  table.assign(size, kNoNode);
  std::vector<NodeId> found;
  std::vector<char> has_twin;
  for (const NodeId id : order_) {
    if (nodes_[id].weight_only) continue;
    std::size_t at = node_hashes_[id].low & (size - 1);
    while (table[at] != kNoNode && node_hashes_[table[at]] != node_hashes_[id]) at = (at + 1) & (size - 1);
    if (table[at] == kNoNode) {
      table[at] = id;
      continue;
    }
    has_twin.resize(nodes_.size());
    if (!std::exchange(has_twin[table[at]], 1)) found.push_back(table[at]);
    has_twin[id] = 1;
    found.push_back(id);
  }
  return found;
}

// Returns a hash of the twins and their connections. Colours nodes by what they compute. Then colours the twins by the
// colours of all nodes that depend on them and of all nodes that they depend on, until a repetition tells no more twins
// apart (Weisfeiler and Leman's refinement). Each repetition is a sweep against the order and one along it, so that a
// colour travels any distance at once.
Hash128 Graph::hash_of_twins(const std::vector<NodeId>& twins) const {
  std::vector<Hash128> colour = node_hashes_, seen(nodes_.size());
  std::vector<char> is_twin(nodes_.size());
  for (const NodeId id : twins) is_twin[id] = 1;
  const auto twin_at = [&](ValueId operand) {
    const NodeId producer = operand == kNoValue ? kNoNode : values_[operand].producer;
    return producer != kNoNode && is_twin[producer] ? producer : kNoNode;
  };
  std::vector<NodeId> involved;    // twins and their readers, producers first
  for (const NodeId id : order_) {
    const auto reads = operands(id);
    if (is_twin[id] || std::any_of(reads.begin(), reads.end(), [&](ValueId v) { return twin_at(v) != kNoNode; })) involved.push_back(id);
  }
  // Returns the hash of an operand slot and of the result that it reads; all slots of a symmetric operator are alike.
  const auto place = [&](NodeId reader, std::size_t slot, ValueId operand) {
    return fold(Hash128{22, signature(reader).symmetric ? 0 : slot}, static_cast<std::uint64_t>(values_[operand].index));
  };
  const auto against = [&] {
    for (const NodeId id : twins) seen[id] = {};
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const NodeId twin = twin_at(outputs_[k]);
      if (twin != kNoNode) seen[twin] += fold(Hash128{23, k}, static_cast<std::uint64_t>(values_[outputs_[k]].index));
    }
    for (auto at = involved.rbegin(); at != involved.rend(); ++at) {
      if (is_twin[*at]) colour[*at] = fold(colour[*at], seen[*at]);
      const auto reads = operands(*at);
      for (std::size_t k = 0; k < reads.size(); ++k) {
        const NodeId twin = twin_at(reads[k]);
        if (twin != kNoNode) seen[twin] += fold(place(*at, k, reads[k]), colour[*at]);
      }
    }
  };
  const auto along = [&] {
    for (const NodeId id : involved) {
      if (!is_twin[id]) continue;
      Hash128 sum;
      const auto reads = operands(id);
      for (std::size_t k = 0; k < reads.size(); ++k) {
        const NodeId twin = twin_at(reads[k]);
        if (twin != kNoNode) sum += fold(place(id, k, reads[k]), colour[twin]);
      }
      colour[id] = fold(colour[id], sum);
    }
  };
  std::vector<Hash128> kinds;
  const auto count_kinds = [&] {
    kinds.clear();
    for (const NodeId id : twins) kinds.push_back(colour[id]);
    std::sort(kinds.begin(), kinds.end());
    return static_cast<std::size_t>(std::unique(kinds.begin(), kinds.end()) - kinds.begin());
  };
  std::size_t told_apart = 0;
  for (std::size_t count = count_kinds(); count > told_apart; count = count_kinds()) {
    told_apart = count;
    against();
    along();
  }
  Hash128 sum;
  for (const NodeId id : twins) sum += colour[id];
  return sum;
}

std::size_t Graph::memory_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof *this + nodes_.own_bytes() + values_.own_bytes() + origins_.own_bytes() + bytes(operands_) + bytes(inputs_) + bytes(outputs_) +
         bytes(node_hashes_) + bytes(order_) + bytes(rank_) + bytes(consumer_begin_) + bytes(consumers_) + bytes(output_uses_);
}

bool Graph::is_sparse() const {
  constexpr std::size_t kAlwaysKept = 1024;    // dead slots that are not worth a compaction
  return nodes_.size() > 2 * order_.size() + kAlwaysKept;
}

Graph::Renumbering Graph::compact() {
  Renumbering to{std::vector<NodeId>(nodes_.size(), kNoNode), std::vector<ValueId>(values_.size(), kNoValue)};
  Graph kept(context_);
  kept.weights_ = weights_;
  std::vector<Value> values;
  for (ValueId id = 0; id < static_cast<ValueId>(values_.size()); ++id) {
    const Value& value = values_[id];
    if (value.producer != kNoNode && rank_[value.producer] < 0) continue;
    to.values[id] = static_cast<ValueId>(values.size());
    values.push_back(value);
  }
  std::vector<Node> nodes;
  std::vector<Hash128> origins;
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    if (rank_[id] < 0) continue;
    to.nodes[id] = static_cast<NodeId>(nodes.size());
    Node node = nodes_[id];
    node.input_begin = static_cast<std::uint32_t>(kept.operands_.size());
    if (node.output_count > 0) node.output_begin = to.values[node.output_begin];
    for (const ValueId operand : operands(id)) kept.operands_.push_back(operand == kNoValue ? kNoValue : to.values[operand]);
    nodes.push_back(node);
    origins.push_back(origins_[id]);
    kept.node_hashes_.push_back(node_hashes_[id]);
  }
  for (Value& value : values) {
    if (value.producer != kNoNode) value.producer = to.nodes[value.producer];
  }
  kept.nodes_.freeze(std::move(nodes));
  kept.values_.freeze(std::move(values));
  kept.origins_.freeze(std::move(origins));
  for (const ValueId input : inputs_) kept.inputs_.push_back(to.values[input]);
  for (const ValueId output : outputs_) kept.outputs_.push_back(to.values[output]);
  kept.sort_and_link();
  kept.hash_ = hash_;
  kept.plain_hash_ = plain_hash_;
  kept.live_sum_ = live_sum_;
  *this = std::move(kept);
  return to;
}

}  // namespace rlflow
