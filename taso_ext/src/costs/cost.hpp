// What operators cost. The analytic model: one roofline per kernel, pointwise operators fused into the kernel that feeds them.
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

// Thrown where no price of an operator can be had. Searches leave such a graph alone; for all others `cause` is the error.
class Unpriced : public std::exception {
 public:
  explicit Unpriced(std::exception_ptr cause) : cause_(std::move(cause)) {}
  [[nodiscard]] const char* what() const noexcept override { return "an operator has no price"; }
  [[nodiscard]] const std::exception_ptr& cause() const { return cause_; }

 private:
  std::exception_ptr cause_;
};

// What operators cost on some device. Used by several threads at once.
class CostModel {
 public:
  CostModel() = default;
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;
  virtual ~CostModel() = default;
  // Of an operator anywhere; `fused` says whether it is absorbed by the producer of an operand. Rewrites are predicted by it.
  [[nodiscard]] virtual Cost price(const Signature& signature, bool fused) const = 0;
  // Whether operators of one signature may cost different amounts in different places: then price() is an estimate, and
  // what operators of a graph cost is for price_in() to say.
  [[nodiscard]] virtual bool looks_around() const { return false; }
  // Of the run-time operators of a graph, by node. May throw Unpriced.
  [[nodiscard]] virtual std::vector<Cost> price_in(const Graph& graph) const;
};

class Roofline final : public CostModel {
 public:
  explicit Roofline(const Device& device) : device_(device) {}
  [[nodiscard]] Cost price(const Signature& signature, bool fused) const override;

 private:
  Device device_;
};

// Whether a pointwise operator whose operand `operand` has type `operand_type` disappears into the operand's producer.
// `producer` is nullptr when nothing computes the operand at run time.
[[nodiscard]] bool absorbs(const Signature* producer, TypeId operand_type, std::int32_t uses, const Signature& pointwise);
[[nodiscard]] bool is_fused(const Graph& graph, NodeId node);

[[nodiscard]] Cost total_cost(const Graph& graph, const CostModel& costs);

}  // namespace rlflow
