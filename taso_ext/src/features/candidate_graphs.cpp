#include "features/candidate_graphs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "features/features.hpp"

namespace rlflow {
namespace {

constexpr std::int32_t kNoRow = -1;
constexpr std::int64_t kFar = std::numeric_limits<std::int32_t>::max();

class Writer {
 public:
  explicit Writer(const State& state) : state_(state), rows_(state.graph().node_count(), kNoRow) {}

  void present() {
    const Graph& graph = state_.graph();
    input_rows_.resize(graph.value_count(), kNoRow);
    for (const ValueId input : graph.inputs()) {
      input_rows_[input] = add_node(0, static_cast<float>(feature_operator_count() - 1), 0.0F);
    }
    for (const NodeId id : graph.order()) {
      if (!graph.node(id).weight_only) rows_[id] = add_operator(graph, id, 0);
    }
    for (const NodeId id : graph.order()) {
      if (!graph.node(id).weight_only) add_edges(graph, id, rows_[id], {});
    }
  }

  // `next` is a successor of the present graph.
  void successor(const Graph& next, std::int32_t owner, std::int64_t reach) {
    const Graph& graph = state_.graph();
    find_distances(next);
    own_rows_.assign(next.node_count(), kNoRow);
    for (const NodeId id : next.order()) {
      if (!next.node(id).weight_only && distances_[id] <= reach) own_rows_[id] = add_operator(next, id, owner);
    }
    for (const NodeId id : next.order()) {
      if (own_rows_[id] != kNoRow) add_edges(next, id, own_rows_[id], own_rows_);
    }
    for (const NodeId id : graph.order()) {
      if (rows_[id] == kNoRow || (next.alive(id) && own_rows_[id] == kNoRow)) continue;
      graphs_.gone.insert(graphs_.gone.end(), {owner, rows_[id]});
    }
  }

  [[nodiscard]] CandidateGraphs finish(std::int64_t reach) {
    colour(reach);
    return std::move(graphs_);
  }

 private:
  // Finds, for each operator of a successor, the least number of edges from an operator that differs.
  void find_distances(const Graph& next) {
    distances_.assign(next.node_count(), kFar);
    for (const NodeId id : next.order()) {
      if (next.node(id).weight_only) continue;
      if (differs(next, id)) {
        distances_[id] = 0;
        continue;
      }
      for (const ValueId operand : next.operands(id)) {
        if (operand == kNoValue || next.value(operand).weight_only || next.value(operand).producer == kNoNode) continue;
        distances_[id] = std::min(distances_[id], distances_[next.value(operand).producer] + 1);
      }
    }
  }

  [[nodiscard]] bool differs(const Graph& next, NodeId id) const {
    const Graph& graph = state_.graph();
    return static_cast<std::size_t>(id) >= graph.node_count() || !graph.alive(id) || !std::ranges::equal(graph.operands(id), next.operands(id));
  }

  std::int32_t add_operator(const Graph& graph, NodeId id, std::int32_t owner) {
    const Signature& signature = graph.signature(id);
    const double ms = state_.game().costs().price(signature, false).ms;
    const std::int32_t row = add_node(owner, static_cast<float>(feature_operator(graph.context(), signature.op)), log_scaled(1e3 * ms, 5.0));
    float* const extents = graphs_.nodes.data() + graphs_.nodes.size() - kCandidateEdgeColumns;
    for (const ValueId operand : graph.operands(id)) {
      if (operand != kNoValue && graph.value(operand).weight_only) add_extents(graph.type(operand), extents);
    }
    return row;
  }

  static void add_extents(const TensorType& type, float* extents) {
    const auto& dims = type.dims;
    for (std::size_t i = 0; i < kCandidateEdgeColumns && i < dims.size(); ++i) {
      extents[i] += static_cast<float>(dims[dims.size() - 1 - i]) / kExtentScale;
    }
  }

  std::int32_t add_node(std::int32_t owner, float op, float log_time) {
    graphs_.nodes.insert(graphs_.nodes.end(), {op, log_time});
    graphs_.nodes.resize(graphs_.nodes.size() + kCandidateEdgeColumns);
    graphs_.owners.push_back(owner);
    return static_cast<std::int32_t>(graphs_.owners.size()) - 1;
  }

  // Adds the edges to a node at `row`; where `own` has a row for a producer, that one is taken.
  void add_edges(const Graph& graph, NodeId id, std::int32_t row, const std::vector<std::int32_t>& own) {
    for (const ValueId operand : graph.operands(id)) {
      if (operand == kNoValue || graph.value(operand).weight_only) continue;
      const NodeId producer = graph.value(operand).producer;
      std::int32_t from = kNoRow;
      if (producer == kNoNode) from = input_rows_[operand];
      else from = !own.empty() && own[producer] != kNoRow ? own[producer] : rows_[producer];
      float extents[kCandidateEdgeColumns] = {};
      add_extents(graph.type(operand), extents);
      graphs_.edges.insert(graphs_.edges.end(), extents, extents + kCandidateEdgeColumns);
      graphs_.links.insert(graphs_.links.end(), {from, row});
    }
  }

  // Colours nodes: first by their own row and the rows of their edges, then in each round by what they read as well.
  // Colours are hashes of nothing else, so that they mean the same in all states.
  void colour(std::int64_t reach) {
    const std::vector<Hash128> edges = hashes<kCandidateEdgeColumns>(graphs_.edges);
    std::vector<Hash128> colours = hashes<kCandidateNodeColumns>(graphs_.nodes), before;
    const auto read = [&](auto seen) {    // the order in which a node reads makes no difference
      std::vector<Hash128> sums(colours.size());
      for (std::size_t e = 0; e < edges.size(); ++e) sums[graphs_.links[2 * e + 1]] += seen(e);
      for (std::size_t n = 0; n < colours.size(); ++n) colours[n] = fold(colours[n], sums[n]);
    };
    read([&](std::size_t e) { return edges[e]; });
    for (std::int64_t round = 0; round < reach; ++round) {
      before = colours;
      read([&](std::size_t e) { return fold(edges[e], before[graphs_.links[2 * e]]); });
    }
    graphs_.colours.reserve(colours.size());
    for (const Hash128& each : colours) graphs_.colours.push_back(static_cast<std::int64_t>(each.low));
  }

  // Returns the hash of every row of a table.
  template <std::size_t Columns>
  [[nodiscard]] static std::vector<Hash128> hashes(const std::vector<float>& table) {
    std::vector<Hash128> found(table.size() / Columns, Hash128{Columns, 1});
    for (std::size_t i = 0; i < table.size(); ++i) found[i / Columns] = fold(found[i / Columns], std::bit_cast<std::uint32_t>(table[i]));
    return found;
  }

  const State& state_;
  CandidateGraphs graphs_;
  std::vector<std::int32_t> rows_, input_rows_;    // of the present graph: by node and by value
  std::vector<std::int32_t> own_rows_;             // of a successor, by node
  std::vector<std::int64_t> distances_;
};

}  // namespace

CandidateGraphs candidate_graphs(const State& state, std::int64_t reach, std::size_t most) {
  Writer writer(state);
  writer.present();
  const std::size_t count = std::min(most, state.matches().size());
  for (std::size_t k = 0; k < count; ++k) {
    writer.successor(state.graph_after(state.matches()[k]), static_cast<std::int32_t>(k) + 1, reach);
  }
  return writer.finish(reach);
}

}  // namespace rlflow
