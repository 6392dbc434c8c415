#include "verification/instance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "verification/instance_attributes.hpp"
#include "verification/instance_operands.hpp"
#include "verification/instance_shapes.hpp"
#include "rewriting/matcher.hpp"

namespace rlflow {
namespace {

constexpr std::int64_t kMostElementsOfVariable = 1 << 24;    // because instances are evaluated
constexpr int kFloat = 1;    // TensorProto.FLOAT
constexpr int kAlike = 50;   // per cent of instances with extents of 1 or one common number, if the rule allows it
constexpr int kLarge = 40;    // per cent of instances in which something is large, if the rule allows it
constexpr int kTriesAlike = 8;    // one of so many tries goes into such instances

class Builder final : public Scope {
 public:
  Builder(const Rule& rule, std::uint64_t seed, std::int64_t stretch, const Dtypes& dtypes = {})
      : book_(std::make_shared<const RuleBook>(std::vector<Rule>{rule})), rule_(book_->rules[0]), dice_(seed, stretch), demands_(rule_, dice_),
        matcher_(context_, book_, std::make_shared<RecipeBook>(context_, book_->rules)) {
    for (const Variable& variable : rule_.variables) {
      const auto given = dtypes.find(rule_.value_names[variable.slot]);
      dtypes_[variable.slot] = given == dtypes.end() ? demands_.dtype(variable.slot).value_or(kFloat) : given->second;
    }
    admit_dtypes();
    dice_.expect_windows(windows_in_a_row());
    for (const Statement& statement : rule_.source) {
      if (!statement.op || operator_info(*statement.op).name != "DepthToSpace") continue;
      for (const std::int64_t channels : {8, 12, 18}) dice_.add_extent(channels);    // multiples of the square of a block
    }
  }

  std::optional<Graph> build(int tries) {
    const bool alike = dice_.chance(kAlike);
    using enum Dice::Large;
    const std::vector<Dice::Large> possible = what_may_be_large();
    const Dice::Large large = !possible.empty() && dice_.chance(kLarge) ? dice_.any_of(possible) : kNothing;
    for (int attempt = 0; attempt < tries; ++attempt) {
      const bool first = attempt < tries / kTriesAlike;
      dice_.make_alike(alike && first && large == kNothing);
      dice_.make_large(first ? large : kNothing);
      auto graph = try_build();
      if (graph && applies(*graph)) return graph;
    }
    return std::nullopt;
  }

  std::vector<Dice::Large> what_may_be_large() const {
    using enum Dice::Large;
    std::vector<Dice::Large> found;
    if (std::find(rule_.value_starred.begin(), rule_.value_starred.end(), true) != rule_.value_starred.end()) found.push_back(kLists);
    const bool slides = std::any_of(rule_.source.begin(), rule_.source.end(), [&](const Statement& statement) {
      return slides_window(statement, true);
    });
    if (slides) found.insert(found.end(), {kChannels, kWindows});
    return found;
  }

  bool slides_window(const Statement& statement, bool or_pads) const {
    const std::vector<OperatorId> ops = operators_of(rule_, statement);
    return std::any_of(ops.begin(), ops.end(), [&](OperatorId op) {
      const std::string_view name = operator_info(op).name;
      return name == "Conv" || name.ends_with("Pool") || (or_pads && name == "Pad");
    });
  }

  // Returns the most windows that slide over one another's results.
  int windows_in_a_row() const {
    std::map<std::int32_t, int> above;    // windows above each value, by slot
    int most = 0;
    for (const Statement& statement : rule_.source) {
      int count = 0;
      for (const Term& operand : statement.arguments) count = std::max(count, above[operand.slot]);
      count += slides_window(statement, false);
      for (const Term& result : statement.results) above[result.slot] = count;
      most = std::max(most, count);
    }
    return most;
  }

  std::size_t statements_that_fit(int tries) {
    contents_.assign(rule_.value_names.size(), std::nullopt);
    for (int attempt = 0; attempt < tries && fitted_ < rule_.source.size(); ++attempt) {
      dice_.make_alike(attempt % 2 == 0);
      (void)build_source();
    }
    return fitted_;
  }

  const Quantity* symbol(std::int32_t slot) const override { return bindings_.bound[slot] ? &bindings_.symbols[slot] : nullptr; }
  std::size_t count(std::int32_t slot) const override { return values_[slot].size(); }
  const AttributeMap* attributes(std::int32_t slot, bool of_operator) const override {
    const std::optional<AttributeMap>& bound = of_operator ? operator_rests_[slot] : rests_[slot];
    return bound ? &*bound : nullptr;
  }
  const TensorType* type(std::int32_t slot) const override {
    if (contents_[slot]) return &*contents_[slot];
    return values_[slot].empty() ? nullptr : &graph_->type(values_[slot][0]);
  }

 private:
  // Contents of weights may depend on what is known only after all is built, so the same graph is then built again.
  std::optional<Graph> try_build() {
    contents_.assign(rule_.value_names.size(), std::nullopt);
    const Dice before = dice_;
    auto graph = build_source();
    if (!graph || demands_.asked().empty()) return graph;
    graph_ = std::move(graph);
    if (!choose_contents()) return std::nullopt;
    const Dice after = std::exchange(dice_, before);
    graph = build_source();
    dice_ = after;
    return graph;
  }

  std::optional<Graph> build_source() {
    graph_.emplace(context_);
    values_.assign(rule_.value_names.size(), {});
    bindings_ = {std::vector<Quantity>(rule_.symbol_names.size()), std::vector<char>(rule_.symbol_names.size(), 0)};
    rests_.assign(rule_.rest_names.size(), std::nullopt);
    operators_.clear();
    operator_rests_.assign(rule_.operators.size(), std::nullopt);
    for (const OperatorVariable& variable : rule_.operators) operators_.push_back(dice_.any_of(variable.choices));
    const bool many = dice_.large(Dice::Large::kLists);
    elements_ = static_cast<std::size_t>(rule_.least_elements + (many ? dice_.any_of(std::array{6, 13, 30}) : dice_.pick(0, 2)));
    names_ = 0;
    shapes_.begin();
    attributes_.begin();
    operand_draw_.begin();
    for (std::size_t i = 0; i < rule_.source.size(); ++i) {
      if (!add_statement(rule_.source[i])) return std::nullopt;
      fitted_ = std::max(fitted_, i + 1);
    }
    for (const Statement& statement : rule_.source) {
      for (const Term& term : statement.results) expose(term);
    }
    graph_->finalize();
    return graph_;
  }

  // Chooses the contents of weights. Those that follow from what is known come first; if none does, one weight gets any
  // content, and so on.
  bool choose_contents() {
    std::vector<std::int32_t> open = demands_.asked();
    dice_.shuffle(open);
    while (!open.empty()) {
      auto next = std::find_if(open.begin(), open.end(), [&](std::int32_t slot) { return !demands_.contents(slot, *this).empty(); });
      const bool follows = next != open.end();
      if (!follows) next = open.begin();
      if (values_[*next].empty()) return false;    // no statement of the source reads it
      TensorType type = graph_->type(values_[*next][0]);
      const std::vector<Content> choices =
          follows ? demands_.contents(*next, *this) : std::vector<Content>{{Content::Kind::kUniform, any_number(*next, type.dtype)}};
      type.content = dice_.any_of(choices);
      if (!Demands::can_hold(type)) return false;
      contents_[*next] = std::move(type);
      open.erase(next);
    }
    return true;
  }

  // Returns a number that may fill a variable.
  double any_number(std::int32_t slot, int dtype) {
    const std::vector<double> bounds = demands_.bounds(slot, *this);
    if (!bounds.empty() && dice_.chance(25)) return is_floating(dtype) ? held(dice_.any_of(bounds), dtype) : std::nearbyint(dice_.any_of(bounds));
    const std::optional<double> valid = operand_draw_.number(*graph_, values_[slot][0]);
    return valid ? *valid : held(dice_.any_real(), dtype);
  }

  // Returns the finite number of an element type next to a real.
  static double held(double real, int dtype) {
    constexpr int kFloat16 = 10, kDouble = 11, kBfloat16 = 16;
    if (dtype == kDouble || real == 0) return real;
    const int bits = dtype == kFloat16 ? 10 : dtype == kBfloat16 ? 7 : 23;
    const int exponent = dtype == kFloat16 ? std::max(std::ilogb(real), -14) : std::ilogb(real);
    const double unit = std::ldexp(1.0, exponent - bits);
    const double most = dtype == kFloat16 ? 65504.0 : std::ldexp(2.0 - std::ldexp(1.0, -bits), 127);
    return std::clamp(std::nearbyint(real / unit) * unit, -most, most);
  }

  // Makes results outputs of the graph: those that the rule replaces, and those that no statement of the source reads.
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

  // Gives the variables that are operands whose elements decide a result, moved or not, a type that is admitted there.
  void admit_dtypes() {
    std::map<std::int32_t, std::vector<int>> admitted;    // by value slot
    for (auto statement = rule_.source.rbegin(); statement != rule_.source.rend(); ++statement) {
      if (!statement->op) continue;
      const std::string_view op = operator_info(*statement->op).name;
      const std::vector<Term>& operands = statement->arguments;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (auto valued = valued_operand(op, i, operands.size(), {})) admitted.emplace(operands[i].slot, std::move(valued->dtypes));
      }
      for (const Term& result : statement->results) {
        const auto at = admitted.find(result.slot);
        if (at == admitted.end()) continue;
        for (std::size_t i = 0; i < std::min(moved_operands(op), operands.size()); ++i) admitted.emplace(operands[i].slot, at->second);
      }
    }
    for (const auto& [slot, dtypes] : admitted) {
      const auto at = dtypes_.find(slot);
      if (at != dtypes_.end() && std::find(dtypes.begin(), dtypes.end(), at->second) == dtypes.end()) at->second = dtypes.front();
    }
  }

  // Returns the shape that such an operand has, if only one fits.
  std::optional<Dims> valued_dims(const Statement& statement, std::size_t argument) const {
    const auto& first = values_[statement.arguments[0].slot];
    if (!statement.op || argument == 0 || first.empty()) return std::nullopt;
    const auto valued = valued_operand(operator_info(*statement.op).name, argument, statement.arguments.size(), graph_->type(first[0]).dims);
    return valued ? valued->dims : std::nullopt;
  }

  bool add_statement(const Statement& statement) {
    const bool list_result = !statement.mapped && statement.results.size() == 1 && statement.results[0].starred;
    for (std::size_t i = 0; i < statement.arguments.size(); ++i) {
      const Term& term = statement.arguments[i];
      if (!values_[term.slot].empty()) continue;
      const Variable* variable = variable_of(term.slot);
      if (!variable) return false;
      window_ = window_of(statement, i, *variable);
      const auto& first = values_[statement.arguments[0].slot];
      const bool part = statement.op && operator_info(*statement.op).name == "Concat" && !first.empty() && dice_.chance(40);
      beside_ = part ? std::optional(graph_->type(first[0]).dims) : std::nullopt;
      fixed_ = valued_dims(statement, i);
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
    const bool depthwise = dice_.large(Dice::Large::kChannels) && dice_.chance(60);
    window.group = known_group(statement, variable).value_or(depthwise ? divided : dice_.chance(45) ? 1 : dice_.any_divisor(divided));
    return divided % window.group == 0 ? window : Window{window.role};
  }

  // Returns the number of groups of a convolution if the statement or the kernel's channels tell it.
  std::optional<std::int64_t> known_group(const Statement& statement, const Variable& kernel) const {
    for (const AttributePattern& pattern : statement.attributes) {
      const auto value = pattern.name == "group" ? evaluate_attribute(pattern, *this, 0) : std::nullopt;
      const auto* group = value ? std::get_if<std::int64_t>(&*value) : nullptr;
      if (group && *group > 0) return *group;
    }
    const auto& inputs = values_[statement.arguments[0].slot];
    if (inputs.empty() || !kernel.shape || kernel.shape->size() < 2) return std::nullopt;
    const Extent& channels = (*kernel.shape)[1];
    if (channels.kind != Extent::Kind::kSymbol || !bindings_.bound[channels.slot]) return std::nullopt;
    const Dims& dims = graph_->type(inputs[0]).dims;
    const auto* each = std::get_if<std::int64_t>(&bindings_.symbols[channels.slot]);
    return each && *each > 0 && dims.size() > 1 && dims[1] % *each == 0 ? std::optional(dims[1] / *each) : std::nullopt;
  }

  std::vector<Dims> known_shapes() const {
    std::vector<Dims> known;
    for (const auto& list : values_) {
      for (const ValueId value : list) known.push_back(graph_->type(value).dims);
    }
    return known;
  }

  // Creates the values of a variable with shapes from its declaration, or random ones that tend to fit.
  bool create(const Variable& variable, std::size_t count) {
    const bool open = !variable.shape || (variable.shape->size() == 1 && (*variable.shape)[0].kind == Extent::Kind::kEllipsis &&
                                          (*variable.shape)[0].slot < 0);
    const std::optional<Dims> shared = fixed_ ? fixed_ : !open || !dice_.chance(60) ? std::nullopt : std::optional(shapes_.open(known_shapes()));
    for (std::size_t i = 0; i < count; ++i) {
      auto declared = open ? std::nullopt : shapes_.declared(*variable.shape, i, window_);
      if (!open && !declared) return false;
      Dims dims = declared ? std::move(*declared) : beside_ ? shapes_.beside(*beside_) : shared ? *shared : shapes_.open(known_shapes());
      if (open && shared && !fixed_ && count > 1 && !dims.empty() && dice_.chance(50)) dims[dice_.pick(0, static_cast<std::int64_t>(dims.size()) - 1)] = dice_.size_within(1, 4);
      TensorType tensor{dtypes_.at(variable.slot), true, std::move(dims)};
      if (!tensor.is_countable() || tensor.elements() > kMostElementsOfVariable) return false;
      if (contents_[variable.slot]) tensor.content = contents_[variable.slot]->content;
      const TypeId type = context_->type(tensor);
      const std::string name = rule_.value_names[variable.slot] + std::to_string(names_++);
      const NameId id = context_->name(name);
      values_[variable.slot].push_back(variable.weight_only ? graph_->add_weight(id, name, type) : graph_->add_input(id, type));
    }
    return true;
  }

  // Creates the variables that bind the symbols of an expression, if only later statements read them.
  bool create_for(const Expression& expression) {
    if (expression.kind == Expression::Kind::kSymbol && !bindings_.bound[expression.slot]) {
      const auto binds = [&](const Extent& extent) { return extent.kind != Extent::Kind::kInteger && extent.slot == expression.slot; };
      for (const Variable& variable : rule_.variables) {
        if (!variable.shape || !values_[variable.slot].empty() || std::none_of(variable.shape->begin(), variable.shape->end(), binds)) continue;
        window_ = {};
        beside_.reset();
        fixed_.reset();
        return create(variable, variable.starred ? elements_ : 1);
      }
    }
    return std::all_of(expression.arguments.begin(), expression.arguments.end(), [&](const Expression& each) { return create_for(each); });
  }

  bool add_node(const Statement& statement, const std::vector<ValueId>& operands, std::size_t results, bool list) {
    if (operands.empty()) return false;
    const OperatorId op = statement.op ? *statement.op : operators_[statement.op_variable];
    const std::string_view name = operator_info(op).name;
    const int dtype = graph_->type(operands[0]).dtype;
    std::vector<Dims> dims;
    for (const ValueId operand : operands) dims.push_back(graph_->type(operand).dims);
    for (const AttributePattern& pattern : statement.attributes) {
      if (pattern.value.kind != Expression::Kind::kSymbol && !create_for(pattern.value)) return false;
    }
    AttributeMap map;
    if (statement.rest >= 0) {
      if (!rests_[statement.rest]) rests_[statement.rest] = attributes_.all(name, dims, results, statement.listed);
      if (!rests_[statement.rest]) return false;
      map = *rests_[statement.rest];
    }
    if (!statement.op) {
      std::optional<AttributeMap>& rest = operator_rests_[statement.op_variable];
      if (!rest) rest = attributes_.all(name, dims, results, {});
      if (!rest) return false;
      map = *rest;
    }
    for (const AttributePattern& pattern : statement.attributes) {
      const bool unbound = pattern.value.kind == Expression::Kind::kSymbol && !bindings_.bound[pattern.value.slot];
      auto value = unbound ? demands_.wanted(pattern.value.slot, *this) : evaluate_attribute(pattern, *this, dims[0].size());
      if (unbound && !value) value = attributes_.one(name, pattern.name, dims, results, map);
      if (!value) return false;
      map.emplace_back(pattern.name, to_attribute(pattern.name, *value, dtype));
      if (unbound) bindings_.set(pattern.value.slot, std::move(*value));
    }
    std::sort(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    complete_attributes(op, map, dtype);
    std::vector<TypeId> types;
    for (const ValueId operand : operands) types.push_back(graph_->value(operand).type);
    const auto signature = signature_of(statement, op, context_->attributes(map), operands, types);
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

  // Returns whether a statement reads a vector that the rule does not say to be one, because it leaves open the rank of a
  // variable that the vector is or depends on. The tested domain bounds such ranks and what else makes a vector, so a
  // rule on products of matrices, which the engine infers, does not match there.
  bool reads_open_vector(const Statement& statement) const {
    return std::any_of(statement.arguments.begin(), statement.arguments.end(), [&](const Term& term) {
      return !values_[term.slot].empty() && graph_->type(values_[term.slot][0]).dims.size() == 1 && has_open_rank(term.slot);
    });
  }

  bool has_open_rank(std::int32_t slot) const {
    if (const Variable* variable = variable_of(slot)) {
      const auto is_ellipsis = [](const Extent& extent) { return extent.kind == Extent::Kind::kEllipsis; };
      return !variable->shape || std::any_of(variable->shape->begin(), variable->shape->end(), is_ellipsis);
    }
    return std::any_of(rule_.source.begin(), rule_.source.end(), [&](const Statement& made) {
      const auto is_it = [&](const Term& result) { return result.slot == slot; };
      return std::any_of(made.results.begin(), made.results.end(), is_it) &&
             std::any_of(made.arguments.begin(), made.arguments.end(), [&](const Term& operand) { return has_open_rank(operand.slot); });
    });
  }

  // Returns the signature of an operator of the source: with the types that the engine infers, or those that a model
  // may give it.
  std::optional<SignatureId> signature_of(const Statement& statement, OperatorId op, AttributesId attributes, const std::vector<ValueId>& operands,
                                          const std::vector<TypeId>& types) {
    if (const auto inferred = context_->inferred(op, attributes, types)) return inferred;
    if (operator_info(op).name == "MatMul" && reads_open_vector(statement)) return std::nullopt;
    std::vector<const TensorType*> read;
    for (const TypeId type : types) read.push_back(&context_->type(type));
    const auto outputs = operand_draw_.outputs(operator_info(op).name, context_->attributes(attributes), operands, read);
    if (!outputs) return std::nullopt;
    std::vector<TypeId> made;
    for (const TensorType& output : *outputs) made.push_back(context_->type(output));
    return context_->given(op, attributes, types, made);
  }

  std::shared_ptr<const RuleBook> book_;
  const Rule& rule_;
  Dice dice_;
  Demands demands_;
  Bindings bindings_;
  ShapeDraw shapes_{dice_, demands_, bindings_};
  AttributeDraw attributes_{dice_};
  OperandDraw operand_draw_{dice_};
  std::shared_ptr<Context> context_ = std::make_shared<Context>();
  Matcher matcher_;
  std::optional<Graph> graph_;
  std::vector<std::vector<ValueId>> values_;
  std::vector<std::optional<AttributeMap>> rests_;
  std::vector<OperatorId> operators_;
  std::vector<std::optional<AttributeMap>> operator_rests_;    // by operator variable
  Window window_;    // what the statement asks of the variable that is being created
  std::optional<Dims> beside_;    // shape of the first part of the concatenation that it is created for
  std::optional<Dims> fixed_;    // the only shape that fits the variable that is being created, if there is one
  std::map<std::int32_t, int> dtypes_;    // by value slot of a variable
  std::vector<std::optional<TensorType>> contents_;    // by value slot: types with chosen content
  std::size_t elements_ = 2;
  int names_ = 0;
  std::size_t fitted_ = 0;    // the most statements that a try has built
};

}  // namespace

std::optional<Graph> random_instance(const Rule& rule, std::uint64_t seed, std::int64_t stretch, const Dtypes& dtypes, int tries) {
  return Builder(rule, mix(seed), stretch, dtypes).build(tries);
}

std::optional<Place> misfit(const Rule& rule, int tries) {
  const std::size_t fitted = Builder(rule, 0, 0).statements_that_fit(tries);
  return fitted < rule.source.size() ? std::optional(rule.source[fitted].place) : std::nullopt;
}

}  // namespace rlflow

