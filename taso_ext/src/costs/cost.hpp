// Cost models of operators. The analytic one is a roofline per kernel, with pointwise operators fused into the kernel
// that feeds them.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace rlflow {

struct Device {
  std::string_view name;
  double flops_per_ms;
  double bytes_per_ms;
  double launch_ms;
};

// Returns the device of this name. Throws InvalidInput for an unknown name; the error lists the names that exist.
[[nodiscard]] const Device& find_device(std::string_view name);
[[nodiscard]] std::vector<std::string> device_names();

struct Cost {
  double ms = 0;
  double flops = 0;
  double memory_bytes = 0;     // bytes read and written by all kernels
  std::int64_t kernel_launches = 0;

  Cost& operator+=(const Cost& other);
};

// Thrown if an operator has no price. Searches skip such a graph; for all other callers cause() is the error.
class Unpriced : public std::exception {
 public:
  explicit Unpriced(std::exception_ptr cause) : cause_(std::move(cause)) {}
  [[nodiscard]] const char* what() const noexcept override { return "an operator has no price"; }
  [[nodiscard]] const std::exception_ptr& cause() const { return cause_; }

 private:
  std::exception_ptr cause_;
};

// The costs of operators on some device. Several threads use a model at once.
class CostModel {
 public:
  CostModel() = default;
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;
  virtual ~CostModel() = default;
  // Returns the cost of an operator whatever its place in a graph; `fused` says whether the producer of an operand
  // absorbs it. The costs of rewrites are predicted by it.
  [[nodiscard]] virtual Cost price(const Signature& signature, bool fused) const = 0;
  // Returns whether operators of one signature may have different costs in different places. Then price() is an
  // estimate, and only price_in() returns what the operators of a graph cost.
  [[nodiscard]] virtual bool looks_around() const { return false; }
  // Returns the costs of the run-time operators of a graph, by node. May throw Unpriced.
  [[nodiscard]] virtual std::vector<Cost> price_in(const Graph& graph) const;
};

class Roofline final : public CostModel {
 public:
  explicit Roofline(const Device& device) : device_(device) {}
  [[nodiscard]] Cost price(const Signature& signature, bool fused) const override;

 private:
  Device device_;
};

// Returns whether a pointwise operator is fused into the producer of an operand that has the type `operand_type` and is
// used `uses` times. `producer` is nullptr if nothing computes the operand at run time.
[[nodiscard]] bool absorbs(const Signature* producer, TypeId operand_type, std::int32_t uses, const Signature& pointwise);
[[nodiscard]] bool is_fused(const Graph& graph, NodeId node);

[[nodiscard]] Cost total_cost(const Graph& graph, const CostModel& costs);

}  // namespace rlflow
