#include "bindings/bindings.hpp"

#include <algorithm>
#include <cmath>

#include "ir/graph_builder.hpp"
#include "ir/neighbourhoods.hpp"

namespace rlflow {
namespace {

// Returns a Python value as an attribute, or nothing if it is of another kind. Throws py::cast_error if an item of a
// list is not of the first item's kind, or if a number is too large.
std::optional<Attribute> attribute_from(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return std::int64_t{value.cast<bool>()};
  if (py::isinstance<py::int_>(value)) return value.cast<std::int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::bytes>(value)) return OpaqueAttribute{value.cast<std::string>()};
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (py::isinstance<py::sequence>(value)) {
    const auto items = value.cast<py::sequence>();
    if (items.size() == 0 || py::isinstance<py::int_>(items[0])) return value.cast<Dims>();
    if (py::isinstance<py::float_>(items[0])) return value.cast<std::vector<double>>();
    if (py::isinstance<py::str>(items[0])) return value.cast<std::vector<std::string>>();
  }
  return std::nullopt;
}

AttributeMap attributes_from(const py::dict& attributes) {
  AttributeMap map;
  for (const auto& [key, value] : attributes) {
    std::optional<Attribute> attribute;
    try {
      attribute = attribute_from(value);
    } catch (const py::cast_error&) {
    }
    if (!py::isinstance<py::str>(key) || !attribute) {
      throw InvalidInput("attribute " + py::repr(key).cast<std::string>() +
                         ": expected a name and an int of 64 bits, float, str, bytes or a list of one of int, float and str, got " +
                         py::repr(value).cast<std::string>().substr(0, 100));
    }
    map.emplace_back(key.cast<std::string>(), std::move(*attribute));
  }
  std::sort(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return map;
}

py::object attribute_to(const Attribute& attribute) {
  if (const auto* opaque = std::get_if<OpaqueAttribute>(&attribute)) return py::bytes(opaque->digest);
  return std::visit([](const auto& held) -> py::object {
    if constexpr (std::is_same_v<std::decay_t<decltype(held)>, OpaqueAttribute>) return py::none();
    else return py::cast(held);
  }, attribute);
}

struct ValueView {
  std::string name;
  int dtype;
  std::optional<Dims> dims;
  std::optional<std::string> handle;
  bool weight_only;
  py::object content;
};

constexpr std::pair<std::string_view, Content::Kind> kPatterns[] = {{"identity", Content::Kind::kIdentity},
                                                                    {"identity-kernel", Content::Kind::kIdentityKernel},
                                                                    {"averaging-kernel", Content::Kind::kAveragingKernel},
                                                                    {"nonzero", Content::Kind::kNonzero},
                                                                    {"finite", Content::Kind::kFinite}};

// Returns None, the number that all elements have, or the name of a pattern.
py::object content_to(const Content& content) {
  if (content.kind == Content::Kind::kUniform) return py::float_(content.value);
  for (const auto& [name, kind] : kPatterns) {
    if (kind == content.kind) return py::str(std::string(name));
  }
  return py::none();
}

Content content_from(const std::optional<std::variant<double, std::string>>& content) {
  if (!content) return {};
  if (const double* value = std::get_if<double>(&*content)) {
    if (std::isnan(*value)) throw InvalidInput("the content of a weight must not be NaN, which equals nothing; leave it out");
    return {Content::Kind::kUniform, *value + 0.0};    // -0.0 becomes 0.0
  }
  for (const auto& [name, kind] : kPatterns) {
    if (name == std::get<std::string>(*content)) return {kind};
  }
  throw InvalidInput("unknown content '" + std::get<std::string>(*content) + "' of a weight; expected a number, 'identity', 'identity-kernel', 'averaging-kernel', 'nonzero' or 'finite'");
}

struct NodeView {
  std::string domain, op_type;
  py::dict attributes;
  std::vector<ValueId> inputs, outputs;
  std::string name;
  bool weight_only;
  std::int32_t site;
  std::string origin;
  bool stateful;
};

py::dict values_of(const Graph& graph) {
  py::dict out;
  for (ValueId id = 0; id < static_cast<ValueId>(graph.value_count()); ++id) {
    const Value& value = graph.value(id);
    if (value.producer != kNoNode && !graph.alive(value.producer)) continue;
    const TensorType& type = graph.type(id);
    out[py::int_(id)] = ValueView{graph.context().name(value.name), type.dtype, type.ranked ? std::optional(type.dims) : std::nullopt,
                                  value.kind == Value::Kind::kWeight ? std::optional(graph.handle(id)) : std::nullopt, value.weight_only,
                                  content_to(type.content)};
  }
  return out;
}

std::vector<NodeView> nodes_of(const Graph& graph) {
  std::vector<NodeView> out;
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    const Signature& signature = graph.signature(id);
    const auto [domain, op_type] = graph.context().op_name(signature.op);
    NodeView view{std::string(domain), std::string(op_type), {}, {}, {}, graph.context().name(node.name), node.weight_only, node.site, hex(graph.origin(id)), node.identity != 0};
    for (const auto& [name, value] : graph.context().attributes(signature.attributes)) view.attributes[py::str(name)] = attribute_to(value);
    view.inputs.assign(graph.operands(id).begin(), graph.operands(id).end());
    for (std::uint32_t i = 0; i < node.output_count; ++i) view.outputs.push_back(node.output_begin + static_cast<ValueId>(i));
    out.push_back(std::move(view));
  }
  return out;
}

// Returns the run time in ms of each live node, in order; weight-only ones take none.
py::array_t<double> node_ms(const Graph& graph, const NamedCosts& model) {
  std::vector<double> ms;
  {
    const py::gil_scoped_release release;
    const std::vector<Cost> costs = model.costs->price_in(graph);
    for (const NodeId id : graph.order()) ms.push_back(costs[id].ms);
  }
  const auto nodes = static_cast<py::ssize_t>(ms.size());
  return to_array(std::move(ms), {nodes});
}

}  // namespace

void bind_graph(py::module_& module) {
  py::class_<ValueView>(module, "Value")
      .def_readonly("name", &ValueView::name).def_readonly("dtype", &ValueView::dtype).def_readonly("dims", &ValueView::dims)
      .def_readonly("handle", &ValueView::handle).def_readonly("weight_only", &ValueView::weight_only)
      .def_readonly("content", &ValueView::content);
  py::class_<NodeView>(module, "Node")
      .def_readonly("domain", &NodeView::domain).def_readonly("op_type", &NodeView::op_type).def_readonly("attributes", &NodeView::attributes)
      .def_readonly("inputs", &NodeView::inputs).def_readonly("outputs", &NodeView::outputs).def_readonly("name", &NodeView::name)
      .def_readonly("weight_only", &NodeView::weight_only).def_readonly("site", &NodeView::site)
      .def_readonly("origin", &NodeView::origin).def_readonly("stateful", &NodeView::stateful);
  py::class_<Graph>(module, "Graph")
      .def_property_readonly("inputs", &Graph::inputs).def_property_readonly("outputs", &Graph::outputs)
      .def("values", &values_of).def("nodes", &nodes_of)
      .def_property_readonly("hash", [](const Graph& graph) { return hex(graph.hash()); })
      .def_property_readonly("num_runtime_nodes", &Graph::runtime_node_count)
      .def("node_ms", &node_ms)
      .def("cost", [](const Graph& graph, const NamedCosts& model) {
        const py::gil_scoped_release release;
        return total_cost(graph, *model.costs);
      }, py::arg("model"))
      .def_property_readonly("weights_mb", &weights_mb)
      .def("neighbourhood_signatures", [](const Graph& graph, int opset, int distance) {
        std::vector<std::uint64_t> names = neighbourhood_signatures(graph, opset, distance);
        const auto size = static_cast<py::ssize_t>(names.size());
        return to_array(std::move(names), {size});
      }, py::arg("opset"), py::arg("distance") = kNeighbourhood);
  py::class_<GraphBuilder>(module, "GraphBuilder")
      .def(py::init<>())
      .def("input", &GraphBuilder::input, py::arg("name"), py::arg("dtype"), py::arg("dims"))
      .def("weight", [](GraphBuilder& builder, const std::string& name, const std::string& handle, int dtype, const Dims& dims,
                        const std::optional<std::variant<double, std::string>>& content) {
             return builder.weight(name, handle, dtype, dims, content_from(content));
           }, py::arg("name"), py::arg("handle"), py::arg("dtype"), py::arg("dims"), py::arg("content") = py::none())
      .def("node", [](GraphBuilder& builder, const std::string& domain, const std::string& op_type, const py::dict& attributes, const std::vector<ValueId>& inputs,
                      const std::vector<GraphBuilder::Output>& outputs, const std::string& name, bool stateful) {
             return builder.node(domain, op_type, attributes_from(attributes), inputs, outputs, name, stateful);
           }, py::arg("domain"), py::arg("op_type"), py::arg("attributes"), py::arg("inputs"), py::arg("outputs"),
           py::arg("name") = "", py::arg("stateful") = false)
      .def("output", &GraphBuilder::output, py::arg("value"))
      .def("build", &GraphBuilder::build);

  std::vector<std::string> operators, symmetric;
  for (OperatorId op = 0; op < known_operator_count(); ++op) {
    operators.push_back(dotted_name(operator_info(op)));
    if (operator_info(op).symmetric) symmetric.push_back(operators.back());
  }
  module.attr("KNOWN_OPERATORS") = py::tuple(py::cast(operators));
  module.attr("SYMMETRIC_OPERATORS") = py::tuple(py::cast(symmetric));
}

}  // namespace rlflow
