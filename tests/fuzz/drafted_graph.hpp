// A graph drafted from bytes: calls of GraphBuilder as a reader of models makes them, most of them sound, some absurd.
#pragma once

#include <cstdio>
#include <map>

#include "byte_source.hpp"
#include "ir/graph_builder.hpp"
#include "rules/rule.hpp"

namespace rlflow::fuzz {

class DraftedGraph {
 public:
  // `fragments` are whole sources of rules, which random operators would hardly ever form. With `print`, each call that
  // the builder took is printed as a statement of Python.
  DraftedGraph(ByteSource& bytes, std::span<const Graph> fragments, bool print) : bytes_(bytes), fragments_(fragments), print_(print) {}

  // The drafted graph, or nothing where the builder refused it.
  [[nodiscard]] std::optional<Graph> draft();

 private:
  void add_something();
  void add_input();
  void add_weight();
  void add_operator();
  void add_fragment();
  void add_output();
  [[nodiscard]] std::optional<Dims> shape();
  [[nodiscard]] std::int64_t absurd_integer();
  [[nodiscard]] int dtype();
  [[nodiscard]] ValueId operand();
  [[nodiscard]] AttributeMap attributes(std::string_view op_type, std::span<const TensorType* const> inputs);
  [[nodiscard]] Attribute fitting_attribute(std::string_view name, std::span<const TensorType* const> inputs);
  [[nodiscard]] Attribute absurd_attribute();
  [[nodiscard]] std::vector<GraphBuilder::Output> output_types(const std::string& op_type, const AttributeMap& attributes,
                                                                std::span<const TensorType* const> inputs);

  ValueId input(const TensorType& type, const std::optional<Dims>& dims);
  ValueId weight(const TensorType& type);
  std::vector<ValueId> node(const std::string& domain, const std::string& op_type, const AttributeMap& attributes,
                            const std::vector<ValueId>& inputs, const std::vector<GraphBuilder::Output>& outputs, bool stateful);
  void output(ValueId value);

  ByteSource& bytes_;
  std::span<const Graph> fragments_;
  bool print_;
  GraphBuilder builder_;
  std::vector<TensorType> types_;    // by value
  std::vector<std::int32_t> reads_;  // by value
  int outputs_ = 0;
};

}  // namespace rlflow::fuzz
