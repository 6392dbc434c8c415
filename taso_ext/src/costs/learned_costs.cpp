#include "costs/learned_costs.hpp"

#include <mutex>
#include <unordered_set>

#include "ir/neighbourhoods.hpp"

namespace rlflow {

Cost LearnedCosts::price(const Signature& signature, bool fused) const {
  Cost cost = device_.price(signature, fused);
  const std::shared_lock guard(mutex_);
  const auto at = kinds_.find(kind(signature, fused));
  if (at != kinds_.end()) cost.ms = at->second.sum_ms / static_cast<double>(at->second.count);
  else if (device_ms_ > 0) cost.ms *= sum_ms_ / device_ms_;
  return cost;
}

std::vector<Cost> LearnedCosts::price_in(const Graph& graph) const {
  if (limit_.refuse) {
    const Cost work = total_cost(graph, device_);
    if (work.flops > limit_.flops || work.memory_bytes > limit_.bytes) limit_.refuse();
  }
  const std::vector<std::uint64_t> signatures = neighbourhood_signatures(graph, opset_);
  if (const auto fresh = unknown(signatures); !fresh.empty()) learn(graph, signatures, fresh);
  std::vector<NodeId> nodes;
  for (const NodeId id : graph.order()) {
    if (!graph.node(id).weight_only) nodes.push_back(id);
  }
  std::vector<Cost> costs(graph.node_count());
  bool all_counted = true;
  {
    const std::shared_lock guard(mutex_);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Known& known = known_.at(signatures[i]);
      costs[nodes[i]] = known.cost;
      costs[nodes[i]].flops = graph.signature(nodes[i]).flops;
      all_counted = all_counted && known.counted;
    }
  }
  if (!all_counted) count(graph, nodes, signatures);
  return costs;
}

void LearnedCosts::add(std::span<const std::uint64_t> signatures, std::span<const Cost> costs) {
  const std::lock_guard guard(mutex_);
  for (std::size_t i = 0; i < signatures.size(); ++i) known_.emplace(signatures[i], Known{costs[i]});
}

// Returns the positions of unknown signatures, only the first one of each signature.
std::vector<std::int64_t> LearnedCosts::unknown(std::span<const std::uint64_t> signatures) const {
  std::vector<std::int64_t> positions;
  std::unordered_set<std::uint64_t> met;
  const std::shared_lock guard(mutex_);
  for (std::size_t i = 0; i < signatures.size(); ++i) {
    if (!known_.contains(signatures[i]) && met.insert(signatures[i]).second) positions.push_back(static_cast<std::int64_t>(i));
  }
  return positions;
}

void LearnedCosts::learn(const Graph& graph, std::span<const std::uint64_t> signatures, const std::vector<std::int64_t>& unknown) const {
  const std::vector<Cost> costs = price_operators_(graph, unknown);
  if (costs.size() != unknown.size()) {
    throw InvalidInput("expected the costs of " + std::to_string(unknown.size()) + " operators, got " + std::to_string(costs.size()));
  }
  const std::lock_guard guard(mutex_);
  for (std::size_t i = 0; i < unknown.size(); ++i) known_.emplace(signatures[unknown[i]], Known{costs[i]});
}

void LearnedCosts::count(const Graph& graph, std::span<const NodeId> nodes, std::span<const std::uint64_t> signatures) const {
  const std::lock_guard guard(mutex_);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Known& known = known_.at(signatures[i]);
    if (std::exchange(known.counted, true)) continue;
    const Signature& signature = graph.signature(nodes[i]);
    const bool fused = is_fused(graph, nodes[i]);
    Mean& mean = kinds_[kind(signature, fused)];
    mean.sum_ms += known.cost.ms;
    ++mean.count;
    sum_ms_ += known.cost.ms;
    device_ms_ += device_.price(signature, fused).ms;
  }
}

}  // namespace rlflow
