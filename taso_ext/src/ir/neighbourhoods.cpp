#include "ir/neighbourhoods.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace rlflow {
namespace {

enum class Source : std::uint64_t { kAbsent = 1, kInput, kWeight, kResult };

Source source(const Graph& graph, ValueId operand) {
  if (operand == kNoValue) return Source::kAbsent;
  const Value& value = graph.value(operand);
  if (value.weight_only) return Source::kWeight;
  return value.producer == kNoNode ? Source::kInput : Source::kResult;
}

// The sizes that weights_mb() returns; they are closest together around the sizes of caches.
constexpr auto kWeightsMb = std::to_array<std::int64_t>({1, 2, 4, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512});

// Returns the hash of an operator alone: its signature, the types and sources of its operands, and which of its results
// are outputs of the graph.
Hash128 name_of(const Graph& graph, NodeId id) {
  Hash128 name = graph.signature(id).hash;
  for (const ValueId operand : graph.operands(id)) {
    name = fold(name, static_cast<std::uint64_t>(source(graph, operand)));
    if (operand != kNoValue) name = fold(name, graph.context().type_hash(graph.value(operand).type));
  }
  const Node& node = graph.node(id);
  for (std::uint32_t k = 0; k < node.output_count; ++k) name = fold(name, graph.is_output(node.output_begin + static_cast<ValueId>(k)));
  return name;
}

// Returns the hash of an operator with the operators that it reads and those that read it.
Hash128 name_with_neighbours(const Graph& graph, NodeId id, const std::vector<Hash128>& names) {
  Hash128 name = names[id];
  for (const ValueId operand : graph.operands(id)) {
    if (source(graph, operand) == Source::kResult) name = fold(name, hash_result(names[graph.value(operand).producer], graph.value(operand).index));
  }
  const Node& node = graph.node(id);
  Hash128 readers{25, 26};    // a sum, because readers have no order
  for (std::uint32_t k = 0; k < node.output_count; ++k) {
    for (const NodeId reader : graph.consumers(node.output_begin + static_cast<ValueId>(k))) readers += fold(names[reader], k);
  }
  return fold(name, readers);
}

// Returns the opset that the graph is written in: `newest`, or a newer one that an operator needs. A model is of one
// opset throughout, and runtimes know fewer fusions in newer ones.
std::uint64_t written_opset(const Graph& graph, const std::vector<NodeId>& nodes, int newest) {
  for (const NodeId id : nodes) {
    const OperatorId op = graph.signature(id).op;
    if (op >= known_operator_count()) continue;
    const OperatorInfo& info = operator_info(op);
    if (info.domain.empty()) newest = std::max(newest, info.since);
  }
  return static_cast<std::uint64_t>(newest);
}

}  // namespace

std::int64_t weights_mb(const Graph& graph) {
  std::vector<char> counted(graph.value_count());
  double bytes = 0;
  for (const NodeId id : graph.order()) {
    if (graph.node(id).weight_only) continue;
    for (const ValueId operand : graph.operands(id)) {
      if (source(graph, operand) == Source::kWeight && !std::exchange(counted[operand], 1)) bytes += static_cast<double>(graph.type(operand).bytes());
    }
  }
  const auto distance = [&](std::int64_t size) { return std::abs(std::log(std::max(bytes, 1.0) / (1e6 * static_cast<double>(size)))); };
  return *std::ranges::min_element(kWeightsMb, {}, distance);
}

namespace {

// Calls `visit` with the run-time operators and the names of all nodes, after 0, 1, … and `distance` rounds of refinement.
template <typename Visit>
void refine(const Graph& graph, int opset, int distance, Visit visit) {
  std::vector<NodeId> nodes;
  for (const NodeId id : graph.order()) {
    if (!graph.node(id).weight_only) nodes.push_back(id);
  }
  std::vector<Hash128> names(graph.node_count()), wider(graph.node_count());
  const Hash128 whole = fold(Hash128{27, 28}, Hash128{written_opset(graph, nodes, opset), static_cast<std::uint64_t>(weights_mb(graph))});
  for (const NodeId id : nodes) names[id] = fold(name_of(graph, id), whole);
  visit(0, nodes, names);
  for (int round = 1; round <= distance; ++round) {
    for (const NodeId id : nodes) wider[id] = name_with_neighbours(graph, id, names);
    names.swap(wider);
    visit(round, nodes, names);
  }
}

}  // namespace

std::vector<std::uint64_t> neighbourhood_signatures(const Graph& graph, int opset, int distance) {
  std::vector<std::uint64_t> found;
  refine(graph, opset, distance, [&](int round, const std::vector<NodeId>& nodes, const std::vector<Hash128>& names) {
    if (round != distance) return;
    found.reserve(nodes.size());
    for (const NodeId id : nodes) found.push_back(names[id].high);
  });
  return found;
}

double sum_of_weights(const Graph& graph, const SignatureWeights& weights) {
  double sum = 0;
  refine(graph, weights.opset, weights.distance, [&](int, const std::vector<NodeId>& nodes, const std::vector<Hash128>& names) {
    for (const NodeId id : nodes) {
      if (const auto found = weights.of.find(names[id].high); found != weights.of.end()) sum += found->second;
    }
  });
  return sum;
}

}  // namespace rlflow
