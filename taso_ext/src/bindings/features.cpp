#include "bindings/bindings.hpp"

#include <algorithm>

#include "features/candidate_graphs.hpp"
#include "features/colours.hpp"
#include "features/features.hpp"
#include "rewriting/everywhere.hpp"

namespace rlflow {
namespace {

py::tuple features(const State& state) {
  Features arrays;
  {
    const py::gil_scoped_release release;
    arrays = graph_features(state);
  }
  const auto rows = static_cast<py::ssize_t>(arrays.nodes.size() / kNodeFeatures), edges = static_cast<py::ssize_t>(arrays.links.size() / 2);
  return py::make_tuple(to_array(std::move(arrays.nodes), {rows, static_cast<py::ssize_t>(kNodeFeatures)}),
                        to_array(std::move(arrays.edges), {edges, static_cast<py::ssize_t>(kEdgeFeatures)}),
                        to_array(std::move(arrays.links), {edges, 2}));
}

py::array_t<std::int32_t> matched_nodes(const State& state) {
  std::vector<std::int32_t> pairs;
  {
    const py::gil_scoped_release release;
    pairs = matched_rows(state);
  }
  const auto count = static_cast<py::ssize_t>(pairs.size() / 2);
  return to_array(std::move(pairs), {count, 2});
}

py::tuple candidate_arrays(const State& state, std::int64_t reach, std::int64_t most) {
  if (reach < 0 || most < 0) throw InvalidInput("reach and most must be at least 0, got " + std::to_string(reach) + " and " + std::to_string(most));
  CandidateGraphs graphs;
  {
    const py::gil_scoped_release release;
    graphs = candidate_graphs(state, reach, static_cast<std::size_t>(most));
  }
  work.priced.fetch_add(std::min(most, static_cast<std::int64_t>(state.matches().size())), std::memory_order_relaxed);
  const auto nodes = static_cast<py::ssize_t>(graphs.colours.size()), edges = static_cast<py::ssize_t>(graphs.links.size() / 2);
  const auto parts = static_cast<py::ssize_t>(graphs.counts.size());
  return py::make_tuple(to_array(std::move(graphs.nodes), {nodes, static_cast<py::ssize_t>(kCandidateNodeColumns)}),
                        to_array(std::move(graphs.colours), {nodes}),
                        to_array(std::move(graphs.edges), {edges, static_cast<py::ssize_t>(kCandidateEdgeColumns)}),
                        to_array(std::move(graphs.links), {edges, 2}), to_array(std::move(graphs.parts), {parts, 2}),
                        to_array(std::move(graphs.counts), {parts}));
}

using FloatTable = py::array_t<float, py::array::c_style | py::array::forcecast>;
using LinkTable = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

py::array_t<std::int64_t> colours_of(const FloatTable& nodes, const FloatTable& edges, const LinkTable& links, std::int64_t rounds) {
  if (nodes.ndim() != 2 || edges.ndim() != 2 || links.ndim() != 2 || links.shape(1) != 2 || links.shape(0) != edges.shape(0)) {
    throw InvalidInput("nodes must be [N, F], edges [E, D] and links [E, 2]");
  }
  if (nodes.shape(1) == 0 || edges.shape(1) == 0) throw InvalidInput("nodes and edges must have at least one column");
  if (rounds < 0) throw InvalidInput("rounds must be at least 0, got " + std::to_string(rounds));
  const ColouredGraph<std::int64_t> graph{
      {nodes.data(), static_cast<std::size_t>(nodes.size())}, {edges.data(), static_cast<std::size_t>(edges.size())},
      {links.data(), static_cast<std::size_t>(links.size())}, static_cast<std::size_t>(nodes.shape(1)), static_cast<std::size_t>(edges.shape(1))};
  for (const std::int64_t end : graph.links) {
    if (end < 0 || end >= nodes.shape(0)) throw InvalidInput("a link names node " + std::to_string(end) + " of " + std::to_string(nodes.shape(0)));
  }
  std::vector<std::int64_t> colours;
  {
    const py::gil_scoped_release release;
    for (const Hash128& colour : node_colours(graph, rounds, true)) colours.push_back(static_cast<std::int64_t>(colour.low));
  }
  return to_array(std::move(colours), {nodes.shape(0)});
}

py::array_t<float> candidate_features(const State& state, std::int64_t max_candidates, bool one_hot_rules, bool costs, bool everywhere) {
  constexpr std::int64_t kMost = 1 << 20;    // a state with more rewrites than that would not fit into memory either
  if (max_candidates < 1 || max_candidates > kMost) {
    throw InvalidInput("max_candidates must lie in [1, " + std::to_string(kMost) + "], got " + std::to_string(max_candidates));
  }
  const CandidateColumns columns{.one_hot_rules = one_hot_rules, .costs = costs, .everywhere = everywhere};
  py::array_t<float> rows({static_cast<py::ssize_t>(max_candidates) + 1, static_cast<py::ssize_t>(columns.count(state))});
  const std::span<float> data(rows.mutable_data(), static_cast<std::size_t>(rows.size()));
  {
    const py::gil_scoped_release release;
    put_candidate_features(state, columns, data);
  }
  if (costs) {
    const std::size_t at_all_places = everywhere ? rules_everywhere(state).size() : 0;
    work.priced.fetch_add(static_cast<std::int64_t>(state.matches().size() + at_all_places), std::memory_order_relaxed);
  }
  return rows;
}

}  // namespace

void bind_features(py::module_& module) {
  py::class_<Session>(module.attr("State"))
      .def("features", [](const Session& session) { return features(session.state()); })
      .def("matched_nodes", [](const Session& session) { return matched_nodes(session.state()); })
      .def("candidate_graphs", [](const Session& session, std::int64_t reach, std::int64_t most) { return candidate_arrays(session.state(), reach, most); },
           py::arg("reach"), py::arg("most"))
      .def("candidate_features", [](Session& session, std::int64_t max_candidates, bool one_hot_rules, bool costs, bool everywhere) {
             return candidate_features(costs ? session.priced() : session.state(), max_candidates, one_hot_rules, costs, everywhere);
           }, py::arg("max_candidates"), py::arg("one_hot_rules") = true, py::arg("costs") = false, py::arg("everywhere") = false);
  module.def("node_colours", &colours_of, py::arg("nodes"), py::arg("edges"), py::arg("links"), py::arg("rounds"));
  module.attr("NUM_FEATURE_OPERATORS") = feature_operator_count();
  module.attr("NUM_DTYPES") = kDtypes;
}

}  // namespace rlflow
