// Python surface of the engine (typed stub: taso_ext/_core.pyi).
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <set>
#include <fstream>
#include <sstream>

#include "features/candidate_features.hpp"
#include "features/features.hpp"
#include "verification/field_arithmetic.hpp"
#include "ir/graph_builder.hpp"
#include "verification/instance.hpp"
#include "costs/learned_costs.hpp"
#include "rules/lexer.hpp"
#include "rules/proof.hpp"
#include "search/search.hpp"
#include "rewriting/state.hpp"
#include "ir/surroundings.hpp"

namespace py = pybind11;

namespace rlflow {
namespace {

std::string hex(const Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high), static_cast<unsigned long long>(hash.low));
  return text;
}

// Nothing when it is of another kind. Throws py::cast_error when it is not what its beginning promised, or too large.
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
                                                                    {"averaging-kernel", Content::Kind::kAveragingKernel}};

// None, the number that all elements have, or the name of a pattern.
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
  throw InvalidInput("unknown content '" + std::get<std::string>(*content) + "' of a weight; expected a number, 'identity', 'identity-kernel' or 'averaging-kernel'");
}

struct NodeView {
  std::string domain, op_type;
  py::dict attributes;
  std::vector<ValueId> inputs, outputs;
  std::string name;
  bool weight_only;
  std::int32_t site;
  std::string origin;
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
    NodeView view{std::string(domain), std::string(op_type), {}, {}, {}, graph.context().name(node.name), node.weight_only, node.site, hex(graph.origin(id))};
    for (const auto& [name, value] : graph.context().attributes(signature.attributes)) view.attributes[py::str(name)] = attribute_to(value);
    view.inputs.assign(graph.operands(id).begin(), graph.operands(id).end());
    for (std::uint32_t i = 0; i < node.output_count; ++i) view.outputs.push_back(node.output_begin + static_cast<ValueId>(i));
    out.push_back(std::move(view));
  }
  return out;
}

struct NamedCosts {
  std::string name;
  std::shared_ptr<const CostModel> costs;
};

// Columns: ms, bytes, launches.
std::vector<Cost> costs_from(const py::array_t<double, py::array::c_style | py::array::forcecast>& rows) {
  if (rows.ndim() != 2 || rows.shape(1) != 3) throw InvalidInput("expected costs as [N, 3]: ms, bytes, launches");
  std::vector<Cost> costs(static_cast<std::size_t>(rows.shape(0)));
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const double* row = rows.data(static_cast<py::ssize_t>(i), 0);
    costs[i] = {.ms = row[0], .flops = 0, .memory_bytes = row[1], .kernel_launches = std::llround(row[2])};
  }
  return costs;
}

NamedCosts learned_costs(const std::string& name, const std::string& device, const py::function& appraise,
                         const py::array_t<std::uint64_t, py::array::c_style | py::array::forcecast>& surroundings,
                         const py::array_t<double, py::array::c_style | py::array::forcecast>& costs, int opset) {
  // Whoever calls it or lets it go last may not hold the interpreter's lock.
  const std::shared_ptr<py::function> held(new py::function(appraise), [](py::function* function) {
    const py::gil_scoped_acquire acquire;
    delete function;
  });
  const auto call = [held](const Graph& graph, const std::vector<std::int64_t>& positions) {
    const py::gil_scoped_acquire acquire;
    try {
      return costs_from((*held)(graph, positions));
    } catch (const py::error_already_set& error) {
      const py::object unpriced = py::module_::import("taso_ext.errors").attr("UnpricedError");
      if (error.matches(unpriced)) throw Unpriced(std::current_exception());
      throw;
    }
  };
  auto learned = std::make_shared<LearnedCosts>(find_device(device), call, opset);
  const std::vector<Cost> known = costs_from(costs);
  if (known.size() != static_cast<std::size_t>(surroundings.size())) throw InvalidInput("expected as many costs as surroundings");
  learned->know({surroundings.data(), known.size()}, known);
  return {name, std::move(learned)};
}

class RuleSet {
 public:
  explicit RuleSet(std::vector<Rule> rules) : book(std::make_shared<const RuleBook>(std::move(rules))) {}
  static RuleSet load(const std::string& path, bool proven) {
    return RuleSet(parse_file(path, proven));
  }
  // Those of all rule files in the folder `rules` beside the extension module, files in alphabetical order.
  static RuleSet shipped() {
    const auto module_file = py::module_::import("taso_ext._core").attr("__file__").cast<std::string>();
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(module_file).parent_path() / "rules")) {
      if (entry.path().extension() == ".rules") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::vector<Rule> all;
    for (const auto& file : files) {
      for (Rule& rule : parse_file(file.string(), true)) {
        const auto same = std::find_if(all.begin(), all.end(), [&](const Rule& other) { return other.name == rule.name; });
        if (same != all.end()) syntax_error(rule.file, rule.place, "a second rule named '" + rule.name + "'; the first one stands in " + same->file);
        all.push_back(std::move(rule));
      }
    }
    return RuleSet(std::move(all));
  }
  const Rule& at(std::int64_t index) const {
    if (index < 0 || index >= static_cast<std::int64_t>(book->rules.size())) {
      throw py::index_error("rule " + std::to_string(index) + " is out of range: there are " + std::to_string(book->rules.size()) + " rules");
    }
    return book->rules[index];
  }
  // First opset that has the operators which the target adds to those of the source.
  int opset(std::int64_t index) const {
    int newest = 1;
    for (const OperatorInfo* info : added(at(index))) newest = std::max(newest, info->domain.empty() ? info->since : 1);
    return newest;
  }
  std::set<std::string> domains(std::int64_t index) const {
    std::set<std::string> found;
    for (const OperatorInfo* info : added(at(index))) found.emplace(info->domain);
    return found;
  }
  // Only the rules whose targets need no newer opset and no other domain.
  RuleSet restricted(std::optional<int> max_opset, const std::optional<std::vector<std::string>>& allowed) const {
    std::vector<Rule> kept;
    for (std::int64_t i = 0; i < std::ssize(book->rules); ++i) {
      const std::set<std::string> needed = domains(i);
      const bool known = !allowed || std::all_of(needed.begin(), needed.end(), [&](const std::string& domain) {
        return std::any_of(allowed->begin(), allowed->end(), [&](const std::string& each) { return each == domain || (domain.empty() && each == "ai.onnx"); });
      });
      if (known && (!max_opset || opset(i) <= *max_opset)) kept.push_back(book->rules[i]);
    }
    if (kept.empty()) throw InvalidInput("no rule is left: all need a newer opset or another domain");
    return RuleSet(std::move(kept));
  }
  // Of all rules in their order: equal for sets that offer the same actions.
  Hash128 fingerprint() const {
    Hash128 hash{31, 32};
    for (const Rule& rule : book->rules) hash = fold(hash, rule.digest);
    return hash;
  }
  std::shared_ptr<const RuleBook> book;

 private:
  // Operators of the target that the source does not have.
  static std::vector<const OperatorInfo*> added(const Rule& rule) {
    std::vector<const OperatorInfo*> found;
    for (const Statement& made : rule.target) {
      const auto same = [&](const Statement& statement) { return statement.op == made.op; };
      if (made.op && std::none_of(rule.source.begin(), rule.source.end(), same)) found.push_back(&operator_info(*made.op));
    }
    return found;
  }
  static std::vector<Rule> parse_file(const std::string& path, bool proven) {
    std::vector<Rule> rules = parse_rules(read(path), path);
    if (proven) std::for_each(rules.begin(), rules.end(), require_proof);
    return rules;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream buffer;
    if (!file || !(buffer << file.rdbuf())) throw InvalidInput("cannot read the rule file '" + path + "'; expected a text file of rewrite rules");
    return buffer.str();
  }
};

py::tuple place_in(const std::string& file, Place place) { return py::make_tuple(file, place.line, place.column); }

template <typename T>
py::array_t<T> to_array(std::vector<T> data, std::vector<py::ssize_t> shape) {
  auto* owned = new std::vector<T>(std::move(data));
  const py::capsule owner(owned, [](void* pointer) { delete static_cast<std::vector<T>*>(pointer); });
  return py::array_t<T>(std::move(shape), owned->data(), owner);
}

constexpr std::int64_t kMostLocations = 20'000'000;    // as many as a graph can have operators

// A state and those it came from, as far back as `undo` can go.
class Session {
 public:
  explicit Session(State start) : state_(std::make_shared<const State>(std::move(start))) {}
  [[nodiscard]] const State& state() const { return *state_; }
  [[nodiscard]] const std::shared_ptr<const State>& shared() const { return state_; }
  void step(std::int32_t rule, std::int32_t location) {
    const py::gil_scoped_release release;
    auto next = std::make_shared<const State>(state_->after(state_->match(rule, location)));
    past_.push_back(std::exchange(state_, std::move(next)));
    if (past_.size() > kMostUndone) past_.pop_front();
  }
  // As `state`, with the prices of all rewrites; they are kept, and later states inherit what a step does not touch.
  const State& priced() {
    if (!state_->is_priced()) state_ = state_->priced();
    return *state_;
  }
  void undo() {
    if (past_.empty()) {
      throw InvalidInput("there is no step to undo: this state is where its walk started, or " + std::to_string(kMostUndone) +
                         " steps, the most that are kept, were undone already");
    }
    state_ = std::move(past_.back());
    past_.pop_back();
  }

 private:
  static constexpr std::size_t kMostUndone = 256;
  std::shared_ptr<const State> state_;
  std::deque<std::shared_ptr<const State>> past_;
};

py::array_t<bool> rule_mask(const State& state) {
  py::array_t<bool> mask(static_cast<py::ssize_t>(state.game().rules().size()));
  bool* data = mask.mutable_data();
  std::fill(data, data + mask.size(), false);
  for (const Match& match : state.matches()) data[match.rule] = true;
  return mask;
}

py::array_t<bool> location_mask(const State& state) {
  const auto locations = static_cast<py::ssize_t>(state.game().locations());
  py::array_t<bool> mask({static_cast<py::ssize_t>(state.game().rules().size()), locations});
  bool* data = mask.mutable_data();
  std::fill(data, data + mask.size(), false);
  for (const Match& match : state.matches()) data[match.rule * locations + match.location] = true;
  return mask;
}

py::array_t<std::int64_t> location_counts(const State& state) {
  std::vector<std::int64_t> counts(state.game().rules().size());
  for (const Match& match : state.matches()) ++counts[match.rule];
  const auto size = static_cast<py::ssize_t>(counts.size());
  return to_array(std::move(counts), {size});
}

py::array_t<std::int32_t> legal_actions(const State& state) {
  std::vector<std::int32_t> pairs;
  pairs.reserve(2 * state.matches().size());
  for (const Match& match : state.matches()) pairs.insert(pairs.end(), {match.rule, match.location});
  return to_array(std::move(pairs), {static_cast<py::ssize_t>(state.matches().size()), 2});
}

py::tuple candidates(Session& session) {
  std::vector<Candidate> list;
  {
    const py::gil_scoped_release release;
    list = session.priced().candidates();
  }
  std::vector<std::int32_t> rules, locations;
  std::vector<double> costs;
  for (const Candidate& candidate : list) {
    rules.push_back(candidate.rule);
    locations.push_back(candidate.location);
    costs.push_back(candidate.cost_ms);
  }
  const auto size = static_cast<py::ssize_t>(list.size());
  return py::make_tuple(to_array(std::move(rules), {size}), to_array(std::move(locations), {size}), to_array(std::move(costs), {size}));
}

py::tuple features(const State& state) {
  Features arrays;
  {
    const py::gil_scoped_release release;
    arrays = graph_features(state);
  }
  const auto rows = static_cast<py::ssize_t>(arrays.nodes.size() / kNodeFeatures), edges = static_cast<py::ssize_t>(arrays.links.size() / 2);
  return py::make_tuple(to_array(std::move(arrays.nodes), {rows, static_cast<py::ssize_t>(kNodeFeatures)}),
                        to_array(std::move(arrays.edges), {edges, static_cast<py::ssize_t>(kEdgeFeatures)}),
                        to_array(std::move(arrays.links), {edges, 2}));
}

py::array_t<float> candidate_features(const State& state, std::int64_t max_candidates, bool one_hot_rules, bool costs) {
  constexpr std::int64_t kMost = 1 << 20;    // a state with more rewrites than that would not fit into memory either
  if (max_candidates < 1 || max_candidates > kMost) {
    throw InvalidInput("max_candidates must lie in [1, " + std::to_string(kMost) + "], got " + std::to_string(max_candidates));
  }
  const CandidateColumns columns{.one_hot_rules = one_hot_rules, .costs = costs};
  py::array_t<float> rows({static_cast<py::ssize_t>(max_candidates) + 1, static_cast<py::ssize_t>(columns.count(state))});
  const std::span<float> data(rows.mutable_data(), static_cast<std::size_t>(rows.size()));
  {
    const py::gil_scoped_release release;
    put_candidate_features(state, columns, data);
  }
  return rows;
}

using ProgressFunction = std::optional<py::function>;

// Runs a search without the GIL; takes it back to report progress and to notice Ctrl-C.
template <typename Search>
SearchResult run_search(const ProgressFunction& progress, Search search) {
  const SearchProgress report = [&](std::int64_t expanded, double best_ms) {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!progress) return true;
    const py::object answer = (*progress)(expanded, best_ms);
    return answer.is_none() || answer.cast<bool>();
  };
  const py::gil_scoped_release release;
  return search(report);
}

SearchLimits limits(std::int64_t budget, double seconds, std::int64_t memory_bytes, int threads) {
  return {.budget = budget, .seconds = seconds, .memory_bytes = static_cast<std::size_t>(std::max<std::int64_t>(0, memory_bytes)), .threads = threads};
}

// Defines a search whose own arguments stand before the limits that all share.
template <typename Function, typename... Arguments>
void define_search(py::module_& module, const char* name, Function function, Arguments... arguments) {
  const SearchLimits defaults;
  module.def(name, function, py::arg("state"), arguments..., py::arg("budget") = defaults.budget, py::kw_only(),
             py::arg("seconds") = defaults.seconds, py::arg("memory_bytes") = defaults.memory_bytes, py::arg("threads") = defaults.threads,
             py::arg("progress") = py::none());
}

}  // namespace
}  // namespace rlflow

PYBIND11_MODULE(_core, module) {
  using namespace rlflow;
  module.doc() = "Native tensor-graph substitution engine of RLFlow.";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const InvalidInput& error) {
      py::set_error(PyExc_ValueError, error.what());
    } catch (const Unpriced& error) {
      try {
        std::rethrow_exception(error.cause());
      } catch (py::error_already_set& cause) {
        cause.restore();
      }
    }
  });

  py::class_<ValueView>(module, "Value")
      .def_readonly("name", &ValueView::name).def_readonly("dtype", &ValueView::dtype).def_readonly("dims", &ValueView::dims)
      .def_readonly("handle", &ValueView::handle).def_readonly("weight_only", &ValueView::weight_only)
      .def_readonly("content", &ValueView::content);
  py::class_<NodeView>(module, "Node")
      .def_readonly("domain", &NodeView::domain).def_readonly("op_type", &NodeView::op_type).def_readonly("attributes", &NodeView::attributes)
      .def_readonly("inputs", &NodeView::inputs).def_readonly("outputs", &NodeView::outputs).def_readonly("name", &NodeView::name)
      .def_readonly("weight_only", &NodeView::weight_only).def_readonly("site", &NodeView::site)
      .def_readonly("origin", &NodeView::origin);
  py::class_<Cost>(module, "Cost")
      .def_readonly("ms", &Cost::ms).def_readonly("flops", &Cost::flops).def_readonly("memory_bytes", &Cost::memory_bytes)
      .def_readonly("kernel_launches", &Cost::kernel_launches)
      .def("__repr__", [](const Cost& cost) {
        return "Cost(ms=" + std::to_string(cost.ms) + ", flops=" + std::to_string(cost.flops) + ", memory_bytes=" + std::to_string(cost.memory_bytes) +
               ", kernel_launches=" + std::to_string(cost.kernel_launches) + ")";
      });
  py::class_<NamedCosts>(module, "CostModel")
      .def_static("roofline", [](const std::string& device) { return NamedCosts{"roofline:" + device, std::make_shared<Roofline>(find_device(device))}; }, py::arg("device"))
      .def_static("learned", &learned_costs, py::arg("name"), py::arg("device"), py::arg("appraise"), py::arg("surroundings"), py::arg("costs"), py::arg("opset"))
      .def_static("devices", &device_names)
      .def_readonly("name", &NamedCosts::name);

  py::class_<Graph>(module, "Graph")
      .def_property_readonly("inputs", &Graph::inputs).def_property_readonly("outputs", &Graph::outputs)
      .def("values", &values_of).def("nodes", &nodes_of)
      .def_property_readonly("hash", [](const Graph& graph) { return hex(graph.hash()); })
      .def_property_readonly("num_runtime_nodes", &Graph::runtime_node_count)
      .def("cost", [](const Graph& graph, const NamedCosts& model) {
        const py::gil_scoped_release release;
        return total_cost(graph, *model.costs);
      }, py::arg("model"))
      .def_property_readonly("weights_mb", &weights_mb)
      .def("surroundings", [](const Graph& graph, int opset) {
        std::vector<std::uint64_t> names = surroundings(graph, opset);
        const auto size = static_cast<py::ssize_t>(names.size());
        return to_array(std::move(names), {size});
      }, py::arg("opset"));
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

  py::class_<RuleSet>(module, "RuleSet")
      .def_static("load", &RuleSet::load, py::arg("path"), py::arg("proven") = true)
      .def_static("default", &RuleSet::shipped)
      .def_static("parse", [](const std::string& text, const std::string& file) { return RuleSet(parse_rules(text, file)); },
                  py::arg("text"), py::arg("file") = "<text>")
      .def_property_readonly("names", [](const RuleSet& set) {
        std::vector<std::string> names;
        for (const Rule& rule : set.book->rules) names.push_back(rule.name);
        return names;
      })
      .def_property_readonly("fingerprint", [](const RuleSet& set) { return hex(set.fingerprint()); })
      .def("__len__", [](const RuleSet& set) { return set.book->rules.size(); })
      .def("text", [](const RuleSet& set, std::int64_t rule) { return set.at(rule).text; }, py::arg("rule"))
      .def("place", [](const RuleSet& set, std::int64_t rule) { return place_in(set.at(rule).file, set.at(rule).place); }, py::arg("rule"))
      .def("proof", [](const RuleSet& set, std::int64_t rule) { return set.at(rule).proof; }, py::arg("rule"))
      .def("proof_place", [](const RuleSet& set, std::int64_t rule) { return place_in(set.at(rule).file, set.at(rule).proof_place); }, py::arg("rule"))
      .def("opset", &RuleSet::opset, py::arg("rule"))
      .def("domains", &RuleSet::domains, py::arg("rule"))
      .def("restricted", &RuleSet::restricted, py::kw_only(), py::arg("max_opset") = py::none(), py::arg("domains") = py::none())
      .def("digest", [](const RuleSet& set, std::int64_t rule) { return hex(set.at(rule).digest).substr(0, 16); }, py::arg("rule"))
      .def("clauses", [](const RuleSet& set, std::int64_t rule) {
        py::dict found;
        const auto clauses = proof_clauses(set.at(rule).proof);
        if (!clauses) throw InvalidInput("the proof of rule '" + set.at(rule).name + "' is not made of clauses");
        for (const ProofClause& clause : *clauses) found[py::str(clause.name.data(), clause.name.size())] = py::str(clause.content.data(), clause.content.size());
        return found;
      }, py::arg("rule"))
      .def("require_proof", [](const RuleSet& set, std::int64_t rule) { require_proof(set.at(rule)); }, py::arg("rule"))
      .def("seal", [](const RuleSet& set, std::int64_t rule, const std::string& evidence) {
        const auto clauses = proof_clauses(evidence);
        if (!clauses) throw InvalidInput("expected clauses of a proof, got '" + evidence + "'");
        return seal(set.at(rule), *clauses);
      }, py::arg("rule"), py::arg("evidence"))
      .def("instance", [](const RuleSet& set, std::int64_t rule, std::uint64_t seed, std::int64_t stretch) {
             if (stretch < 0 || stretch > 1000) throw InvalidInput("stretch must lie in [0, 1000], got " + std::to_string(stretch));
             return random_instance(set.at(rule), seed, stretch);
           },
           py::arg("rule"), py::arg("seed"), py::arg("stretch") = 0)
      .def("misfit", [](const RuleSet& set, std::int64_t rule) -> std::optional<py::tuple> {
             const auto place = misfit(set.at(rule));
             return place ? std::optional(place_in(set.at(rule).file, *place)) : std::nullopt;
           }, py::arg("rule"));

  py::class_<Session>(module, "State")
      .def(py::init([](const Graph& graph, const RuleSet& rules, const NamedCosts& costs, std::int64_t max_locations) {
             if (max_locations < 0 || max_locations > kMostLocations) {
               throw InvalidInput("max_locations must lie in [1, " + std::to_string(kMostLocations) + "], or be 0 for one for each operator, got " +
                                  std::to_string(max_locations));
             }
             const py::gil_scoped_release release;
             return Session(State::start(graph, rules.book, costs.costs, static_cast<std::int32_t>(max_locations)));
           }), py::arg("graph"), py::arg("rules"), py::arg("cost_model"), py::arg("max_locations") = 0)
      .def("copy", [](const Session& session) { return Session(session); })
      .def("is_legal", [](const Session& session, std::int32_t rule, std::int32_t location) { return session.state().is_legal(rule, location); },
           py::arg("rule"), py::arg("location"))
      .def("step", &Session::step, py::arg("rule"), py::arg("location"))
      .def("undo", &Session::undo)
      .def("rematched", [](const Session& session) { return Session(session.state().rematched()); })
      .def_property_readonly("graph", [](const Session& session) { return session.state().graph(); })
      .def_property_readonly("cost", [](const Session& session) {
        const py::gil_scoped_release release;
        return session.state().cost();
      })
      .def_property_readonly("hash", [](const Session& session) { return hex(session.state().graph().hash()); })
      .def_property_readonly("num_locations", [](const Session& session) { return session.state().game().locations(); })
      .def_property_readonly("truncated_matches", [](const Session& session) { return session.state().truncated_matches(); })
      .def("rule_mask", [](const Session& session) { return rule_mask(session.state()); })
      .def("location_mask", [](const Session& session) { return location_mask(session.state()); })
      .def("location_counts", [](const Session& session) { return location_counts(session.state()); })
      .def("legal_actions", [](const Session& session) { return legal_actions(session.state()); })
      .def("candidates", &candidates)
      .def("features", [](const Session& session) { return features(session.state()); })
      .def("candidate_features", [](Session& session, std::int64_t max_candidates, bool one_hot_rules, bool costs) {
             return candidate_features(costs ? session.priced() : session.state(), max_candidates, one_hot_rules, costs);
           }, py::arg("max_candidates"), py::arg("one_hot_rules") = true, py::arg("costs") = false);

  py::class_<SearchResult>(module, "SearchResult")
      .def_readonly("actions", &SearchResult::actions).def_readonly("cost_ms", &SearchResult::cost_ms)
      .def_readonly("stop_reason", &SearchResult::stop_reason).def_readonly("expanded", &SearchResult::expanded)
      .def_readonly("generated", &SearchResult::generated).def_readonly("duplicates", &SearchResult::duplicates)
      .def_readonly("unpriced", &SearchResult::unpriced)
      .def_readonly("evicted", &SearchResult::evicted).def_readonly("rebuilt", &SearchResult::rebuilt)
      .def_readonly("memory_bytes", &SearchResult::memory_bytes).def_readonly("seconds", &SearchResult::seconds)
      .def_readonly("rules", &SearchResult::rules);
  define_search(module, "search_taso", [](const Session& session, double alpha, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_taso(session.state(), alpha, limits(budget, seconds, memory, threads), report); });
  }, py::arg("alpha") = 1.05);
  define_search(module, "search_greedy", [](const Session& session, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_greedy(session.state(), limits(budget, seconds, memory, threads), report); });
  });
  define_search(module, "search_beam", [](const Session& session, std::int64_t width, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_beam(session.state(), width, limits(budget, seconds, memory, threads), report); });
  }, py::arg("width") = 16);
  define_search(module, "search_restarts", [](const Session& session, std::int64_t walk, std::uint64_t seed, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_restarts(session.state(), walk, seed, limits(budget, seconds, memory, threads), report); });
  }, py::arg("walk") = 10, py::arg("seed") = 0);

  bind_field_arithmetic(module);

  std::vector<std::string> operators;
  for (OperatorId op = 0; op < known_operator_count(); ++op) operators.push_back(dotted_name(operator_info(op)));
  module.attr("KNOWN_OPERATORS") = py::tuple(py::cast(operators));
  module.attr("NUM_FEATURE_OPERATORS") = feature_operator_count();
  module.attr("NUM_DTYPES") = kDtypes;
}
