#include "features/features.hpp"

#include <algorithm>
#include <cmath>

namespace rlflow {
namespace {

void put_extents(const TensorType& type, float* out) {
  for (std::size_t i = 0; i < kFeatureExtents && i < type.dims.size(); ++i) {
    out[i] = log_scaled(static_cast<double>(type.dims[type.dims.size() - 1 - i]), 8.0);
  }
}

// Returns, by node, the position of a run-time node among the run-time nodes, and sets `count` to their number. Ranks
// would also count weight-only nodes, whose order has no meaning.
std::vector<std::int32_t> runtime_positions(const Graph& graph, std::int32_t& count) {
  std::vector<std::int32_t> positions(graph.node_count());
  count = 0;
  for (const NodeId id : graph.order()) {
    if (!graph.node(id).weight_only) positions[id] = count++;
  }
  return positions;
}

// Returns the nodes of all matches of a rule, each once.
std::vector<NodeId> nodes_of_rule(const State& state, std::int32_t rule) {
  std::vector<NodeId> nodes;
  for (const Match& match : state.matches()) {
    if (match.rule == rule) nodes.insert(nodes.end(), state.nodes(match).begin(), state.nodes(match).end());
  }
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

}  // namespace

std::uint32_t feature_operator_count() { return known_operator_count() + kUnknownBuckets + 1; }

std::uint32_t feature_operator(const Context& context, OperatorId op) {
  if (op < known_operator_count()) return op;
  const auto [domain, op_type] = context.op_name(op);
  return known_operator_count() + static_cast<std::uint32_t>(hash_bytes(op_type, 21).low % kUnknownBuckets);
}

float log_scaled(double value, double scale) { return static_cast<float>(std::log1p(std::max(0.0, value)) / scale); }

Features graph_features(const State& state) {
  Features features;
  const Graph& graph = state.graph();
  const Context& context = graph.context();
  std::vector<std::int64_t> row(graph.value_count(), -1);
  const auto add_row = [&]() -> float* {
    features.nodes.resize(features.nodes.size() + kNodeFeatures);
    return features.nodes.data() + features.nodes.size() - kNodeFeatures;
  };
  std::int64_t next = 0;
  for (const ValueId input : graph.inputs()) {
    float* out = add_row();
    out[0] = static_cast<float>(feature_operator_count() - 1);
    put_extents(graph.type(input), out + 7);
    row[input] = next++;
  }
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (node.weight_only) continue;
    const Signature& signature = graph.signature(id);
    float* out = add_row();
    out[0] = static_cast<float>(feature_operator(context, signature.op));
    out[1] = log_scaled(1e3 * state.node_ms()[id], 5.0);
    out[2] = log_scaled(signature.flops, 20.0);
    out[3] = log_scaled(signature.bytes, 20.0);
    out[4] = state.fused()[id] ? 1.0F : 0.0F;
    double weight_elements = 0;
    for (const ValueId operand : graph.operands(id)) {
      if (operand == kNoValue) continue;
      if (graph.value(operand).weight_only) {
        out[5] += 0.5F;
        weight_elements += static_cast<double>(graph.type(operand).elements());
        continue;
      }
      float edge[kEdgeFeatures] = {static_cast<float>(std::clamp(graph.type(operand).dtype, 0, kDtypes - 1))};
      put_extents(graph.type(operand), edge + 1);
      features.edges.insert(features.edges.end(), edge, edge + kEdgeFeatures);
      features.links.push_back(row[operand]);
      features.links.push_back(next);
    }
    out[6] = log_scaled(weight_elements, 20.0);
    if (node.output_count > 0) put_extents(graph.type(node.output_begin), out + 7);
    for (std::uint32_t k = 0; k < node.output_count; ++k) row[node.output_begin + static_cast<ValueId>(k)] = next;
    ++next;
  }
  return features;
}

std::vector<std::int32_t> matched_rows(const State& state) {
  const Graph& graph = state.graph();
  const auto first_row = static_cast<std::int32_t>(graph.inputs().size());
  std::int32_t runtime_nodes = 0;
  const std::vector<std::int32_t> positions = runtime_positions(graph, runtime_nodes);
  std::vector<std::int32_t> pairs, rows;
  for (std::size_t k = 0; k < state.matches().size(); ++k) {
    rows.clear();
    for (const NodeId id : state.nodes(state.matches()[k])) {
      if (!graph.node(id).weight_only) rows.push_back(first_row + positions[id]);
    }
    std::ranges::sort(rows);
    for (const std::int32_t row : rows) pairs.insert(pairs.end(), {static_cast<std::int32_t>(k), row});
  }
  return pairs;
}

void put_candidate_features(const State& state, const CandidateColumns& columns, std::span<float> rows) {
  std::fill(rows.begin(), rows.end(), 0.0F);
  const Graph& graph = state.graph();
  const std::size_t width = columns.count(state), rules = state.game().rules().size();
  const auto put_rule = [&](float* row, std::size_t rule) {
    if (columns.one_hot_rules) row[rule] = 1.0F;
    else row[0] = static_cast<float>(rule + 1) / static_cast<float>(rules + 1);
  };
  put_rule(rows.data(), rules);
  const auto put_work = [&](float* row, std::span<const NodeId> nodes) {
    double flops = 0, bytes = 0;
    for (const NodeId id : nodes) {
      flops += graph.signature(id).flops;
      bytes += graph.signature(id).bytes;
    }
    row[2] = log_scaled(flops, 20.0);
    row[3] = log_scaled(bytes, 20.0);
  };
  const auto put_change = [&](float* row, const Candidate& candidate) {
    // A graph that consists of views alone costs nothing, so there is no ratio.
    if (state.cost_ms() > 0 && candidate.cost_ms > 0) row[4] = static_cast<float>(100.0 * std::log(candidate.cost_ms / state.cost_ms()));
  };
  const std::size_t places = rows.size() / width - 1;
  std::size_t used = 0;
  const auto next_row = [&](std::int32_t rule, bool everywhere) {
    float* row = rows.data() + ++used * width;
    put_rule(row, static_cast<std::size_t>(rule));
    row += columns.rule_columns(state);
    if (everywhere) row[0] = 1.0F;
    return row + (columns.everywhere ? 1 : 0);
  };
  if (columns.everywhere) {
    std::vector<Candidate> candidates;
    if (columns.costs) candidates = everywhere_candidates(state);
    else for (const std::int32_t rule : rules_everywhere(state)) candidates.push_back({rule});
    for (std::size_t k = 0; k < candidates.size() && used < places; ++k) {
      float* row = next_row(candidates[k].rule, true);
      put_work(row, nodes_of_rule(state, candidates[k].rule));
      if (columns.costs) put_change(row, candidates[k]);
    }
  }
  std::int32_t runtime_nodes = 0;
  const std::vector<std::int32_t> positions = runtime_positions(graph, runtime_nodes);
  const std::vector<Candidate> priced = columns.costs ? state.candidates() : std::vector<Candidate>();
  for (std::size_t k = 0; k < state.matches().size() && used < places; ++k) {
    const Match& match = state.matches()[k];
    const auto nodes = state.nodes(match);
    float* row = next_row(match.rule, false);
    row[0] = static_cast<float>(match.location + 1) / static_cast<float>(state.game().locations());
    row[1] = static_cast<float>(positions[nodes[match.recipe->root]] + 1) / static_cast<float>(runtime_nodes);
    put_work(row, nodes);
    if (columns.costs) put_change(row, priced[k]);
  }
}

}  // namespace rlflow
