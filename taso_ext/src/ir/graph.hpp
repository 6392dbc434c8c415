// The graph of tensor operators in flat arrays. Nodes and values keep their ids for life; dead ones stay as slots.
#pragma once

#include <algorithm>
#include <memory>

#include "ir/context.hpp"
#include "ir/shared_array.hpp"
#include "ir/types.hpp"

namespace rlflow {

struct Node {
  SignatureId signature = 0;
  std::uint32_t input_begin = 0, input_count = 0;    // range of Graph::operands_
  ValueId output_begin = 0;
  std::uint32_t output_count = 0;
  std::int32_t site = 0;    // number of the start graph's node that this node stands for
  NameId name = 0;
  std::uint32_t identity = 0;    // nonzero for a random or stateful node, which equals only itself
  bool weight_only = false;      // computed from weights alone: free at run time and folded at export
};

struct Value {
  enum class Kind : std::uint8_t { kResult, kInput, kWeight };
  TypeId type = 0;
  NodeId producer = kNoNode;
  NameId name = 0;
  std::int32_t index = 0;    // position among the results of its producer, the graph inputs or the initializers
  Kind kind = Kind::kResult;
  bool weight_only = false;
};

inline constexpr Hash128 kNoValueHash{13, 14};    // hash of an absent optional operand

// Returns the hash of a node; operand_hash(k) returns the hash of its k-th operand.
template <typename OperandHash>
[[nodiscard]] Hash128 hash_node(const Signature& signature, std::uint32_t identity, std::size_t operands, OperandHash operand_hash) {
  Hash128 hash = identity == 0 ? signature.hash : fold(signature.hash, identity);
  if (signature.commutative) {
    const Hash128 a = operand_hash(0), b = operand_hash(1);
    return fold(fold(hash, a < b ? a : b), a < b ? b : a);
  }
  if (signature.symmetric) {
    std::vector<Hash128> sorted(operands);
    for (std::size_t k = 0; k < operands; ++k) sorted[k] = operand_hash(k);
    std::sort(sorted.begin(), sorted.end());
    for (const Hash128& operand : sorted) hash = fold(hash, operand);
    return hash;
  }
  for (std::size_t k = 0; k < operands; ++k) hash = fold(hash, operand_hash(k));
  return hash;
}
// Returns the hash of the index-th result of a node. It is not mixed: the hash of its reader mixes it.
[[nodiscard]] constexpr Hash128 hash_result(Hash128 node, std::uint32_t index) {
  return {node.high + index * 0x9e3779b97f4a7c15ULL, node.low ^ (index * 0xc2b2ae3d27d4eb4fULL)};
}
// Returns the hash of a graph from the sum of its run-time nodes' hashes; its outputs' hashes are folded in later.
[[nodiscard]] constexpr Hash128 hash_live(Hash128 live_sum) { return fold(Hash128{16, 17}, live_sum); }

// A graph. Invariant after finalize(): `order` lists exactly the nodes that some output needs, producers first;
// consumer lists and use counts describe exactly those nodes; the order of run-time nodes depends on the history alone;
// `hash` is the hash of the whole graph. A finalized graph does not change: a rewrite makes a successor.
class Graph {
 public:
  Graph() = default;    // holds nothing until it succeeds another graph
  explicit Graph(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  [[nodiscard]] Context& context() const { return *context_; }
  [[nodiscard]] const std::shared_ptr<Context>& shared_context() const { return context_; }

  // Return the numbers of slots, dead ones included.
  [[nodiscard]] std::size_t node_count() const { return nodes_.size(); }
  [[nodiscard]] std::size_t value_count() const { return values_.size(); }
  [[nodiscard]] const std::string& handle(ValueId id) const { return weights_->handles[values_[id].index]; }
  [[nodiscard]] const std::vector<ValueId>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<ValueId>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<NodeId>& order() const { return order_; }

  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id]; }
  [[nodiscard]] const Value& value(ValueId id) const { return values_[id]; }
  [[nodiscard]] bool alive(NodeId id) const { return rank_[id] >= 0; }
  [[nodiscard]] std::int32_t rank(NodeId id) const { return rank_[id]; }
  [[nodiscard]] std::span<const ValueId> operands(NodeId id) const {
    const Node& node = nodes_[id];
    return {operands_.data() + node.input_begin, node.input_count};
  }
  [[nodiscard]] const Signature& signature(NodeId id) const { return context_->signature(nodes_[id].signature); }
  [[nodiscard]] const TensorType& type(ValueId id) const { return context_->type(values_[id].type); }
  // Returns the live nodes that read a value, in order of their ids; a node occurs once for each slot that reads it.
  [[nodiscard]] std::span<const NodeId> consumers(ValueId id) const {
    return {consumers_.data() + consumer_begin_[id], consumer_begin_[id + 1] - consumer_begin_[id]};
  }
  [[nodiscard]] bool is_output(ValueId id) const { return output_uses_[id] > 0; }
  // Returns the number of operand slots and graph outputs that read a value.
  [[nodiscard]] std::int32_t uses(ValueId id) const {
    return static_cast<std::int32_t>(consumer_begin_[id + 1] - consumer_begin_[id]) + output_uses_[id];
  }
  [[nodiscard]] std::size_t runtime_node_count() const;
  // Return a hash that identifies a node or value whatever its id: by its place in the start graph, or by the rewrite
  // that made it. Graphs made by the same set of rewrites, in any order, have parts of the same origins.
  [[nodiscard]] Hash128 origin(NodeId id) const { return origins_[id]; }
  [[nodiscard]] Hash128 value_origin(ValueId id) const;
  [[nodiscard]] Hash128 hash() const { return hash_; }
  // Returns the hash without what matters only if two run-time nodes compute the same (twins): which of them is read.
  // It equals hash() if the graph has no twins.
  [[nodiscard]] Hash128 plain_hash() const { return plain_hash_; }
  // The parts of the plain hash: Merkle hashes, of everything that a node or value depends on, and their sum over the
  // run-time nodes. It is a sum so that it depends on the multiset alone.
  [[nodiscard]] Hash128 node_hash(NodeId id) const { return node_hashes_[id]; }
  [[nodiscard]] Hash128 value_hash(ValueId id) const {
    if (id == kNoValue) return kNoValueHash;
    const Value& value = values_[id];
    if (value.kind == Value::Kind::kResult) return hash_result(node_hashes_[value.producer], static_cast<std::uint32_t>(value.index));
    return value.kind == Value::Kind::kWeight ? weights_->hashes[value.index] : input_hash(value);
  }
  [[nodiscard]] Hash128 live_sum() const { return live_sum_; }
  [[nodiscard]] std::size_t memory_bytes() const;

  ValueId add_input(NameId name, TypeId type);
  ValueId add_weight(NameId name, const std::string& handle, TypeId type);
  // Adds a node and its output values (named `output_names`, or unnamed if that is empty); returns the node.
  NodeId add_node(SignatureId signature, std::span<const ValueId> operands, std::span<const NameId> output_names,
                  NameId name, bool stateful);
  void add_output(ValueId value) { outputs_.push_back(value); }
  // Establishes the invariant. Throws InvalidInput if the nodes form a cycle.
  void finalize();
  // Numbers the sites of the run-time nodes 0, 1, ... in topological order, when a model is read or an episode starts.
  void number_sites();
  // Gives all nodes new origins, which differ between seeds.
  void renew_origins(Hash128 seed);

  // Becomes a copy of `parent`, to be changed and then finalized; keeps the memory that it has allocated.
  void succeed(const Graph& parent);
  // Adds a node that a rewrite makes.
  NodeId add_node(SignatureId signature, std::span<const ValueId> operands, std::int32_t site, Hash128 origin);
  // Makes every node and output that reads `old` in `parent` read `fresh`, which gets the name of `old` if `take_name`
  // is true.
  void replace(const Graph& parent, ValueId old, ValueId fresh, bool take_name);
  // Establishes the invariant for a successor of `parent`; hashes again only what the change can reach.
  void finalize(const Graph& parent);

  // The new ids of the nodes and values that compact() keeps, in the same order; -1 for dead ones.
  struct Renumbering {
    std::vector<NodeId> nodes;
    std::vector<ValueId> values;
  };
  [[nodiscard]] bool is_sparse() const;
  Renumbering compact();

 private:
  struct Weights {
    std::vector<std::string> handles;
    std::vector<Hash128> hashes;
  };
  [[nodiscard]] Hash128 input_hash(const Value& value) const;
  NodeId append(Node node, std::span<const ValueId> operands, std::span<const NameId> output_names);
  void sort_and_link();
  // Hashes the new nodes (from `first_fresh` on), the nodes that read other operands now, and the nodes that depend on
  // these.
  void hash_from(NodeId first_fresh);
  [[nodiscard]] std::vector<NodeId> twins() const;
  [[nodiscard]] Hash128 hash_of_twins(const std::vector<NodeId>& twins) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();    // fixed once the graph is built, so copies share it
  SharedArray<Node> nodes_;
  SharedArray<Value> values_;
  SharedArray<Hash128> origins_;    // by node
  std::vector<ValueId> operands_;
  std::vector<ValueId> inputs_, outputs_;
  std::vector<Hash128> node_hashes_;
  std::vector<NodeId> rewired_;    // nodes that read other operands than in the parent
  std::vector<NodeId> order_;
  std::vector<std::int32_t> rank_;
  std::vector<std::uint32_t> consumer_begin_;
  std::vector<NodeId> consumers_;
  std::vector<std::uint8_t> output_uses_;    // 255 stands for 255 and more
  Hash128 hash_, plain_hash_, live_sum_;
};

}  // namespace rlflow
