// The analytic cost model: one roofline per kernel, pointwise operators fused into the kernel that feeds them.
#pragma once

#include <string>
#include <vector>

#include "graph.hpp"

namespace rlflow {

struct Device {
  std::string_view name;
  double flops_per_ms;
  double bytes_per_ms;
  double launch_ms;
};

// Throws InvalidInput for an unknown name, listing those that exist.
[[nodiscard]] const Device& find_device(std::string_view name);
[[nodiscard]] std::vector<std::string> device_names();

struct Cost {
  double ms = 0;
  double flops = 0;
  double memory_bytes = 0;     // read and written by all kernels
  std::int64_t kernel_launches = 0;

  Cost& operator+=(const Cost& other);
};

// Prices nodes. A node's cost depends on its signature and on whether it is fused into the producer of an operand.
class Roofline {
 public:
  explicit Roofline(const Device& device) : device_(device) {}
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] Cost price(const Signature& signature, bool fused) const;

 private:
  Device device_;
};

// Whether a pointwise operator whose operand `operand` has type `operand_type` disappears into the operand's producer.
// `producer` is nullptr when nothing computes the operand at run time.
[[nodiscard]] bool absorbs(const Signature* producer, TypeId operand_type, std::int32_t uses, const Signature& pointwise);
[[nodiscard]] bool is_fused(const Graph& graph, NodeId node);

[[nodiscard]] Cost total_cost(const Graph& graph, const Roofline& costs);

}  // namespace rlflow
