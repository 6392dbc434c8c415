// The builder, which makes a graph from the calls of a model reader and refuses what the engine cannot hold.
#pragma once

#include <tuple>

#include "ir/graph.hpp"

namespace rlflow {

// Builds one graph. Every method throws InvalidInput for malformed input and then leaves the builder unchanged.
class GraphBuilder {
 public:
  using Output = std::tuple<std::string, int, std::optional<Dims>>;    // name, dtype, extents

  ValueId input(const std::string& name, int dtype, const std::optional<Dims>& dims);
  ValueId weight(const std::string& name, const std::string& handle, int dtype, const Dims& dims, const Content& content = {});
  std::vector<ValueId> node(const std::string& domain, const std::string& op_type, const AttributeMap& attributes,
                            const std::vector<ValueId>& inputs, const std::vector<Output>& outputs, const std::string& name,
                            bool stateful);
  void output(ValueId value);
  // Returns the graph. The builder cannot be used afterwards.
  [[nodiscard]] Graph build();

 private:
  void open() const;
  void check(ValueId value) const;

  std::shared_ptr<Context> context_ = std::make_shared<Context>();
  std::optional<Graph> graph_{std::in_place, context_};
};

}  // namespace rlflow
