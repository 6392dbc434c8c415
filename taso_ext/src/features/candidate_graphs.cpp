#include "features/candidate_graphs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "features/colours.hpp"
#include "features/features.hpp"

namespace rlflow {
namespace {

constexpr std::int32_t kNoRow = -1;
constexpr std::int64_t kFar = std::numeric_limits<std::int32_t>::max();

// A graph, and a node that it has (1), or has not although graph 0 has it (-1).
struct Part {
  std::int32_t graph, node, count;
};

// All nodes of graph 0, and those of any other graph that it does not share: the operators that differ in it, or that may
// see a difference over as many edges as `reach` says. An edge leads to a node of its own graph, from there or from
// graph 0.
struct Nodes {
  std::vector<float> rows;             // [N, kCandidateNodeColumns]
  std::vector<float> edges;            // [E, kCandidateEdgeColumns], in the order of their consumers
  std::vector<std::int32_t> links;     // [E, 2]: producer and consumer, as nodes
  std::vector<Part> parts;             // in the order of the graphs

  [[nodiscard]] std::size_t count() const { return rows.size() / kCandidateNodeColumns; }
};

// Lists every colour once, as the first node that has it, and counts the nodes of the graphs by colour.
class Merger {
 public:
  Merger(const Nodes& nodes, std::int64_t reach) : nodes_(nodes), rows_(nodes.count()) {
    const ColouredGraph<std::int32_t> graph{nodes.rows, nodes.edges, nodes.links, kCandidateNodeColumns, kCandidateEdgeColumns};
    const std::vector<Hash128> colours = node_colours(graph, reach, false);
    std::unordered_map<std::uint64_t, std::int32_t> known;
    for (std::size_t n = 0; n < colours.size(); ++n) {
      const auto [at, fresh] = known.try_emplace(colours[n].low, static_cast<std::int32_t>(merged_.colours.size()));
      rows_[n] = at->second;
      if (!fresh) continue;
      merged_.colours.push_back(static_cast<std::int64_t>(colours[n].low));
      const auto row = nodes.rows.begin() + static_cast<std::ptrdiff_t>(n * kCandidateNodeColumns);
      merged_.nodes.insert(merged_.nodes.end(), row, row + kCandidateNodeColumns);
      firsts_.push_back(static_cast<std::int32_t>(n));
    }
    add_edges();
    add_parts();
  }

  [[nodiscard]] CandidateGraphs merged() && { return std::move(merged_); }

 private:
  void add_edges() {
    for (std::size_t e = 0; e < nodes_.links.size() / 2; ++e) {
      const std::int32_t from = nodes_.links[2 * e], to = nodes_.links[2 * e + 1];
      if (firsts_[rows_[to]] != to) continue;
      merged_.links.insert(merged_.links.end(), {rows_[from], rows_[to]});
      const auto extents = nodes_.edges.begin() + static_cast<std::ptrdiff_t>(e * kCandidateEdgeColumns);
      merged_.edges.insert(merged_.edges.end(), extents, extents + kCandidateEdgeColumns);
    }
  }

  void add_parts() {
    std::vector<std::int32_t> counts(firsts_.size()), touched;
    for (auto part = nodes_.parts.begin(); part != nodes_.parts.end();) {
      const std::int32_t graph = part->graph;
      for (; part != nodes_.parts.end() && part->graph == graph; ++part) {
        const std::int32_t row = rows_[part->node];
        if (counts[row] == 0) touched.push_back(row);
        counts[row] += part->count;
      }
      std::ranges::sort(touched);
      for (const std::int32_t row : touched) {
        if (counts[row] == 0) continue;    // as many as in graph 0, or listed before
        merged_.parts.insert(merged_.parts.end(), {graph, row});
        merged_.counts.push_back(std::exchange(counts[row], 0));
      }
      touched.clear();
    }
  }

  const Nodes& nodes_;
  CandidateGraphs merged_;
  std::vector<std::int32_t> rows_;      // by node, the row of its colour
  std::vector<std::int32_t> firsts_;    // by this row, the first node
};

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
      nodes_.parts.push_back({owner, rows_[id], -1});
    }
  }

  [[nodiscard]] const Nodes& nodes() const { return nodes_; }

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
    float* const extents = nodes_.rows.data() + nodes_.rows.size() - kCandidateEdgeColumns;
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
    nodes_.rows.insert(nodes_.rows.end(), {op, log_time});
    nodes_.rows.resize(nodes_.rows.size() + kCandidateEdgeColumns);
    const auto node = static_cast<std::int32_t>(nodes_.count()) - 1;
    nodes_.parts.push_back({owner, node, 1});
    return node;
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
      nodes_.edges.insert(nodes_.edges.end(), extents, extents + kCandidateEdgeColumns);
      nodes_.links.insert(nodes_.links.end(), {from, row});
    }
  }

  const State& state_;
  Nodes nodes_;
  std::vector<std::int32_t> rows_, input_rows_;    // of the present graph: by node and by value
  std::vector<std::int32_t> own_rows_;             // of a successor, by node
  std::vector<std::int64_t> distances_;
};

}  // namespace

CandidateGraphs candidate_graphs(const State& state, std::int64_t reach, std::size_t most) {
  Writer writer(state);
  writer.present();
  const std::size_t count = std::min(most, state.matches().size());
  Graph next;
  for (std::size_t k = 0; k < count; ++k) {
    state.graph_after(state.matches()[k], next);
    writer.successor(next, static_cast<std::int32_t>(k) + 1, reach);
  }
  return Merger(writer.nodes(), reach).merged();
}

}  // namespace rlflow
