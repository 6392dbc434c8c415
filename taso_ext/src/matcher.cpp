#include "matcher.hpp"

#include <algorithm>

namespace rlflow {

Matcher::Matcher(const Graph& graph, const Rule& rule) : graph_(graph), rule_(rule) {
  binding_.values.assign(rule.value_names.size(), kNoValue);
  binding_.lists.resize(rule.value_names.size());
  binding_.symbols.resize(rule.symbol_names.size());
  binding_.symbol_bound.assign(rule.symbol_names.size(), 0);
  binding_.rests.resize(rule.rest_names.size());
  binding_.rest_bound.assign(rule.rest_names.size(), 0);
  binding_.operators.resize(rule.operators.size());
  binding_.operator_bound.assign(rule.operators.size(), 0);
  binding_.nodes.resize(rule.source.size());
  elements_.resize(rule.value_names.size());
  variable_of_.assign(rule.value_names.size(), nullptr);
  for (const Variable& variable : rule.variables) variable_of_[variable.slot] = &variable;
}

const Quantity* Matcher::symbol(std::int32_t slot) const {
  return binding_.symbol_bound[slot] ? &binding_.symbols[slot] : nullptr;
}

const Dims* Matcher::dims(std::int32_t slot) const {
  const ValueId value = binding_.values[slot];
  return value == kNoValue ? nullptr : &graph_.type(value).dims;
}

bool Matcher::visit(NodeId anchor, const Visitor& visitor) {
  const Statement& statement = rule_.source[rule_.plan[0]];
  if (!statement.mapped) return try_node(0, anchor, visitor);
  const std::vector<NodeId> group = siblings(statement, anchor);
  return group.empty() || group[0] != anchor || try_group(0, group, visitor);
}

void Matcher::undo_to(std::size_t mark) {
  while (trail_.size() > mark) {
    const auto [kind, slot] = trail_.back();
    trail_.pop_back();
    switch (kind) {
      case Undo::kValue: binding_.values[slot] = kNoValue; break;
      case Undo::kList: binding_.lists[slot].clear(); break;
      case Undo::kSymbol: binding_.symbol_bound[slot] = 0; break;
      case Undo::kRest: binding_.rest_bound[slot] = 0; break;
      case Undo::kOperator: binding_.operator_bound[slot] = 0; break;
      case Undo::kNodes: binding_.nodes[slot].clear(); break;
    }
  }
}

bool Matcher::bind_symbol(std::int32_t slot, Quantity value) {
  if (binding_.symbol_bound[slot]) return binding_.symbols[slot] == value;
  binding_.symbols[slot] = std::move(value);
  binding_.symbol_bound[slot] = 1;
  trail_.emplace_back(Undo::kSymbol, slot);
  return true;
}

// Checks role, dtype and shape; the extents that differ per element of a starred variable go to `starred`.
bool Matcher::fits(const Variable& variable, ValueId value, std::vector<std::pair<std::int32_t, std::int64_t>>* starred) {
  const TensorType& type = graph_.type(value);
  if (variable.weight_only && !graph_.value(value).weight_only) return false;
  if (!type.ranked || (variable.floating && !is_floating(type.dtype))) return false;
  if (!variable.shape) return true;
  const std::vector<Extent>& shape = *variable.shape;
  const bool open = std::any_of(shape.begin(), shape.end(), [](const Extent& e) { return e.kind == Extent::Kind::kEllipsis; });
  if (open ? type.dims.size() + 1 < shape.size() : type.dims.size() != shape.size()) return false;
  std::size_t at = 0;
  for (const Extent& extent : shape) {
    switch (extent.kind) {
      case Extent::Kind::kInteger:
        if (type.dims[at++] != extent.integer) return false;
        break;
      case Extent::Kind::kSymbol:
        if (!bind_symbol(extent.slot, {false, type.dims[at++], {}})) return false;
        break;
      case Extent::Kind::kStarred: starred->emplace_back(extent.slot, type.dims[at++]); break;
      case Extent::Kind::kEllipsis: {
        const std::size_t count = type.dims.size() + 1 - shape.size();
        Dims middle(type.dims.begin() + at, type.dims.begin() + at + count);
        if (extent.slot >= 0 && !bind_symbol(extent.slot, {true, 0, std::move(middle)})) return false;
        at += count;
        break;
      }
    }
  }
  return true;
}

bool Matcher::bind_value(std::int32_t slot, ValueId value) {
  if (value == kNoValue) return false;
  if (binding_.values[slot] != kNoValue) return binding_.values[slot] == value;
  if (const Variable* variable = variable_of_[slot]; variable && !fits(*variable, value, nullptr)) return false;
  binding_.values[slot] = value;
  trail_.emplace_back(Undo::kValue, slot);
  return true;
}

bool Matcher::bind_list(std::int32_t slot, std::vector<ValueId> values) {
  if (!binding_.lists[slot].empty()) return binding_.lists[slot] == values;
  if (const Variable* variable = variable_of_[slot]) {
    std::vector<std::pair<std::int32_t, Dims>> columns;
    for (const ValueId value : values) {
      std::vector<std::pair<std::int32_t, std::int64_t>> starred;
      if (value == kNoValue || !fits(*variable, value, &starred)) return false;
      if (columns.empty()) {
        for (const auto& [symbol, extent] : starred) columns.emplace_back(symbol, Dims{});
      }
      for (std::size_t i = 0; i < starred.size(); ++i) columns[i].second.push_back(starred[i].second);
    }
    for (auto& [symbol, extents] : columns) {
      if (!bind_symbol(symbol, {true, 0, std::move(extents)})) return false;
    }
  }
  binding_.lists[slot] = std::move(values);
  trail_.emplace_back(Undo::kList, slot);
  return true;
}

bool Matcher::operator_fits(const Statement& statement, NodeId id) {
  const Node& node = graph_.node(id);
  if (node.weight_only || node.identity) return false;
  const Signature& signature = graph_.signature(id);
  if (statement.op) return signature.op == *statement.op && attributes_fit(statement, signature);
  const auto& choices = rule_.operators[statement.op_variable].choices;
  if (std::find(choices.begin(), choices.end(), signature.op) == choices.end()) return false;
  auto& bound = binding_.operators[statement.op_variable];
  if (binding_.operator_bound[statement.op_variable]) return bound == std::pair(signature.op, signature.attributes);
  bound = {signature.op, signature.attributes};
  binding_.operator_bound[statement.op_variable] = 1;
  trail_.emplace_back(Undo::kOperator, statement.op_variable);
  return true;
}

bool Matcher::attributes_fit(const Statement& statement, const Signature& signature) {
  const AttributeMap& map = graph_.context().attributes(signature.attributes);
  const bool has_operand = !signature.inputs.empty() && signature.inputs[0] != kNoType;
  const std::size_t rank = has_operand ? graph_.context().type(signature.inputs[0]).dims.size() : 0;
  for (const AttributePattern& pattern : statement.attributes) {
    const Attribute* attribute = find_attribute(map, pattern.name);
    if (!attribute) return false;
    Quantity actual;
    if (const auto* integer = std::get_if<std::int64_t>(attribute)) actual = {false, *integer, {}};
    else if (const auto* integers = std::get_if<Dims>(attribute)) actual = {true, 0, *integers};
    else if (const auto* real = std::get_if<double>(attribute)) {
      if (*real != static_cast<double>(static_cast<std::int64_t>(*real))) return false;
      actual = {false, static_cast<std::int64_t>(*real), {}};
    } else return false;
    if (pattern.value.kind == Expression::Kind::kSymbol) {
      if (!bind_symbol(pattern.value.slot, std::move(actual))) return false;
      continue;
    }
    if (evaluate_attribute(pattern, *this, rank) != actual) return false;
  }
  if (statement.rest < 0) return map.size() == statement.listed.size();
  const AttributesId rest = graph_.context().without(signature.attributes, statement.listed);
  if (binding_.rest_bound[statement.rest]) return binding_.rests[statement.rest] == rest;
  binding_.rests[statement.rest] = rest;
  binding_.rest_bound[statement.rest] = 1;
  trail_.emplace_back(Undo::kRest, statement.rest);
  return true;
}

// Arguments of a single operator. A starred argument takes all operands that the plain ones leave over; `shift` is how
// many of them stand before the first plain argument that follows a star.
bool Matcher::bind_arguments(const Statement& statement, NodeId node, bool swapped, std::size_t shift) {
  const auto operands = graph_.operands(node);
  std::size_t at = 0;
  bool first_star = true;
  const auto plain = static_cast<std::size_t>(
      std::count_if(statement.arguments.begin(), statement.arguments.end(), [](const Term& t) { return !t.starred; }));
  const std::size_t stars = statement.arguments.size() - plain;
  if (stars == 0 ? operands.size() != plain : operands.size() < plain) return false;
  for (const Term& term : statement.arguments) {
    if (!term.starred) {
      const std::size_t from = swapped && operands.size() == 2 ? 1 - at : at;
      if (!bind_value(term.slot, operands[from])) return false;
      ++at;
      continue;
    }
    const std::size_t count = stars == 1 ? operands.size() - plain : first_star ? shift : operands.size() - plain - shift;
    first_star = false;
    if (stars == 1 && count < static_cast<std::size_t>(rule_.least_elements)) return false;
    std::vector<ValueId> values(operands.begin() + at, operands.begin() + at + count);
    if (count > 0 && !bind_list(term.slot, std::move(values))) return false;
    at += count;
  }
  return at == operands.size();
}

bool Matcher::bind_results(const Statement& statement, NodeId id) {
  const Node& node = graph_.node(id);
  if (statement.results.size() == 1 && statement.results[0].starred) {
    if (node.output_count < static_cast<std::uint32_t>(rule_.least_elements)) return false;
    std::vector<ValueId> values(node.output_count);
    for (std::uint32_t i = 0; i < node.output_count; ++i) values[i] = node.output_begin + static_cast<ValueId>(i);
    return bind_list(statement.results[0].slot, std::move(values));
  }
  if (node.output_count != statement.results.size()) return false;
  for (std::uint32_t i = 0; i < node.output_count; ++i) {
    if (!bind_value(statement.results[i].slot, node.output_begin + static_cast<ValueId>(i))) return false;
  }
  return true;
}

bool Matcher::used_elsewhere(NodeId node) const {
  return std::any_of(binding_.nodes.begin(), binding_.nodes.end(), [&](const auto& nodes) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  });
}

bool Matcher::step(std::size_t depth, const Visitor& visitor) {
  if (depth == rule_.plan.size()) return !acceptable() || visitor(binding_);
  return rule_.source[rule_.plan[depth]].mapped ? step_mapped(depth, visitor) : step_single(depth, visitor);
}

bool Matcher::try_node(std::size_t depth, NodeId node, const Visitor& visitor) {
  const std::size_t index = rule_.plan[depth];
  const Statement& statement = rule_.source[index];
  if (used_elsewhere(node)) return true;
  const std::size_t mark = trail_.size();
  bool go_on = true;
  if (operator_fits(statement, node) && bind_results(statement, node)) {
    binding_.nodes[index].assign(1, node);
    trail_.emplace_back(Undo::kNodes, static_cast<std::int32_t>(index));
    const std::size_t inner = trail_.size();
    const auto stars = std::count_if(statement.arguments.begin(), statement.arguments.end(), [](const Term& t) { return t.starred; });
    const std::size_t plain = statement.arguments.size() - stars, operands = graph_.operands(node).size();
    const std::size_t shifts = stars == 2 && operands >= plain ? operands - plain + 1 : 1;
    const int orders = graph_.signature(node).commutative && stars == 0 ? 2 : 1;
    for (int order = 0; order < orders && go_on; ++order) {
      for (std::size_t shift = 0; shift < shifts && go_on; ++shift) {
        if (bind_arguments(statement, node, order == 1, shift)) go_on = step(depth + 1, visitor);
        undo_to(inner);
      }
    }
  }
  undo_to(mark);
  return go_on;
}

bool Matcher::step_single(std::size_t depth, const Visitor& visitor) {
  const Statement& statement = rule_.source[rule_.plan[depth]];
  for (const Term& result : statement.results) {
    const auto& list = binding_.lists[result.slot];
    const ValueId bound = result.starred ? (list.empty() ? kNoValue : list[0]) : binding_.values[result.slot];
    if (bound == kNoValue) continue;
    const NodeId producer = graph_.value(bound).producer;
    return producer == kNoNode || try_node(depth, producer, visitor);
  }
  for (const Term& argument : statement.arguments) {
    if (argument.starred || binding_.values[argument.slot] == kNoValue) continue;
    NodeId last = kNoNode;
    for (const NodeId consumer : graph_.consumers(binding_.values[argument.slot])) {
      if (consumer == std::exchange(last, consumer)) continue;    // reads the value twice, visited once
      if (!try_node(depth, consumer, visitor)) return false;
    }
    return true;
  }
  return true;
}

// One element of a mapped statement: binds the shared names, appends the starred ones to `elements_`.
bool Matcher::bind_element(const Statement& statement, NodeId node, bool swapped) {
  const auto operands = graph_.operands(node);
  if (operands.size() != statement.arguments.size() || graph_.node(node).output_count != 1) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Term& term = statement.arguments[i];
    const ValueId operand = operands[swapped && operands.size() == 2 ? 1 - i : i];
    if (term.starred) {
      const Variable* variable = variable_of_[term.slot];
      std::vector<std::pair<std::int32_t, std::int64_t>> starred;
      if (operand == kNoValue || (variable && !fits(*variable, operand, &starred))) return false;
      const auto& list = binding_.lists[term.slot];
      if (!list.empty() && (elements_[term.slot].size() >= list.size() || list[elements_[term.slot].size()] != operand)) return false;
    } else if (!bind_value(term.slot, operand)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Term& term = statement.arguments[i];
    if (term.starred) elements_[term.slot].push_back(operands[swapped && operands.size() == 2 ? 1 - i : i]);
  }
  return true;
}

// Order of nodes that may change places: that of the start graph, so that what is merged comes out as later operators
// want to read it. Unlike ranks, it does not change when others are rewritten.
bool Matcher::comes_before(NodeId a, NodeId b) const {
  return std::pair(graph_.node(a).site, a) < std::pair(graph_.node(b).site, b);
}

// The maximal set of nodes that fit the statement together with `first` through a shared operand; empty when `first`
// does not fit. A set is found from its first member only.
std::vector<NodeId> Matcher::siblings(const Statement& statement, NodeId first) {
  const std::size_t mark = trail_.size();
  std::vector<NodeId> group;
  const auto fits_as_element = [&](NodeId node) {
    const int orders = graph_.signature(node).commutative ? 2 : 1;
    for (int order = 0; order < orders; ++order) {
      const std::size_t before = trail_.size();
      if (!used_elsewhere(node) && operator_fits(statement, node) && bind_element(statement, node, order == 1)) return true;
      undo_to(before);
    }
    return false;
  };
  if (fits_as_element(first)) {
    for (const Term& argument : statement.arguments) {
      if (argument.starred || binding_.values[argument.slot] == kNoValue) continue;
      NodeId last = kNoNode;
      for (const NodeId consumer : graph_.consumers(binding_.values[argument.slot])) {
        if (consumer == std::exchange(last, consumer)) continue;
        if (consumer == first || fits_as_element(consumer)) group.push_back(consumer);
      }
      break;
    }
  }
  undo_to(mark);
  for (auto& list : elements_) list.clear();
  std::sort(group.begin(), group.end(), [&](NodeId a, NodeId b) { return comes_before(a, b); });
  return group;
}

bool Matcher::try_group(std::size_t depth, const std::vector<NodeId>& group, const Visitor& visitor) {
  const std::size_t index = rule_.plan[depth];
  const Statement& statement = rule_.source[index];
  if (group.size() < static_cast<std::size_t>(rule_.least_elements)) return true;
  const std::size_t mark = trail_.size();
  std::vector<ValueId> results;
  bool fit = true;
  for (const NodeId node : group) {
    fit = fit && !used_elsewhere(node) && std::count(group.begin(), group.end(), node) == 1 && operator_fits(statement, node);
    if (!fit) break;
    const std::size_t before = trail_.size();
    fit = bind_element(statement, node, false);
    if (!fit && graph_.signature(node).commutative) {
      undo_to(before);
      fit = bind_element(statement, node, true);
    }
    results.push_back(graph_.node(node).output_begin);
  }
  std::vector<std::vector<ValueId>> elements(elements_.size());
  elements.swap(elements_);
  for (const Term& term : statement.arguments) {
    if (fit && term.starred) fit = bind_list(term.slot, elements[term.slot]);
  }
  bool go_on = true;
  if (fit && bind_list(statement.results[0].slot, std::move(results))) {
    binding_.nodes[index] = group;
    trail_.emplace_back(Undo::kNodes, static_cast<std::int32_t>(index));
    go_on = step(depth + 1, visitor);
  }
  undo_to(mark);
  return go_on;
}

bool Matcher::step_mapped(std::size_t depth, const Visitor& visitor) {
  const Statement& statement = rule_.source[rule_.plan[depth]];
  std::vector<NodeId> group;
  if (const auto& results = binding_.lists[statement.results[0].slot]; !results.empty()) {
    for (const ValueId value : results) group.push_back(graph_.value(value).producer);
    if (std::find(group.begin(), group.end(), kNoNode) != group.end()) return true;
    return try_group(depth, group, visitor);
  }
  for (const Term& argument : statement.arguments) {
    if (!argument.starred || binding_.lists[argument.slot].empty()) continue;
    for (const ValueId value : binding_.lists[argument.slot]) {    // each element must have this one reader
      const auto consumers = graph_.consumers(value);
      if (consumers.size() != 1 || graph_.is_output(value)) return true;
      group.push_back(consumers[0]);
    }
    return try_group(depth, group, visitor);
  }
  for (const Term& argument : statement.arguments) {
    if (argument.starred || binding_.values[argument.slot] == kNoValue) continue;
    for (const NodeId first : graph_.consumers(binding_.values[argument.slot])) {
      group = siblings(statement, first);
      if (!group.empty() && group[0] == first && !try_group(depth, group, visitor)) return false;
    }
    return true;
  }
  return true;
}

// Checks that need the whole match: conditions, order of interchangeable parts, uses from outside.
bool Matcher::acceptable() {
  for (const Expression& condition : rule_.conditions) {
    if (!holds(condition, *this)) return false;
  }
  const auto producer_of = [&](std::int32_t slot) { return graph_.value(binding_.values[slot]).producer; };
  for (const auto& [first, second] : rule_.unordered) {
    if (comes_before(producer_of(second), producer_of(first))) return false;
  }
  std::vector<ValueId> outputs;
  for (const Term& output : rule_.outputs) {
    if (output.starred) outputs.insert(outputs.end(), binding_.lists[output.slot].begin(), binding_.lists[output.slot].end());
    else outputs.push_back(binding_.values[output.slot]);
  }
  for (std::size_t i = 0; i < rule_.source.size(); ++i) {
    if (rule_.source[i].kept) continue;
    for (const NodeId id : binding_.nodes[i]) {
      const Node& node = graph_.node(id);
      for (std::uint32_t k = 0; k < node.output_count; ++k) {
        const ValueId value = node.output_begin + static_cast<ValueId>(k);
        if (std::find(outputs.begin(), outputs.end(), value) != outputs.end()) continue;
        if (graph_.is_output(value)) return false;
        for (const NodeId consumer : graph_.consumers(value)) {
          if (!used_elsewhere(consumer)) return false;
        }
      }
    }
  }
  // A variable that is itself an inner result would be read after it is gone, one that is an output would be a cycle.
  const auto inside = [&](ValueId value) {
    const NodeId producer = graph_.value(value).producer;
    return producer != kNoNode && used_elsewhere(producer);
  };
  for (const Variable& variable : rule_.variables) {
    if (variable.starred) {
      if (std::any_of(binding_.lists[variable.slot].begin(), binding_.lists[variable.slot].end(), inside)) return false;
    } else if (binding_.values[variable.slot] == kNoValue || inside(binding_.values[variable.slot])) {
      return false;
    }
  }
  return true;
}

}  // namespace rlflow
