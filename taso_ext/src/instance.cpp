#include "instance.hpp"

#include <algorithm>
#include <random>
#include <unordered_map>
#include <utility>

#include "matcher.hpp"

namespace rlflow {
namespace {

constexpr std::int64_t kMostElementsOfVariable = 1 << 24;    // an instance is there to be evaluated
constexpr int kFloat = 1;    // TensorProto.FLOAT

class Builder final : public Scope {
 public:
  Builder(const Rule& rule, std::uint64_t seed, std::int64_t stretch)
      : book_(std::make_shared<const RuleBook>(std::vector<Rule>{rule})), rule_(book_->rules[0]), random_(seed), stretch_(stretch),
        matcher_(context_, book_, std::make_shared<RecipeBook>(context_, book_->rules)) {}

  std::optional<Graph> build(int tries) {
    least_.assign(rule_.symbol_names.size(), 0);
    for (const Expression& condition : rule_.conditions) collect_demands(condition);
    for (int attempt = 0; attempt < tries; ++attempt) {
      auto graph = try_build();
      if (graph && applies(*graph)) return graph;
    }
    return std::nullopt;
  }

  const Quantity* symbol(std::int32_t slot) const override { return bound_[slot] ? &symbols_[slot] : nullptr; }
  std::size_t count(std::int32_t slot) const override { return values_[slot].size(); }
  std::optional<Quantity> attribute(std::int32_t slot, const std::string& name) const override {
    const Attribute* found = rests_[slot] ? find_attribute(*rests_[slot], name) : nullptr;
    return found ? to_quantity(*found) : std::nullopt;
  }
  const TensorType* type(std::int32_t slot) const override {
    if (contents_[slot]) return &*contents_[slot];
    return values_[slot].empty() ? nullptr : &graph_->type(values_[slot][0]);
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random_); }
  // Of a tensor; those that are not 1 are made larger by what was asked for.
  std::int64_t size_within(std::int64_t low, std::int64_t high) {
    const std::int64_t drawn = pick(low, high);
    return drawn == 1 ? 1 : drawn + stretch_;
  }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  // Contents of weights may have to equal what is known only once all is built, so the same graph is then built again.
  std::optional<Graph> try_build() {
    contents_.assign(rule_.value_names.size(), std::nullopt);
    const std::mt19937_64 before = random_;
    auto graph = build_source();
    if (!graph || asked_.empty()) return graph;
    graph_ = std::move(graph);
    if (!choose_contents()) return std::nullopt;
    const std::mt19937_64 after = std::exchange(random_, before);
    graph = build_source();
    random_ = after;
    return graph;
  }

  std::optional<Graph> build_source() {
    graph_.emplace(context_);
    values_.assign(rule_.value_names.size(), {});
    symbols_.assign(rule_.symbol_names.size(), {});
    bound_.assign(rule_.symbol_names.size(), 0);
    rests_.assign(rule_.rest_names.size(), std::nullopt);
    operators_.clear();
    operator_rests_.assign(rule_.operators.size(), std::nullopt);
    for (const OperatorVariable& variable : rule_.operators) {
      operators_.push_back(variable.choices[pick(0, static_cast<std::int64_t>(variable.choices.size()) - 1)]);
    }
    elements_ = static_cast<std::size_t>(pick(rule_.least_elements, rule_.least_elements + 2));
    names_ = 0;
    for (const Statement& statement : rule_.source) {
      if (!add_statement(statement)) return std::nullopt;
    }
    for (const Statement& statement : rule_.source) {
      for (const Term& term : statement.results) expose(term);
    }
    graph_->finalize();
    return graph_;
  }

  // What the conditions want a weight to hold, or a symbol to be: a pattern, or the value of an expression.
  struct Demand {
    std::int32_t slot;
    Content::Kind kind;
    const Expression* value;
  };

  void collect_demands(const Expression& condition) {
    const auto add_value = [&](const Expression& side, const Expression& other) {
      if (side.kind == Expression::Kind::kCall && side.op == "value") demands_.push_back({side.slot, Content::Kind::kUniform, &other});
      if (side.kind == Expression::Kind::kSymbol) wanted_.push_back({side.slot, Content::Kind::kUnknown, &other});
    };
    if (condition.kind == Expression::Kind::kBinary && condition.op == "==") {
      add_value(condition.arguments[0], condition.arguments[1]);
      add_value(condition.arguments[1], condition.arguments[0]);
    }
    if (condition.kind == Expression::Kind::kBinary && condition.op == ">=" && condition.arguments[0].kind == Expression::Kind::kSymbol &&
        condition.arguments[1].kind == Expression::Kind::kInteger) {
      least_[condition.arguments[0].slot] = std::max(least_[condition.arguments[0].slot], condition.arguments[1].integer);
    }
    if (condition.kind == Expression::Kind::kReal) pool_.push_back(condition.real);
    if (condition.kind == Expression::Kind::kCall && condition.slot >= 0) {
      constexpr std::pair<std::string_view, Content::Kind> kPatterns[] = {
          {"is_identity", Content::Kind::kIdentity}, {"is_identity_kernel", Content::Kind::kIdentityKernel}, {"is_averaging_kernel", Content::Kind::kAveragingKernel}};
      for (const auto& [name, kind] : kPatterns) {
        if (condition.op == name) demands_.push_back({condition.slot, kind, nullptr});
      }
      const bool new_slot = std::find(asked_.begin(), asked_.end(), condition.slot) == asked_.end();
      const bool of_content = condition.op == "value" || condition.op.starts_with("is_");
      if (new_slot && of_content && is_weight(condition.slot)) asked_.push_back(condition.slot);
    }
    for (const Expression& argument : condition.arguments) collect_demands(argument);
  }

  bool is_weight(std::int32_t slot) const {
    const Variable* variable = variable_of(slot);
    return variable && variable->weight_only && !variable->starred;
  }

  // First what follows from what is known; where nothing does, one weight is given any content, and so on.
  bool choose_contents() {
    std::vector<std::int32_t> open = asked_;
    std::shuffle(open.begin(), open.end(), random_);
    while (!open.empty()) {
      auto next = std::find_if(open.begin(), open.end(), [&](std::int32_t slot) { return !contents_for(slot).empty(); });
      const bool follows = next != open.end();
      if (!follows) next = open.begin();
      const std::vector<Content> choices = follows ? contents_for(*next) : std::vector<Content>{{Content::Kind::kUniform, any_real()}};
      TensorType type = graph_->type(values_[*next][0]);
      type.content = choices[pick(0, std::ssize(choices) - 1)];
      if (!can_hold(type)) return false;
      contents_[*next] = std::move(type);
      open.erase(next);
    }
    return true;
  }

  std::vector<Content> contents_for(std::int32_t slot) const {
    std::vector<Content> found;
    for (const Demand& demand : demands_) {
      if (demand.slot != slot) continue;
      if (!demand.value) found.push_back({demand.kind});
      const auto value = demand.value ? evaluate(*demand.value, *this) : std::nullopt;
      if (const auto real = value ? number(*value) : std::nullopt) found.push_back({Content::Kind::kUniform, *real});
    }
    return found;
  }

  // As float32 holds it.
  static std::optional<double> number(const Quantity& value) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(static_cast<float>(*integer));
    if (const auto* real = std::get_if<double>(&value)) return static_cast<double>(static_cast<float>(*real));
    return std::nullopt;
  }

  // A multiple of what was drawn, at least what the conditions ask of the symbol: groups still divide it.
  std::int64_t at_least_asked(std::int32_t slot, std::int64_t drawn) const {
    return drawn > 0 && drawn < least_[slot] ? (least_[slot] + drawn - 1) / drawn * drawn : drawn;
  }

  double any_real() { return pool_[pick(0, std::ssize(pool_) - 1)]; }

  // Whether a tensor of its dims can have the pattern.
  static bool can_hold(const TensorType& type) {
    const Dims& dims = type.dims;
    if (type.content.kind == Content::Kind::kUniform) return true;
    if (type.content.kind == Content::Kind::kIdentity) return dims.size() >= 2 && dims[dims.size() - 1] == dims[dims.size() - 2];
    if (dims.size() < 3 || dims[0] % dims[1] != 0) return false;
    return type.content.kind == Content::Kind::kAveragingKernel || std::all_of(dims.begin() + 2, dims.end(), [](std::int64_t extent) { return extent % 2 == 1; });
  }

  // Results that the rule replaces or keeps, and that nothing else of the source reads, are outputs.
  void expose(const Term& term) {
    const bool replaced = std::any_of(rule_.outputs.begin(), rule_.outputs.end(), [&](const Term& t) { return t.slot == term.slot; });
    const bool read = std::any_of(rule_.source.begin(), rule_.source.end(), [&](const Statement& s) {
      return std::any_of(s.arguments.begin(), s.arguments.end(), [&](const Term& t) { return t.slot == term.slot; });
    });
    if (!replaced && read) return;
    for (const ValueId value : values_[term.slot]) graph_->add_output(value);
  }

  bool applies(const Graph& graph) {
    MatchList found;
    for (const NodeId anchor : graph.order()) {
      if (graph.node(anchor).weight_only) continue;
      matcher_.find_near(graph, anchor, 0, found);
      matcher_.find_far(graph, anchor, found);
    }
    return !found.matches.empty();
  }

  const Variable* variable_of(std::int32_t slot) const {
    for (const Variable& variable : rule_.variables) {
      if (variable.slot == slot) return &variable;
    }
    return nullptr;
  }

  bool add_statement(const Statement& statement) {
    const bool list_result = !statement.mapped && statement.results.size() == 1 && statement.results[0].starred;
    for (std::size_t i = 0; i < statement.arguments.size(); ++i) {
      const Term& term = statement.arguments[i];
      if (!values_[term.slot].empty()) continue;
      const Variable* variable = variable_of(term.slot);
      if (!variable) return false;
      window_ = window_of(statement, i, *variable);
      if (!create(*variable, term.starred ? elements_ : 1)) return false;
    }
    if (!statement.mapped) {
      std::vector<ValueId> operands;
      for (const Term& term : statement.arguments) operands.insert(operands.end(), values_[term.slot].begin(), values_[term.slot].end());
      return add_node(statement, operands, list_result ? elements_ : statement.results.size(), list_result);
    }
    for (std::size_t i = 0; i < elements_; ++i) {
      std::vector<ValueId> operands;
      for (const Term& term : statement.arguments) {
        if (term.starred && i >= values_[term.slot].size()) return false;
        operands.push_back(values_[term.slot][term.starred ? i : 0]);
      }
      if (!add_node(statement, operands, 1, true)) return false;
    }
    return true;
  }

  // What an operator that slides a window asks of the shape of an operand: few random ones would fit.
  struct Window {
    enum class Role : std::uint8_t { kNone, kInput, kKernel } role = Role::kNone;
    std::int64_t group = 1;
    Dims other{};    // of the kernel for the input, of the input for the kernel; empty where not known yet
  };

  Window window_of(const Statement& statement, std::size_t argument, const Variable& variable) {
    const std::string_view op = operator_info(statement.op ? *statement.op : operators_[statement.op_variable]).name;
    if (op != "Conv") return {argument == 0 && op.ends_with("Pool") ? Window::Role::kInput : Window::Role::kNone};
    if (argument > 1 || statement.arguments.size() < 2) return {};
    Window window{argument == 0 ? Window::Role::kInput : Window::Role::kKernel};
    const auto& others = values_[statement.arguments[1 - argument].slot];
    if (others.empty()) return window;
    window.other = graph_->type(others[0]).dims;
    if (window.other.size() < 3) return {};
    const std::int64_t divided = window.other[argument == 0 ? 0 : 1];    // filters of a known kernel, channels of a known input
    window.group = known_group(statement, variable).value_or(chance(45) ? 1 : any_divisor(divided));
    return divided % window.group == 0 ? window : Window{window.role};
  }

  // Groups of a convolution as far as the statement or the kernel's channels tell.
  std::optional<std::int64_t> known_group(const Statement& statement, const Variable& kernel) const {
    for (const AttributePattern& pattern : statement.attributes) {
      const auto value = pattern.name == "group" ? evaluate_attribute(pattern, *this, 0) : std::nullopt;
      const auto* group = value ? std::get_if<std::int64_t>(&*value) : nullptr;
      if (group && *group > 0) return *group;
    }
    const auto& inputs = values_[statement.arguments[0].slot];
    if (inputs.empty() || !kernel.shape || kernel.shape->size() < 2) return std::nullopt;
    const Extent& channels = (*kernel.shape)[1];
    if (channels.kind != Extent::Kind::kSymbol || !bound_[channels.slot]) return std::nullopt;
    const std::int64_t all = graph_->type(inputs[0]).dims[1], each = std::get<std::int64_t>(symbols_[channels.slot]);
    return each > 0 && all % each == 0 ? std::optional(all / each) : std::nullopt;
  }

  std::int64_t any_divisor(std::int64_t number) {
    const std::vector<std::int64_t> divisors = divisors_of(number);
    return divisors.empty() ? 1 : divisors[pick(0, static_cast<std::int64_t>(divisors.size()) - 1)];
  }

  // An extent at a position that the window says something about.
  std::int64_t draw_extent(std::size_t at) {
    const bool kernel = window_.role == Window::Role::kKernel;
    if (window_.role != Window::Role::kNone && at < 2 && !window_.other.empty()) {
      if (kernel) return at == 0 ? window_.group * pick(1, 3) : window_.other[1] / window_.group;
      if (at == 1) return window_.other[1] * window_.group;
    }
    if (window_.role == Window::Role::kInput && at == 1 && chance(40)) return pick(2, 6) * pick(2, 5);    // of several groups
    return chance(15) ? 1 : size_within(2, 6);
  }

  // The extents that an ellipsis at a position stands for.
  Dims draw_middle(std::size_t at) {
    Dims middle;
    if (window_.role == Window::Role::kNone) {
      for (std::int64_t i = pick(0, 2); i > 0; --i) middle.push_back(size_within(1, 3));
      return middle;
    }
    for (; at < 2; ++at) middle.push_back(draw_extent(at));
    const std::size_t rank = window_.other.empty() ? static_cast<std::size_t>(pick(1, 2)) : window_.other.size() - 2;
    const bool kernel = window_.role == Window::Role::kKernel;
    for (const std::int64_t extent : list_of(rank, kernel ? 1 : 3, kernel ? 3 : 6)) middle.push_back(extent);
    return middle;
  }

  // Creates the values of a variable with shapes from its declaration, or random ones that tend to fit.
  bool create(const Variable& variable, std::size_t count) {
    const bool open = !variable.shape || (variable.shape->size() == 1 && (*variable.shape)[0].kind == Extent::Kind::kEllipsis &&
                                          (*variable.shape)[0].slot < 0);
    const std::optional<Dims> shared = !open || !chance(60) ? std::nullopt : std::optional(free_shape());
    for (std::size_t i = 0; i < count; ++i) {
      Dims dims = !open ? declared_shape(*variable.shape, i) : shared ? *shared : free_shape();
      if (open && shared && count > 1 && !dims.empty() && chance(50)) dims[pick(0, static_cast<std::int64_t>(dims.size()) - 1)] = size_within(1, 4);
      TensorType tensor{kFloat, true, std::move(dims)};
      if (!tensor.is_countable() || tensor.elements() > kMostElementsOfVariable) return false;
      if (contents_[variable.slot]) tensor.content = contents_[variable.slot]->content;
      const TypeId type = context_->type(tensor);
      const std::string name = rule_.value_names[variable.slot] + std::to_string(names_++);
      const NameId id = context_->name(name);
      values_[variable.slot].push_back(variable.weight_only ? graph_->add_weight(id, name, type) : graph_->add_input(id, type));
    }
    return true;
  }

  Dims declared_shape(const std::vector<Extent>& shape, std::size_t element) {
    Dims dims;
    for (const Extent& extent : shape) {
      if (extent.kind == Extent::Kind::kInteger) {
        dims.push_back(extent.integer);
        continue;
      }
      if (extent.kind == Extent::Kind::kEllipsis) {
        Dims middle;
        if (extent.slot >= 0 && bound_[extent.slot]) middle = std::get<Dims>(symbols_[extent.slot]);
        else middle = draw_middle(dims.size());
        if (extent.slot >= 0) set(extent.slot, middle);
        dims.insert(dims.end(), middle.begin(), middle.end());
        continue;
      }
      const bool starred = extent.kind == Extent::Kind::kStarred;
      if (starred && (!bound_[extent.slot] || std::get<Dims>(symbols_[extent.slot]).size() <= element)) {
        Dims extents = bound_[extent.slot] ? std::get<Dims>(symbols_[extent.slot]) : Dims{};
        extents.push_back(window_.role == Window::Role::kKernel ? draw_extent(dims.size()) : size_within(1, 5));
        set(extent.slot, std::move(extents));
      }
      if (!starred && !bound_[extent.slot]) set(extent.slot, at_least_asked(extent.slot, draw_extent(dims.size())));
      dims.push_back(starred ? std::get<Dims>(symbols_[extent.slot])[element] : std::get<std::int64_t>(symbols_[extent.slot]));
    }
    return dims;
  }

  Dims free_shape() {
    std::vector<Dims> known;
    for (const auto& list : values_) {
      for (const ValueId value : list) known.push_back(graph_->type(value).dims);
    }
    if (!known.empty() && chance(70)) {    // equal to, or broadcast against, something that is there
      Dims dims = known[pick(0, static_cast<std::int64_t>(known.size()) - 1)];
      if (chance(50)) return dims;
      if (chance(50)) dims.erase(dims.begin(), dims.begin() + pick(0, static_cast<std::int64_t>(dims.size())));
      for (std::int64_t& extent : dims) {
        if (chance(30)) extent = 1;
      }
      return dims;
    }
    Dims dims(pick(0, 5));
    if (chance(35)) return Dims(dims.size(), size_within(2, 3));    // equal extents: where a wrong permutation still fits
    for (std::int64_t& item : dims) item = size_within(1, 4);
    return dims;
  }

  void set(std::int32_t slot, Quantity value) {
    symbols_[slot] = std::move(value);
    bound_[slot] = 1;
  }

  bool add_node(const Statement& statement, const std::vector<ValueId>& operands, std::size_t results, bool list) {
    if (operands.empty()) return false;
    const OperatorId op = statement.op ? *statement.op : operators_[statement.op_variable];
    const std::string_view name = operator_info(op).name;
    AttributeMap map;
    if (statement.rest >= 0) {
      if (!rests_[statement.rest]) rests_[statement.rest] = random_rest(name, operands, results, statement.listed);
      if (!rests_[statement.rest]) return false;
      map = *rests_[statement.rest];
    }
    if (!statement.op) {
      std::optional<AttributeMap>& rest = operator_rests_[statement.op_variable];
      if (!rest) rest = random_rest(name, operands, results, {});
      if (!rest) return false;
      map = *rest;
    }
    for (const AttributePattern& pattern : statement.attributes) {
      const bool unbound = pattern.value.kind == Expression::Kind::kSymbol && !bound_[pattern.value.slot];
      auto value = unbound ? wanted(pattern.value.slot) : evaluate_attribute(pattern, *this, graph_->type(operands[0]).dims.size());
      if (unbound && !value) value = random_attribute(name, pattern.name, operands, results, map);
      if (!value) return false;
      map.emplace_back(pattern.name, to_attribute(pattern.name, *value, kFloat));
      if (unbound) set(pattern.value.slot, std::move(*value));
    }
    std::sort(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    complete_attributes(op, map, kFloat);
    std::vector<TypeId> types;
    for (const ValueId operand : operands) types.push_back(graph_->value(operand).type);
    const auto signature = context_->inferred(op, context_->attributes(map), types);
    if (!signature || context_->signature(*signature).outputs.size() != results) return false;
    const std::string label = rule_.value_names[statement.results[0].slot];
    std::vector<NameId> names;
    for (std::size_t i = 0; i < results; ++i) names.push_back(context_->name(label + "_" + std::to_string(names_++)));
    const NodeId node = graph_->add_node(*signature, operands, names, context_->name(""), false);
    graph_->finalize();
    for (std::size_t i = 0; i < results; ++i) {
      const ValueId value = graph_->node(node).output_begin + static_cast<ValueId>(i);
      values_[statement.results[list ? 0 : i].slot].push_back(value);
    }
    return true;
  }

  // Sometimes what a condition says that a symbol equals.
  std::optional<Quantity> wanted(std::int32_t symbol) {
    for (const Demand& demand : wanted_) {
      if (demand.slot != symbol || chance(40)) continue;
      if (auto value = evaluate(*demand.value, *this)) return value;
    }
    return std::nullopt;
  }

  Dims list_of(std::size_t count, std::int64_t low, std::int64_t high) {
    Dims out(count);
    for (std::int64_t& item : out) item = pick(low, high);
    return out;
  }

  // One attribute of an operator, random but of the right form for its operands.
  std::optional<Quantity> random_attribute(std::string_view op, const std::string& attribute, const std::vector<ValueId>& operands, std::size_t results,
                                           const AttributeMap& so_far) {
    const Dims& x = graph_->type(operands[0]).dims;
    const auto rank = static_cast<std::int64_t>(x.size());
    if (attribute == "perm") {
      Dims perm(x.size());
      for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
      std::shuffle(perm.begin(), perm.end(), random_);
      return perm;
    }
    if (attribute == "axis" && op == "LayerNormalization") return rank == 0 ? std::nullopt : std::optional<Quantity>(rank - 1);
    if (attribute == "axis") return rank == 0 ? std::nullopt : std::optional<Quantity>(pick(0, rank - 1));
    if (attribute == "shape" && op == "Expand") {
      Dims shape = x;
      for (std::int64_t& extent : shape) extent = extent == 1 ? pick(1, 4) : extent;
      return shape;
    }
    if (attribute == "shape") return random_reshape(x);
    if (attribute == "kernel_shape" && operands.size() > 1) {
      const Dims& w = graph_->type(operands[1]).dims;
      return w.size() < 3 ? std::nullopt : std::optional<Quantity>(Dims(w.begin() + 2, w.end()));
    }
    if (attribute == "split") return random_split(x, so_far, results);
    if (op == "Slice") return random_cut(x, attribute, so_far);
    const std::size_t spatial = x.size() > 2 ? x.size() - 2 : 0;
    if (attribute == "kernel_shape") return list_of(spatial, 1, 3);
    if (attribute == "ceil_mode") return Quantity(std::int64_t{chance(15)});
    if (attribute == "count_include_pad" || attribute == "transA" || attribute == "transB") return Quantity(pick(0, 1));
    if (attribute == "strides") return list_of(spatial, 1, chance(30) ? 3 : 2);
    if (attribute == "dilations") return list_of(spatial, 1, chance(30) ? chance(30) ? 3 : 2 : 1);
    if (attribute == "group") {
      const Dims& w = operands.size() > 1 ? graph_->type(operands[1]).dims : x;
      return x.size() < 3 || w.size() < 3 || w[1] == 0 || x[1] % w[1] != 0 ? std::nullopt : std::optional<Quantity>(x[1] / w[1]);
    }
    if (attribute == "pads" && op.ends_with("Pool")) return random_pool_pads(so_far);
    if (attribute == "pads") return op == "Pad" ? list_of(2 * x.size(), 0, 2) : list_of(2 * spatial, 0, 3);
    if (attribute == "keepdims") return Quantity(pick(0, 1));
    if (attribute == "axes") return random_axes(rank);
    if (attribute == "mode") return Quantity(std::string("constant"));
    if (attribute == "value") return Quantity(0.0);
    constexpr std::string_view kFlags[] = {"is_causal", "interleaved", "unidirectional"};
    if (std::find(std::begin(kFlags), std::end(kFlags), attribute) != std::end(kFlags)) return Quantity(pick(0, 1));
    if (attribute.ends_with("num_heads")) return Quantity(pick(1, 3));
    if (attribute == "approximate") return Quantity(std::string(chance(50) ? "none" : "tanh"));
    constexpr std::string_view kReals[] = {"alpha", "beta", "gamma", "epsilon", "scale"};
    if (std::find(std::begin(kReals), std::end(kReals), attribute) != std::end(kReals)) return Quantity(static_cast<double>(static_cast<float>(any_real())));
    return std::nullopt;
  }

  // Some axes, ascending.
  std::optional<Quantity> random_axes(std::int64_t rank) {
    if (rank == 0) return std::nullopt;
    Dims axes;
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      if (chance(40)) axes.push_back(axis);
    }
    if (axes.empty()) axes.push_back(pick(0, rank - 1));
    return axes;
  }

  static const Attribute* find_unsorted(const AttributeMap& map, std::string_view name) {
    const auto at = std::find_if(map.begin(), map.end(), [&](const auto& entry) { return entry.first == name; });
    return at == map.end() ? nullptr : &at->second;
  }

  // Parts of the axis that is drawn already.
  std::optional<Quantity> random_split(const Dims& x, const AttributeMap& so_far, std::size_t parts) {
    const auto* axis = find_unsorted(so_far, "axis");
    const auto* at = axis ? std::get_if<std::int64_t>(axis) : nullptr;
    if (!at || *at < 0 || *at >= static_cast<std::int64_t>(x.size())) return std::nullopt;
    const auto least = static_cast<std::int64_t>(parts);
    if (x[*at] < least) return std::nullopt;
    if (x[*at] % least == 0 && chance(40)) return Dims(parts, x[*at] / least);
    Dims sizes(parts, 1);
    for (std::int64_t rest = x[*at] - least; rest > 0; --rest) ++sizes[pick(0, least - 1)];
    return sizes;
  }

  // One list of a Slice; axes come first, then ends, starts and steps.
  std::optional<Quantity> random_cut(const Dims& x, const std::string& attribute, const AttributeMap& so_far) {
    if (attribute == "axes") return random_axes(static_cast<std::int64_t>(x.size()));
    const auto *axes = find_unsorted(so_far, "axes"), *ends = find_unsorted(so_far, "ends");
    if (!axes || (attribute == "starts" && !ends)) return std::nullopt;
    Dims list;
    for (const std::int64_t axis : std::get<Dims>(*axes)) {
      if (attribute == "ends") list.push_back(pick(1, x[axis]));
      else if (attribute == "starts") list.push_back(pick(0, std::get<Dims>(*ends)[list.size()] - 1));
      else list.push_back(chance(70) ? 1 : 2);
    }
    return list;
  }

  // Smaller than the kernel, so that no window lies in the padding alone.
  std::optional<Quantity> random_pool_pads(const AttributeMap& so_far) {
    const auto* kernel = find_unsorted(so_far, "kernel_shape");
    if (!kernel) return std::nullopt;
    Dims pads;
    for (int side = 0; side < 2; ++side) {
      for (const std::int64_t width : std::get<Dims>(*kernel)) pads.push_back(pick(0, std::max<std::int64_t>(0, width - 1)));
    }
    return pads;
  }

  // In ascending order.
  static std::vector<std::int64_t> divisors_of(std::int64_t number) {
    std::vector<std::int64_t> low, high;
    for (std::int64_t d = 1; d * d <= number; ++d) {
      if (number % d != 0) continue;
      low.push_back(d);
      if (d * d != number) high.push_back(number / d);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
  }

  // Regroups all extents, or half of the time only the last one, as when attention heads are separated.
  Dims random_reshape(const Dims& dims) {
    const bool last_only = !dims.empty() && chance(50);
    Dims shape = last_only ? Dims(dims.begin(), dims.end() - 1) : Dims{};
    std::int64_t elements = 1;
    for (const std::int64_t extent : std::span(dims).subspan(shape.size())) elements *= extent;
    const std::size_t longest = shape.size() + static_cast<std::size_t>(pick(0, 3));
    while (elements > 1 && shape.size() < longest) {
      const std::vector<std::int64_t> divisors = divisors_of(elements);
      shape.push_back(divisors[pick(0, static_cast<std::int64_t>(divisors.size()) - 1)]);
      elements /= shape.back();
    }
    if (elements > 1 || shape.empty()) shape.push_back(elements);
    return shape;
  }

  // Names of the attributes in the normal form of operators that have any, in ascending order.
  static std::vector<std::string> attribute_names(std::string_view op) {
    static const std::unordered_map<std::string_view, std::vector<std::string>> names = {
        {"AveragePool", {"ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"}},
        {"BatchNormalization", {"epsilon"}},
        {"Concat", {"axis"}},
        {"Conv", {"dilations", "group", "kernel_shape", "pads", "strides"}},
        {"Elu", {"alpha"}},
        {"Expand", {"shape"}},
        {"Gemm", {"alpha", "beta", "transA", "transB"}},
        {"LayerNormalization", {"axis", "epsilon"}},
        {"LeakyRelu", {"alpha"}},
        {"LogSoftmax", {"axis"}},
        {"MaxPool", {"ceil_mode", "dilations", "kernel_shape", "pads", "strides"}},
        {"Pad", {"mode", "pads", "value"}},
        {"Reshape", {"shape"}},
        {"Slice", {"axes", "ends", "starts", "steps"}},
        {"Softmax", {"axis"}},
        {"Split", {"axis", "split"}},
        {"Transpose", {"perm"}},
    };
    if (op.starts_with("Reduce")) return {"axes", "keepdims"};
    const auto at = names.find(op);
    return at == names.end() ? std::vector<std::string>{} : at->second;
  }

  // The attributes that a rule does not write, as the operator's normal form has them; nothing where one does not fit.
  std::optional<AttributeMap> random_rest(std::string_view op, const std::vector<ValueId>& operands, std::size_t results, const std::vector<std::string>& listed) {
    AttributeMap map;
    for (const std::string& name : attribute_names(op)) {
      if (std::find(listed.begin(), listed.end(), name) != listed.end()) continue;
      const auto value = name == "epsilon" ? std::optional<Quantity>(1e-3) : random_attribute(op, name, operands, results, map);
      if (!value) return std::nullopt;
      map.emplace_back(name, to_attribute(name, *value, kFloat));
    }
    return map;
  }

  std::shared_ptr<const RuleBook> book_;
  const Rule& rule_;
  std::mt19937_64 random_;
  std::int64_t stretch_;
  std::shared_ptr<Context> context_ = std::make_shared<Context>();
  Matcher matcher_;
  std::optional<Graph> graph_;
  std::vector<std::vector<ValueId>> values_;
  std::vector<Quantity> symbols_;
  std::vector<char> bound_;
  std::vector<std::optional<AttributeMap>> rests_;
  std::vector<OperatorId> operators_;
  std::vector<std::optional<AttributeMap>> operator_rests_;    // by operator variable
  Window window_;    // what the statement asks of the variable that is being created
  std::vector<Demand> demands_, wanted_;    // of weights by value slot, of symbols by symbol slot
  std::vector<std::int64_t> least_;         // by symbol slot
  std::vector<std::int32_t> asked_;         // weights whose content some condition asks for
  std::vector<std::optional<TensorType>> contents_;    // by value slot: types with chosen content
  std::vector<double> pool_ = {0.25, 0.5, 1, 2, 3, -1, 1e-5, 0};
  std::size_t elements_ = 2;
  int names_ = 0;
};

}  // namespace

std::optional<Graph> random_instance(const Rule& rule, std::uint64_t seed, std::int64_t stretch, int tries) {
  return Builder(rule, mix(seed), stretch).build(tries);
}

}  // namespace rlflow
