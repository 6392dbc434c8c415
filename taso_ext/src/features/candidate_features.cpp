#include "features/candidate_features.hpp"

#include <algorithm>
#include <cmath>

namespace rlflow {
namespace {

float log_scaled(double value) { return static_cast<float>(std::log1p(std::max(0.0, value)) / 20.0); }    // as in features.cpp

// Number of a run-time node among all of them, by node. Ranks would also count the weight-only ones, whose order means nothing.
std::vector<std::int32_t> runtime_positions(const Graph& graph, std::int32_t& count) {
  std::vector<std::int32_t> positions(graph.node_count());
  count = 0;
  for (const NodeId id : graph.order()) {
    if (!graph.node(id).weight_only) positions[id] = count++;
  }
  return positions;
}

}  // namespace

void put_candidate_features(const State& state, const CandidateColumns& columns, std::span<float> rows) {
  std::fill(rows.begin(), rows.end(), 0.0F);
  const Graph& graph = state.graph();
  const std::size_t width = columns.count(state), rules = state.game().rules().size();
  const auto put_rule = [&](float* row, std::size_t rule) {
    if (columns.one_hot_rules) row[rule] = 1.0F;
    else row[0] = static_cast<float>(rule + 1) / static_cast<float>(rules + 1);
  };
  put_rule(rows.data(), rules);
  std::int32_t runtime_nodes = 0;
  const std::vector<std::int32_t> positions = runtime_positions(graph, runtime_nodes);
  const std::vector<Candidate> priced = columns.costs ? state.candidates() : std::vector<Candidate>();
  const std::size_t shown = std::min(state.matches().size(), rows.size() / width - 1);
  for (std::size_t k = 0; k < shown; ++k) {
    const Match& match = state.matches()[k];
    const auto nodes = state.nodes(match);
    double flops = 0, bytes = 0;
    for (const NodeId id : nodes) {
      flops += graph.signature(id).flops;
      bytes += graph.signature(id).bytes;
    }
    float* row = rows.data() + (k + 1) * width;
    put_rule(row, static_cast<std::size_t>(match.rule));
    row += columns.rule_columns(state);
    row[0] = static_cast<float>(match.location + 1) / static_cast<float>(state.game().locations());
    row[1] = static_cast<float>(positions[nodes[match.recipe->root]] + 1) / static_cast<float>(runtime_nodes);
    row[2] = log_scaled(flops);
    row[3] = log_scaled(bytes);
    // A graph of nothing but views costs nothing: there is no ratio.
    if (columns.costs && state.cost_ms() > 0 && priced[k].cost_ms > 0) {
      row[4] = static_cast<float>(100.0 * std::log(priced[k].cost_ms / state.cost_ms()));
    }
  }
}

}  // namespace rlflow
