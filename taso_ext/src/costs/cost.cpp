#include "costs/cost.hpp"

#include <algorithm>
#include <array>

namespace rlflow {
namespace {

// Peak fp32 rate and memory bandwidth of the data sheets: RTX 2070 (TU106) 7.465 TFLOP/s, 448 GB/s; GTX 1080 8.873,
// 320; K80 per GPU (GK210 at boost) 4.37, 240; V100 SXM2 15.7, 900; H200 SXM 67 (CUDA cores), 4800; one Xeon core with
// AVX-512 at 2.5 GHz (2 FMA units x 16 lanes x 2) 0.16, 12 per core; a whole Xeon E5-2699 v3 (Haswell, 18 cores with
// AVX2 at 2.3 GHz, 2 FMA units x 8 lanes x 2) 1.325, 68. A launch costs about 5 us on these GPUs under the
// default driver queue (2.5 us on H200), a call about 1 us inside a CPU runtime.
constexpr auto kDevices = std::to_array<Device>({
    {"rtx2070", 7.465e9, 448e6, 5e-3},
    {"gtx1080", 8.873e9, 320e6, 5e-3},
    {"k80", 4.37e9, 240e6, 5e-3},
    {"v100", 15.7e9, 900e6, 5e-3},
    {"h200", 67e9, 4800e6, 2.5e-3},
    {"xeon", 0.16e9, 12e6, 1e-3},
    {"haswell18", 1.325e9, 68e6, 1e-3},
});

}  // namespace

const Device& find_device(std::string_view name) {
  for (const Device& device : kDevices) {
    if (device.name == name) return device;
  }
  std::string known;
  for (const Device& device : kDevices) known += (known.empty() ? "" : ", ") + std::string(device.name);
  throw InvalidInput("unknown roofline device '" + std::string(name) + "'; choose one of " + known);
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& device : kDevices) names.emplace_back(device.name);
  return names;
}

Cost& Cost::operator+=(const Cost& other) {
  ms += other.ms;
  flops += other.flops;
  memory_bytes += other.memory_bytes;
  kernel_launches += other.kernel_launches;
  return *this;
}

Cost Roofline::price(const Signature& signature, bool fused) const {
  if (signature.execution == Execution::kView) return {};
  Cost cost{.ms = 0, .flops = signature.flops, .memory_bytes = signature.bytes, .kernel_launches = fused ? 0 : 1};
  // The fused operand is neither written nor read back; it has the type of the output.
  if (fused) cost.memory_bytes = std::max(0.0, cost.memory_bytes - 2.0 * signature.output_bytes);
  cost.ms = std::max(cost.flops / device_.flops_per_ms, cost.memory_bytes / device_.bytes_per_ms);
  if (!fused) cost.ms += device_.launch_ms;
  return cost;
}

bool absorbs(const Signature* producer, TypeId operand_type, std::int32_t uses, const Signature& pointwise) {
  if (!producer || uses != 1 || pointwise.outputs.empty() || operand_type != pointwise.outputs[0]) return false;
  return producer->execution == Execution::kKernel || producer->execution == Execution::kElementwise ||
         producer->execution == Execution::kMovement;
}

bool is_fused(const Graph& graph, NodeId id) {
  const Signature& signature = graph.signature(id);
  if (signature.execution != Execution::kElementwise) return false;
  return std::ranges::any_of(graph.operands(id), [&](ValueId operand) {
    if (operand == kNoValue) return false;
    const Value& value = graph.value(operand);
    if (value.producer == kNoNode || value.weight_only) return false;
    return absorbs(&graph.signature(value.producer), value.type, graph.uses(operand), signature);
  });
}

std::vector<Cost> CostModel::price_in(const Graph& graph) const {
  std::vector<Cost> costs(graph.node_count());
  for (const NodeId id : graph.order()) {
    if (!graph.node(id).weight_only) costs[id] = price(graph.signature(id), is_fused(graph, id));
  }
  return costs;
}

Cost total_cost(const Graph& graph, const CostModel& costs) {
  const std::vector<Cost> by_node = costs.price_in(graph);
  Cost total;
  for (const NodeId id : graph.order()) total += by_node[id];    // weight-only nodes cost nothing
  return total;
}

}  // namespace rlflow
