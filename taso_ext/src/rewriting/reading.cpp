#include "rewriting/reading.hpp"

#include <algorithm>

namespace rlflow {

Reading::Reading(Context& context, const Rule& rule)
    : context_(context), rule_(rule), types_(rule.value_names.size()), symbols_(rule.symbol_names.size()),
      rests_(rule.rest_names.size()), operators_(rule.operators.size()), elements_(rule.source.size()) {}

const Quantity* Reading::symbol(std::int32_t slot) const { return symbols_[slot] ? &*symbols_[slot] : nullptr; }

const TensorType* Reading::type(std::int32_t slot) const {
  return types_[slot].empty() || rule_.value_starred[slot] ? nullptr : &context_.type(types_[slot][0]);
}

const AttributeMap* Reading::attributes(std::int32_t slot, bool of_operator) const {
  if (of_operator) return operators_[slot] ? &context_.attributes(operators_[slot]->second) : nullptr;
  return rests_[slot] ? &context_.attributes(*rests_[slot]) : nullptr;
}

bool Reading::bind(std::int32_t symbol, Quantity value) {
  if (symbols_[symbol]) return same(value, *symbols_[symbol]);
  symbols_[symbol] = std::move(value);
  return true;
}

bool Reading::add(std::size_t index, Role role) {
  const Statement& statement = rule_.source[index];
  const Signature& signature = context_.signature(role.signature);
  if (role.order == 1 && statement.stars < 2 && !signature.commutative) return false;
  if (!bind_operator(statement, signature)) return false;
  // Two statements may mention one list: the second one finds it known, and must agree.
  const std::size_t element = statement.mapped ? elements_[index]++ : 0;
  bool fit = true;
  const auto set = [&](const Term& term, std::size_t at, TypeId type) {
    std::vector<TypeId>& known = types_[term.slot];
    if (type == kNoType || at > known.size()) fit = false;
    else if (at == known.size()) known.push_back(type);
    else fit = fit && known[at] == type;
  };
  const auto set_list = [&](const Term& term, std::span<const TypeId> types) {
    const bool known = !types_[term.slot].empty();
    for (std::size_t k = 0; k < types.size(); ++k) set(term, k, types[k]);
    fit = fit && (!known || types_[term.slot].size() == types.size());
  };
  const std::span<const TypeId> inputs(signature.inputs);
  const bool arity = share_operands(rule_, statement, inputs.size(), role.order, [&](std::size_t i, std::size_t begin, std::size_t count) {
    const Term& term = statement.arguments[i];
    if (term.starred && !statement.mapped) set_list(term, inputs.subspan(begin, count));
    else set(term, term.starred ? element : 0, inputs[begin]);
  });
  if (!arity || !fit) return false;
  if (!statement.mapped && statement.results.size() == 1 && statement.results[0].starred) {
    if (signature.outputs.size() < static_cast<std::size_t>(rule_.least_elements)) return false;
    set_list(statement.results[0], signature.outputs);
    return fit;
  }
  if (signature.outputs.size() != statement.results.size()) return false;
  for (std::size_t i = 0; i < statement.results.size(); ++i) {
    set(statement.results[i], statement.results[i].starred ? element : 0, signature.outputs[i]);
  }
  return fit;
}

bool Reading::bind_operator(const Statement& statement, const Signature& signature) {
  if (statement.op) return signature.op == *statement.op && bind_attributes(statement, signature);
  const auto& choices = rule_.operators[statement.op_variable].choices;
  if (std::find(choices.begin(), choices.end(), signature.op) == choices.end()) return false;
  auto& bound = operators_[statement.op_variable];
  if (bound) return *bound == std::pair(signature.op, signature.attributes);
  bound = {signature.op, signature.attributes};
  return true;
}

bool Reading::bind_attributes(const Statement& statement, const Signature& signature) {
  const AttributeMap& map = context_.attributes(signature.attributes);
  const bool has_operand = !signature.inputs.empty() && signature.inputs[0] != kNoType;
  const std::size_t rank = has_operand ? context_.type(signature.inputs[0]).dims.size() : 0;
  for (const AttributePattern& pattern : statement.attributes) {
    const Attribute* attribute = find_attribute(map, pattern.name);
    if (!attribute) return false;
    std::optional<Quantity> actual = to_quantity(*attribute);
    if (!actual) return false;
    if (pattern.value.kind == Expression::Kind::kSymbol) {
      if (!bind(pattern.value.slot, std::move(*actual))) return false;
    } else {
      comparisons_.push_back({&pattern, std::move(*actual), rank});
    }
  }
  if (statement.rest < 0) return map.size() == statement.listed.size();
  const AttributesId rest = context_.without(signature.attributes, statement.listed);
  if (rests_[statement.rest]) return *rests_[statement.rest] == rest;
  rests_[statement.rest] = rest;
  return true;
}

// Checks the dtype and shape of all elements of a variable and binds its extents. A starred extent is the list of the
// elements' own extents.
bool Reading::fits(const Variable& variable, bool complete) {
  std::vector<std::pair<std::int32_t, Dims>> columns;
  for (const TypeId id : types_[variable.slot]) {
    const TensorType& type = context_.type(id);
    if (!type.ranked || (variable.floating && !is_floating(type.dtype))) return false;
    if (!variable.shape) continue;
    const std::vector<Extent>& shape = *variable.shape;
    const bool open = std::any_of(shape.begin(), shape.end(), [](const Extent& e) { return e.kind == Extent::Kind::kEllipsis; });
    if (open ? type.dims.size() + 1 < shape.size() : type.dims.size() != shape.size()) return false;
    std::size_t at = 0, column = 0;
    for (const Extent& extent : shape) {
      switch (extent.kind) {
        case Extent::Kind::kInteger:
          if (type.dims[at++] != extent.integer) return false;
          break;
        case Extent::Kind::kSymbol:
          if (!bind(extent.slot, type.dims[at++])) return false;
          break;
        case Extent::Kind::kStarred:
          if (column == columns.size()) columns.emplace_back(extent.slot, Dims{});
          columns[column++].second.push_back(type.dims[at++]);
          break;
        case Extent::Kind::kEllipsis: {
          const std::size_t count = type.dims.size() + 1 - shape.size();
          Dims middle(type.dims.begin() + at, type.dims.begin() + at + count);
          if (extent.slot >= 0 && !bind(extent.slot, std::move(middle))) return false;
          at += count;
          break;
        }
      }
    }
  }
  for (auto& [symbol, extents] : columns) {    // nothing is known about an incomplete list
    if (complete && !bind(symbol, std::move(extents))) return false;
  }
  return true;
}

// Returns whether every name in the expression is bound.
bool Reading::decided(const Expression& expression) const {
  if (expression.kind == Expression::Kind::kSymbol && !symbols_[expression.slot]) return false;
  if (expression.kind == Expression::Kind::kCount) return false;    // more elements may come
  if (expression.kind == Expression::Kind::kAttribute || expression.kind == Expression::Kind::kOnly) {
    if (!attributes(expression.slot, expression.of_operator)) return false;
  }
  if (expression.kind == Expression::Kind::kCall && expression.slot >= 0) {
    return !types_[expression.slot].empty();
  }
  return std::all_of(expression.arguments.begin(), expression.arguments.end(), [&](const Expression& e) { return decided(e); });
}

bool Reading::consistent(bool complete) {
  for (const Variable& variable : rule_.variables) {
    if (!fits(variable, complete)) return false;
  }
  for (const Comparison& comparison : comparisons_) {
    if (!complete && !decided(comparison.pattern->value)) continue;
    const auto expected = evaluate_attribute(*comparison.pattern, *this, comparison.rank);
    if (!expected || !same(comparison.actual, *expected)) return false;
  }
  return std::all_of(rule_.conditions.begin(), rule_.conditions.end(), [&](const Expression& condition) {
    return (!complete && !decided(condition)) || holds(condition, *this);
  });
}

}  // namespace rlflow
