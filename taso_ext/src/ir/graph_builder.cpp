#include "ir/graph_builder.hpp"

namespace rlflow {
namespace {

// The most nodes of a graph, so that every id fits into 31 bits.
constexpr std::size_t kMostNodes = 20'000'000;

TensorType tensor_type(const std::string& name, int dtype, const std::optional<Dims>& dims) {
  for (const std::int64_t extent : dims ? *dims : Dims{}) {
    if (extent < 0) throw InvalidInput("tensor '" + name + "': expected extents of at least 0, got " + std::to_string(extent));
  }
  TensorType type{dtype, dims.has_value(), dims.value_or(Dims{})};
  if (!type.is_countable()) throw InvalidInput("tensor '" + name + "' has more than 10^15 elements, the engine's limit");
  return type;
}

}  // namespace

ValueId GraphBuilder::input(const std::string& name, int dtype, const std::optional<Dims>& dims) {
  open();
  return graph_->add_input(context_->name(name), context_->type(tensor_type(name, dtype, dims)));
}

ValueId GraphBuilder::weight(const std::string& name, const std::string& handle, int dtype, const Dims& dims, const Content& content) {
  open();
  TensorType type = tensor_type(name, dtype, dims);
  type.content = content;
  return graph_->add_weight(context_->name(name), handle, context_->type(type));
}

std::vector<ValueId> GraphBuilder::node(const std::string& domain, const std::string& op_type, const AttributeMap& attributes,
                                        const std::vector<ValueId>& inputs, const std::vector<Output>& outputs,
                                        const std::string& name, bool stateful) {
  open();
  if (graph_->node_count() >= kMostNodes) throw InvalidInput("the model has more than 20 million operators, the engine's limit");
  if (outputs.empty()) throw InvalidInput("operator '" + op_type + "' (" + name + ") has no output");
  std::vector<TypeId> input_types, output_types;
  for (const ValueId input : inputs) {
    if (input != kNoValue) check(input);
    input_types.push_back(input == kNoValue ? kNoType : graph_->value(input).type);
  }
  std::vector<NameId> names;
  for (const auto& [output, dtype, dims] : outputs) {
    output_types.push_back(context_->type(tensor_type(output, dtype, dims)));
    names.push_back(context_->name(output));
  }
  const auto signature = context_->given(context_->op(domain, op_type), context_->attributes(attributes), input_types, output_types);
  const NodeId id = graph_->add_node(signature, inputs, names, context_->name(name), stateful);
  std::vector<ValueId> values(outputs.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = graph_->node(id).output_begin + static_cast<ValueId>(i);
  return values;
}

void GraphBuilder::output(ValueId value) {
  open();
  check(value);
  graph_->add_output(value);
}

Graph GraphBuilder::build() {
  open();
  if (graph_->outputs().empty()) throw InvalidInput("the graph has no output");
  graph_->finalize();
  graph_->number_sites();
  Graph done = std::move(*graph_);
  graph_.reset();
  return done;
}

void GraphBuilder::open() const {
  if (!graph_) throw InvalidInput("this builder has already built its graph; make a new one");
}

void GraphBuilder::check(ValueId value) const {
  if (value < 0 || value >= static_cast<ValueId>(graph_->value_count())) {
    throw InvalidInput("value " + std::to_string(value) + " does not exist; the builder has made " + std::to_string(graph_->value_count()));
  }
}

}  // namespace rlflow
