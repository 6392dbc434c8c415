#include "features/candidate_graphs.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "features/colours.hpp"
#include "features/features.hpp"

namespace rlflow {
namespace {

constexpr std::int32_t kNoRow = -1;

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

// A tensor that an operator of a successor reads.
struct Read {
  TypeId type = 0;
  bool weight_only = false;
  std::int32_t from = kNoRow;    // the node that makes it; an operator on weights alone is none
};

class Writer {
 public:
  explicit Writer(const State& state) : state_(state), graph_(state.graph()), rows_(graph_.node_count(), kNoRow), own_rows_(rows_), input_rows_(graph_.value_count(), kNoRow) {}

  void present() {
    for (const ValueId input : graph_.inputs()) {
      input_rows_[input] = add_node(0, static_cast<float>(feature_operator_count() - 1), 0.0F);
    }
    for (const NodeId id : graph_.order()) {
      if (!graph_.node(id).weight_only) rows_[id] = add_operator(graph_.signature(id), 0);
    }
    for (const NodeId id : graph_.order()) {
      if (!graph_.node(id).weight_only) add_reads(id, rows_[id]);
    }
  }

  // Lists how the graph after a rewrite differs.
  void successor(const Change& change, std::int32_t owner, std::int64_t reach) {
    change_ = &change;
    for (const NodeId id : change.dead) own_rows_[id] = kGone;
    add_new_operators(owner);
    for (const auto& [old, fresh] : change.recipe->replaced) find_readers(change.values[old], owner);
    std::size_t first = 0;
    for (std::int64_t edges = 1; edges <= reach; ++edges) {
      const std::size_t last = found_.size();
      for (; first < last; ++first) {
        const Node& node = graph_.node(found_[first]);
        for (std::uint32_t k = 0; k < node.output_count; ++k) find_readers(node.output_begin + static_cast<ValueId>(k), owner);
      }
    }
    add_reads_of_new_operators();
    for (const NodeId id : found_) add_reads(id, own_rows_[id]);
    for (const NodeId id : found_) leave_out(id, owner);
    for (const NodeId id : change.dead) leave_out(id, owner);
    found_.clear();
    change_ = nullptr;
  }

  [[nodiscard]] const Nodes& nodes() const { return nodes_; }

 private:
  static constexpr std::int32_t kGone = -2;

  void add_new_operators(std::int32_t owner) {
    const Recipe& recipe = *change_->recipe;
    new_rows_.assign(recipe.nodes.size(), kNoRow);
    for (std::size_t i = 0; i < recipe.nodes.size(); ++i) {
      if (change_->needed[i] && !recipe.nodes[i].weight_only) new_rows_[i] = add_operator(graph_.context().signature(recipe.nodes[i].signature), owner);
    }
  }

  // Lists the operators that read a tensor, and that are not gone, as nodes of their own.
  void find_readers(ValueId value, std::int32_t owner) {
    if (graph_.value(value).weight_only) return;
    for (const NodeId id : graph_.consumers(value)) {
      if (own_rows_[id] != kNoRow || graph_.node(id).weight_only) continue;
      own_rows_[id] = add_operator(graph_.signature(id), owner);
      found_.push_back(id);
    }
  }

  // A successor has no such node, or one of its own.
  void leave_out(NodeId id, std::int32_t owner) {
    own_rows_[id] = kNoRow;
    if (rows_[id] != kNoRow) nodes_.parts.push_back({owner, rows_[id], -1});
  }

  void add_reads_of_new_operators() {
    const Recipe& recipe = *change_->recipe;
    for (std::size_t i = 0; i < recipe.nodes.size(); ++i) {
      if (new_rows_[i] == kNoRow) continue;
      const NewNode& node = recipe.nodes[i];
      for (std::uint32_t k = 0; k < node.operand_count; ++k) add_read(read(recipe.operands[node.operand_begin + k]), new_rows_[i]);
    }
  }

  // Adds what an operator reads that the present graph has too.
  void add_reads(NodeId id, std::int32_t row) {
    const auto operands = graph_.operands(id);
    for (const ValueId operand : operands) {
      ValueId value = operand;
      std::optional<ValueRef> other;    // what a replaced tensor is replaced by
      if (change_ != nullptr) {
        for (const auto& [old, fresh] : change_->recipe->replaced) {
          if (other && is_new(*other)) break;
          const ValueId replaced = change_->values[old];
          if (value != replaced || std::ranges::find(operands, replaced) == operands.end()) continue;
          other = fresh;
          if (!is_new(fresh)) value = change_->values[fresh];
        }
      }
      add_read(other ? read(*other) : read_of(value), row);
    }
  }

  [[nodiscard]] Read read(ValueRef ref) const {
    if (!is_new(ref)) return read_of(change_->values[ref]);
    const NewValue& value = change_->recipe->values[new_index(ref)];
    return {value.type, change_->recipe->nodes[value.producer].weight_only, new_rows_[value.producer]};
  }

  [[nodiscard]] Read read_of(ValueId id) const {
    if (id == kNoValue) return {};
    const Value& value = graph_.value(id);
    const NodeId producer = value.producer;
    if (producer == kNoNode) return {value.type, value.weight_only, input_rows_[id]};
    return {value.type, value.weight_only, own_rows_[producer] == kNoRow ? rows_[producer] : own_rows_[producer]};
  }

  // Adds the extents of a weight to the node at `row`, and an edge to it for any other tensor.
  void add_read(const Read& read, std::int32_t row) {
    if (read.weight_only) {
      add_extents(read.type, nodes_.rows.data() + static_cast<std::size_t>(row + 1) * kCandidateNodeColumns - kCandidateEdgeColumns);
    } else if (read.from != kNoRow) {
      nodes_.edges.resize(nodes_.edges.size() + kCandidateEdgeColumns);
      add_extents(read.type, nodes_.edges.data() + nodes_.edges.size() - kCandidateEdgeColumns);
      nodes_.links.insert(nodes_.links.end(), {read.from, row});
    }
  }

  void add_extents(TypeId type, float* extents) const {
    const auto& dims = graph_.context().type(type).dims;
    for (std::size_t i = 0; i < kCandidateEdgeColumns && i < dims.size(); ++i) {
      extents[i] += static_cast<float>(dims[dims.size() - 1 - i]) / kExtentScale;
    }
  }

  std::int32_t add_operator(const Signature& signature, std::int32_t owner) {
    const double ms = state_.game().costs().price(signature, false).ms;
    return add_node(owner, static_cast<float>(feature_operator(graph_.context(), signature.op)), log_scaled(1e3 * ms, 5.0));
  }

  std::int32_t add_node(std::int32_t owner, float op, float log_time) {
    nodes_.rows.insert(nodes_.rows.end(), {op, log_time});
    nodes_.rows.resize(nodes_.rows.size() + kCandidateEdgeColumns);
    const auto node = static_cast<std::int32_t>(nodes_.count()) - 1;
    nodes_.parts.push_back({owner, node, 1});
    return node;
  }

  const State& state_;
  const Graph& graph_;
  Nodes nodes_;
  const Change* change_ = nullptr;          // of the successor that is listed
  std::vector<std::int32_t> rows_;          // of the present graph, by node
  std::vector<std::int32_t> own_rows_;      // of the successor, by node of the present graph
  std::vector<std::int32_t> new_rows_;      // of the successor, by new node of the recipe
  std::vector<std::int32_t> input_rows_;    // by value
  std::vector<NodeId> found_;               // nodes that have rows of the successor's own
};

}  // namespace

CandidateGraphs candidate_graphs(const State& state, std::int64_t reach, std::size_t most) {
  Writer writer(state);
  writer.present();
  const std::size_t count = std::min(most, state.matches().size());
  Change change;
  for (std::size_t k = 0; k < count; ++k) {
    state.change_by(state.matches()[k], change);
    writer.successor(change, static_cast<std::int32_t>(k) + 1, reach);
  }
  return Merger(writer.nodes(), reach).merged();
}

}  // namespace rlflow
