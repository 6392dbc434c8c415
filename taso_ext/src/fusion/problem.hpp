// A fusion problem: the tensors of a graph, who reads them how, and which of them a reader's kernel can compute itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "fusion/device.hpp"
#include "ir/graph.hpp"

namespace rlflow::fusion {

// How an operator becomes code. Names of XLA's passes and rules are those of xla/service/gpu at the time of its files
// gpu_fusible.cc and instruction_fusion.cc, which the rules below follow.
enum class Kind : std::uint8_t {
  kExternal,     // a graph input or a weight: in memory already
  kLoop,         // computes each element of its result by itself (IsUniversallyLoopFusible)
  kTranspose,    // changes the layout; needs tiles in shared memory (IsInputFusibleTranspose)
  kWindow,       // pools: each element of the result reads a window (kReduceWindow)
  kReduction,    // reductions and normalisations (IsInputFusibleReduction)
  kLibrary,      // convolutions and matrix products: a call of cuDNN or cuBLAS, which may end in pointwise operators
  kOpaque,       // everything else: a kernel of its own
  kProjection,   // one of several results of an opaque operator; costs nothing
};

// What a reader reads.
struct Operand {
  std::int32_t producer = 0;
  double demanded = 0;         // elements of the producer that one evaluation of the reader asks for
  bool elementwise = false;    // the reader asks for each element once, at its own position
  bool absorbable = false;     // the reader's kernel can compute the producer
};

// A tensor and the operator that computes it.
struct Tensor {
  Kind kind = Kind::kExternal;
  bool is_output = false;        // of the graph
  bool configurable = false;     // some reader can absorb it
  bool expensive = false;        // XLA does not compute it twice (IsExpensive)
  bool duplicable = false;       // XLA computes it as often as it is read (IsAlwaysDuplicable)
  bool takes_epilogue = false;   // a library call can end in this operator
  bool is_cast = false;
  std::int32_t uses = 0;         // readers, and 1 for a graph output
  OperatorId op = 0;
  std::int32_t position = -1;    // of its operator in the graph's order; -1 for externals
  std::int32_t output = 0;       // which of the operator's results it is
  double elements = 1;
  double bytes = 0;
  double flops = 0;              // of one evaluation of all its elements
  double loop_elements = 1;      // iterations of the kernel's outer loop, if it is the hero
  std::uint32_t operand_begin = 0, operand_count = 0;
  std::uint32_t reader_begin = 0, reader_count = 0;
};

// An immutable fusion problem. Invariant: tensors stand in topological order, producers first; `operands` and `readers`
// describe the same edges. Views (Reshape, Squeeze, transposes that move no data) have no tensor of their own: their
// readers read what they look at. A Split is a slice for each of its results, as in XLA.
//
// `queries` counts every price that anybody asked for. All plans of the problem count here and nothing resets it, so
// that no search can ask without being counted.
class Problem {
 public:
  Problem(const Graph& graph, const Device& device);

  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] std::size_t size() const { return tensors_.size(); }
  [[nodiscard]] const Tensor& tensor(std::int32_t id) const { return tensors_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] std::span<const Operand> operands(std::int32_t id) const {
    return {operands_.data() + tensor(id).operand_begin, tensor(id).operand_count};
  }
  [[nodiscard]] std::span<const std::int32_t> readers(std::int32_t id) const {
    return {readers_.data() + tensor(id).reader_begin, tensor(id).reader_count};
  }
  // Returns the configurable tensors in ascending order.
  [[nodiscard]] const std::vector<std::int32_t>& configurable() const { return configurable_; }

  // Returns the configurable tensors at most `distance` edges away from one, in either direction, itself first if it is
  // configurable, and then in ascending order. Paths do not lead through externals.
  [[nodiscard]] std::vector<std::int32_t> neighbourhood(std::int32_t id, int distance) const;

  // Returns the configuration of XLA's pass GpuInstructionFusion, one byte for each tensor.
  [[nodiscard]] std::vector<std::uint8_t> compiler_default() const;

  [[nodiscard]] std::int64_t queries() const { return queries_.load(std::memory_order_relaxed); }
  void count_queries(std::int64_t count) const { queries_.fetch_add(count, std::memory_order_relaxed); }

 private:
  [[nodiscard]] bool default_fuses(std::int32_t id) const;
  void link();

  Device device_;
  std::vector<Tensor> tensors_;
  std::vector<Operand> operands_;
  std::vector<std::int32_t> readers_;
  std::vector<std::int32_t> configurable_;
  mutable std::atomic<std::int64_t> queries_{0};
};

}  // namespace rlflow::fusion
