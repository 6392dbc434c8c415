#include "fusion/problem.hpp"

#include <algorithm>

#include "fusion/operators.hpp"
#include "ir/operator_table.hpp"

namespace rlflow::fusion {
namespace {

// Builds the tensors of a problem, operator by operator. Invariant: `tensor_of` holds, for each value met so far, the
// tensor that its readers read, or -1.
class Reader {
 public:
  Reader(const Graph& graph, const Device& device) : graph_(graph), device_(device), tensor_of_(graph.value_count(), -1) {}

  void read(std::vector<Tensor>& tensors, std::vector<Operand>& operands) {
    for (std::size_t position = 0; position < graph_.order().size(); ++position) {
      const NodeId id = graph_.order()[position];
      if (!graph_.node(id).weight_only) add(id, static_cast<std::int32_t>(position), tensors, operands);
    }
    for (const ValueId output : graph_.outputs()) {
      const std::int32_t tensor = tensor_of_[static_cast<std::size_t>(output)];
      if (tensor >= 0) tensors[static_cast<std::size_t>(tensor)].is_output = true;
    }
  }

 private:
  void add(NodeId id, std::int32_t position, std::vector<Tensor>& tensors, std::vector<Operand>& operands) {
    const Node& node = graph_.node(id);
    const Operator op{graph_.signature(id), graph_.context(), node.identity != 0};
    if (is_view(op)) {
      tensor_of_[static_cast<std::size_t>(node.output_begin)] = source(graph_.operands(id)[0], tensors);
      return;
    }
    const Kind kind = kind_of(op);
    std::vector<Operand> read;
    for (std::size_t slot = 0; slot < graph_.operands(id).size(); ++slot) {
      const ValueId value = graph_.operands(id)[slot];
      if (value != kNoValue && !is_setting(op, kind, slot, value)) read.push_back(operand(op, kind, slot, source(value, tensors), tensors));
    }
    const bool slices = op.signature.op == operators::kSplitOp;
    if (node.output_count == 1 || slices) {
      for (std::uint32_t k = 0; k < node.output_count; ++k) {
        if (slices) read[0].demanded = elements_of(node, k);
        append(op, kind, position, k, node, read, tensors, operands);
      }
      return;
    }
    append(op, kind, position, 0, node, read, tensors, operands);
    const auto whole = static_cast<std::int32_t>(tensors.size()) - 1;
    double bytes = 0;
    for (std::uint32_t k = 0; k < node.output_count; ++k) {
      const Operand part{.producer = whole, .demanded = elements_of(node, k)};
      append(op, Kind::kProjection, position, k, node, {&part, 1}, tensors, operands);
      bytes += tensors.back().bytes;
    }
    tensors[static_cast<std::size_t>(whole)].bytes = bytes;
  }

  void append(const Operator& op, Kind kind, std::int32_t position, std::uint32_t output, const Node& node, std::span<const Operand> read,
              std::vector<Tensor>& tensors, std::vector<Operand>& operands) {
    const ValueId value = node.output_begin + static_cast<ValueId>(output);
    Tensor tensor{.kind = kind, .op = op.signature.op, .position = position, .output = static_cast<std::int32_t>(output)};
    tensor.elements = elements_of(node, output);
    tensor.bytes = static_cast<double>(graph_.type(value).bytes());
    tensor.loop_elements = kind == Kind::kReduction && op.has_input(0) ? static_cast<double>(op.input(0).elements()) : tensor.elements;
    if (kind != Kind::kProjection) {
      tensor.flops = count_work(op, kind, device_) * (op.signature.op == operators::kSplitOp ? tensor.elements / elements_of(node, 0) : 1.0);
      tensor.expensive = is_expensive(op);
      tensor.duplicable = is_duplicable(op);
      tensor.takes_epilogue = takes_epilogue(op);
      tensor.is_cast = op.signature.op == operators::kCast;
    }
    tensor.operand_begin = static_cast<std::uint32_t>(operands.size());
    tensor.operand_count = static_cast<std::uint32_t>(read.size());
    operands.insert(operands.end(), read.begin(), read.end());
    tensor_of_[static_cast<std::size_t>(value)] = static_cast<std::int32_t>(tensors.size());
    tensors.push_back(tensor);
  }

  [[nodiscard]] double elements_of(const Node& node, std::uint32_t output) const {
    return std::max<double>(1.0, static_cast<double>(graph_.type(node.output_begin + static_cast<ValueId>(output)).elements()));
  }

  // Returns whether a kernel holds an operand as a constant or does not need its elements at all: single numbers, and
  // shapes, axes and bounds that are known.
  [[nodiscard]] bool is_setting(const Operator& op, Kind kind, std::size_t slot, ValueId value) const {
    if (!graph_.value(value).weight_only) return false;
    return graph_.type(value).elements() <= 1 || !reads_elements(op, kind, slot);
  }

  // Returns the tensor that a value is; adds one for an input or a weight that is met for the first time.
  [[nodiscard]] std::int32_t source(ValueId value, std::vector<Tensor>& tensors) {
    std::int32_t& tensor = tensor_of_[static_cast<std::size_t>(value)];
    if (tensor < 0) {
      const TensorType& type = graph_.type(value);
      tensor = static_cast<std::int32_t>(tensors.size());
      tensors.push_back({.kind = Kind::kExternal, .elements = std::max<double>(1.0, static_cast<double>(type.elements())), .bytes = static_cast<double>(type.bytes())});
    }
    return tensor;
  }

  [[nodiscard]] Operand operand(const Operator& op, Kind kind, std::size_t slot, std::int32_t id, const std::vector<Tensor>& tensors) const {
    const Tensor& producer = tensors[static_cast<std::size_t>(id)];
    Operand read{.producer = id, .demanded = count_demand(op, kind, slot, producer.elements, device_)};
    read.elementwise = is_elementwise(op) && producer.elements == static_cast<double>(op.output(0).elements());
    const bool reads = reads_elements(op, kind, slot) && !(kind == Kind::kReduction && slot > 0);
    const bool fuses_as_reader = kind == Kind::kLoop || kind == Kind::kTranspose || kind == Kind::kWindow || kind == Kind::kReduction;
    switch (producer.kind) {
      case Kind::kLoop: read.absorbable = reads && fuses_as_reader; break;
      case Kind::kTranspose:
      case Kind::kWindow:
      case Kind::kReduction:
      case Kind::kLibrary: read.absorbable = read.elementwise; break;    // an epilogue
      default: break;
    }
    return read;
  }

  const Graph& graph_;
  const Device& device_;
  std::vector<std::int32_t> tensor_of_;
};

}  // namespace

Problem::Problem(const Graph& graph, const Device& device) : device_(device) {
  Reader(graph, device_).read(tensors_, operands_);
  link();
}

void Problem::link() {
  std::vector<std::uint32_t> counts(tensors_.size() + 1, 0);
  for (const Operand& operand : operands_) ++counts[static_cast<std::size_t>(operand.producer) + 1];
  for (std::size_t k = 0; k < tensors_.size(); ++k) {
    tensors_[k].reader_begin = counts[k];
    tensors_[k].reader_count = counts[k + 1];
    tensors_[k].uses = static_cast<std::int32_t>(counts[k + 1]) + (tensors_[k].is_output ? 1 : 0);
    counts[k + 1] += counts[k];
  }
  readers_.resize(operands_.size());
  for (std::size_t reader = 0; reader < tensors_.size(); ++reader) {
    for (const Operand& operand : operands(static_cast<std::int32_t>(reader))) {
      readers_[counts[static_cast<std::size_t>(operand.producer)]++] = static_cast<std::int32_t>(reader);
    }
  }
  for (std::size_t reader = 0; reader < tensors_.size(); ++reader) {
    const Tensor& tensor = tensors_[reader];
    for (std::uint32_t k = 0; k < tensor.operand_count; ++k) {
      Operand& operand = operands_[tensor.operand_begin + k];
      Tensor& producer = tensors_[static_cast<std::size_t>(operand.producer)];
      // Neither a library call nor a reduction is made twice ("reduction output fusion only works for single user").
      const bool single = producer.kind == Kind::kLibrary || producer.kind == Kind::kReduction;
      if (single && producer.uses > 1) operand.absorbable = false;
      producer.configurable |= operand.absorbable;
    }
  }
  for (std::size_t k = 0; k < tensors_.size(); ++k) {
    if (tensors_[k].configurable) configurable_.push_back(static_cast<std::int32_t>(k));
  }
}

std::vector<std::int32_t> Problem::neighbourhood(std::int32_t id, int distance) const {
  std::vector<std::int32_t> seen{id};
  std::size_t begin = 0;
  const auto visit = [&](std::int32_t next) {
    if (tensor(next).kind != Kind::kExternal && std::ranges::find(seen, next) == seen.end()) seen.push_back(next);
  };
  for (int step = 0; step < distance; ++step) {
    const std::size_t end = seen.size();
    for (; begin < end; ++begin) {
      for (const Operand& operand : operands(seen[begin])) visit(operand.producer);
      for (const std::int32_t reader : readers(seen[begin])) visit(reader);
    }
  }
  std::erase_if(seen, [&](std::int32_t each) { return !tensor(each).configurable; });
  if (!seen.empty()) std::sort(seen.begin() + (seen[0] == id ? 1 : 0), seen.end());
  return seen;
}

// The rules of InstructionFusion::ShouldFuse, GpuInstructionFusion::ShouldFuseInexpensiveChecks and
// InstructionFusion::ComputeGloballyUnfusible, asked once for a tensor with all its readers, since a configuration has
// one decision for all of them.
bool Problem::default_fuses(std::int32_t id) const {
  const Tensor& producer = tensor(id);
  bool all_absorb = !producer.is_output;
  for (const std::int32_t reader : readers(id)) {
    for (const Operand& operand : operands(reader)) {
      if (operand.producer != id) continue;
      all_absorb &= operand.absorbable;
      if (!operand.absorbable) continue;
      const Tensor& consumer = tensor(reader);
      if (producer.kind == Kind::kLibrary) return consumer.takes_epilogue;
      if (producer.kind == Kind::kReduction) return consumer.is_cast;    // IsReduceIntermediate
      if (producer.expensive && operand.demanded > producer.elements) return false;    // the reader reuses elements
      if (producer.kind == Kind::kTranspose && consumer.kind == Kind::kReduction) return false;    // uncoalesced reads
    }
  }
  if (producer.uses == 1 || producer.duplicable) return true;
  if (producer.expensive) return false;
  double read = 0;
  int large = 0;
  for (const Operand& operand : operands(id)) {
    read += tensor(operand.producer).elements;
    large += tensor(operand.producer).elements >= producer.elements;
  }
  return large <= 1 || read <= producer.elements || all_absorb;
}

std::vector<std::uint8_t> Problem::compiler_default() const {
  std::vector<std::uint8_t> bits(tensors_.size(), 0);
  for (const std::int32_t id : configurable_) bits[static_cast<std::size_t>(id)] = default_fuses(id) ? 1 : 0;
  return bits;
}

}  // namespace rlflow::fusion
