#include "features/colours.hpp"

#include <bit>

namespace rlflow {
namespace {

constexpr Hash128 kBack{17, 19};    // folded into an edge that is passed from its receiver to its sender

// Returns the hash of every row of a table.
[[nodiscard]] std::vector<Hash128> hashes(std::span<const float> table, std::size_t columns) {
  std::vector<Hash128> found(table.size() / columns, Hash128{columns, 1});
  for (std::size_t i = 0; i < table.size(); ++i) found[i / columns] = fold(found[i / columns], std::bit_cast<std::uint32_t>(table[i]));
  return found;
}

}  // namespace

template <typename Id>
std::vector<Hash128> node_colours(const ColouredGraph<Id>& graph, std::int64_t rounds, bool both_ways) {
  const std::vector<Hash128> edges = hashes(graph.edges, graph.edge_columns);
  std::vector<Hash128> colours = hashes(graph.nodes, graph.node_columns), before, sums;
  const auto read = [&](auto seen) {    // the order in which a node reads makes no difference
    sums.assign(colours.size(), {});
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const auto from = static_cast<std::size_t>(graph.links[2 * e]), to = static_cast<std::size_t>(graph.links[2 * e + 1]);
      sums[to] += seen(edges[e], from);
      if (both_ways) sums[from] += seen(fold(edges[e], kBack), to);
    }
    for (std::size_t n = 0; n < colours.size(); ++n) colours[n] = fold(colours[n], sums[n]);
  };
  read([](Hash128 edge, std::size_t) { return edge; });
  for (std::int64_t round = 0; round < rounds; ++round) {
    before = colours;
    read([&](Hash128 edge, std::size_t other) { return fold(edge, before[other]); });
  }
  return colours;
}

template std::vector<Hash128> node_colours(const ColouredGraph<std::int32_t>&, std::int64_t, bool);
template std::vector<Hash128> node_colours(const ColouredGraph<std::int64_t>&, std::int64_t, bool);

}  // namespace rlflow
