#include "expression.hpp"

#include <algorithm>

namespace rlflow {
namespace {

using Result = std::optional<Quantity>;

Result number(std::int64_t value) { return Quantity{false, value, {}}; }
Result list(Dims values) { return Quantity{true, 0, std::move(values)}; }

Result arithmetic(char op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
    case '+': return __builtin_add_overflow(a, b, &out) ? std::nullopt : number(out);
    case '-': return __builtin_sub_overflow(a, b, &out) ? std::nullopt : number(out);
    case '*': return __builtin_mul_overflow(a, b, &out) ? std::nullopt : number(out);
    case '/': return b == 0 || b == -1 || a % b != 0 ? std::nullopt : number(a / b);    // exact division only
    default: return b <= 0 ? std::nullopt : number(a % b < 0 ? a % b + b : a % b);
  }
}

Result evaluate_binary(const Expression& expression, const Scope& scope) {
  const std::string& op = expression.op;
  if (op == "and") return number(holds(expression.arguments[0], scope) && holds(expression.arguments[1], scope));
  if (op == "or") return number(holds(expression.arguments[0], scope) || holds(expression.arguments[1], scope));
  const Result a = evaluate(expression.arguments[0], scope), b = evaluate(expression.arguments[1], scope);
  if (!a || !b) return std::nullopt;
  if (op == "==") return number(*a == *b);
  if (op == "!=") return number(!(*a == *b));
  if (a->is_list || b->is_list) {    // elementwise, a number meeting a list is repeated
    if (op.size() != 1 || op == "<" || op == ">") return std::nullopt;
    if (a->is_list && b->is_list && a->list.size() != b->list.size()) return std::nullopt;
    Dims out(a->is_list ? a->list.size() : b->list.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Result each = arithmetic(op[0], a->is_list ? a->list[i] : a->number, b->is_list ? b->list[i] : b->number);
      if (!each) return std::nullopt;
      out[i] = each->number;
    }
    return list(std::move(out));
  }
  if (op == "<") return number(a->number < b->number);
  if (op == ">") return number(a->number > b->number);
  if (op == "<=") return number(a->number <= b->number);
  if (op == ">=") return number(a->number >= b->number);
  return arithmetic(op[0], a->number, b->number);
}

Result evaluate_list(const Expression& expression, const Scope& scope) {
  Dims out;
  for (const Expression& item : expression.arguments) {
    const bool splice = item.kind == Expression::Kind::kSplice;
    const Result value = evaluate(splice ? item.arguments[0] : item, scope);
    if (!value || value->is_list != splice) return std::nullopt;
    if (splice) out.insert(out.end(), value->list.begin(), value->list.end());
    else out.push_back(value->number);
  }
  return list(std::move(out));
}

Result permute(const Dims& values, const Dims& perm) {
  Dims out;
  for (const std::int64_t from : perm) {
    if (from < 0 || from >= static_cast<std::int64_t>(values.size())) return std::nullopt;
    out.push_back(values[from]);
  }
  return list(std::move(out));
}

Result inverse(const Dims& perm) {
  Dims out(perm.size(), -1);
  for (std::size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] < 0 || perm[i] >= static_cast<std::int64_t>(perm.size()) || out[perm[i]] >= 0) return std::nullopt;
    out[perm[i]] = static_cast<std::int64_t>(i);
  }
  return list(std::move(out));
}

// Nothing when an intermediate result does not fit 64 bits.
Result reduce(char op, const Dims& values) {
  Result total = number(op == '*' ? 1 : 0);
  for (std::size_t i = 0; i < values.size() && total; ++i) total = arithmetic(op, total->number, values[i]);
  return total;
}

Result evaluate_call(const Expression& call, const Scope& scope) {
  if (call.slot >= 0) {
    const Dims* dims = scope.dims(call.slot);
    if (!dims) return std::nullopt;
    if (call.op == "rank") return number(static_cast<std::int64_t>(dims->size()));
    return call.op == "dims" ? list(*dims) : reduce('*', *dims);
  }
  std::vector<Quantity> arguments;
  for (const Expression& argument : call.arguments) {
    Result value = evaluate(argument, scope);
    if (!value) return std::nullopt;
    arguments.push_back(std::move(*value));
  }
  const Quantity& first = arguments[0];
  if (call.op == "repeat") {
    if (first.is_list || arguments[1].is_list || arguments[1].number < 0 || arguments[1].number > 64) return std::nullopt;
    return list(Dims(arguments[1].number, first.number));
  }
  if (!first.is_list) return std::nullopt;
  if (call.op == "len") return number(static_cast<std::int64_t>(first.list.size()));
  if (call.op == "prod") return reduce('*', first.list);
  if (call.op == "sum") return reduce('+', first.list);
  if (call.op == "inverse") return inverse(first.list);
  if (call.op == "sorted") {
    Dims out = first.list;
    std::sort(out.begin(), out.end());
    return list(std::move(out));
  }
  if (call.op == "permute") return arguments[1].is_list ? permute(first.list, arguments[1].list) : std::nullopt;
  const std::int64_t count = arguments[1].number, size = static_cast<std::int64_t>(first.list.size());
  if (arguments[1].is_list || count < 0 || count > size) return std::nullopt;
  return call.op == "take" ? list(Dims(first.list.begin(), first.list.begin() + count))
                           : list(Dims(first.list.begin() + count, first.list.end()));
}

}  // namespace

Result evaluate(const Expression& expression, const Scope& scope) {
  switch (expression.kind) {
    case Expression::Kind::kInteger: return number(expression.integer);
    case Expression::Kind::kSymbol: {
      const Quantity* bound = scope.symbol(expression.slot);
      return bound ? Result(*bound) : std::nullopt;
    }
    case Expression::Kind::kList: return evaluate_list(expression, scope);
    case Expression::Kind::kSplice: return std::nullopt;
    case Expression::Kind::kUnary: {
      if (expression.op == "not") return number(!holds(expression.arguments[0], scope));
      const Result value = evaluate(expression.arguments[0], scope);
      return value && !value->is_list ? arithmetic('-', 0, value->number) : std::nullopt;
    }
    case Expression::Kind::kBinary: return evaluate_binary(expression, scope);
    case Expression::Kind::kIndex: {
      const Result values = evaluate(expression.arguments[0], scope), index = evaluate(expression.arguments[1], scope);
      if (!values || !index || !values->is_list || index->is_list) return std::nullopt;
      const std::int64_t size = static_cast<std::int64_t>(values->list.size());
      const std::int64_t at = index->number < 0 ? index->number + size : index->number;
      return at >= 0 && at < size ? number(values->list[at]) : std::nullopt;
    }
    case Expression::Kind::kCall: return evaluate_call(expression, scope);
  }
  return std::nullopt;
}

bool holds(const Expression& condition, const Scope& scope) {
  const Result value = evaluate(condition, scope);
  return value && !value->is_list && value->number != 0;
}

Result evaluate_attribute(const AttributePattern& pattern, const Scope& scope, std::size_t rank) {
  Result value = evaluate(pattern.value, scope);
  if (value && pattern.name == "axis" && value->number < 0) value->number += static_cast<std::int64_t>(rank);
  return value;
}

Attribute to_attribute(Quantity value) { return value.is_list ? Attribute(std::move(value.list)) : Attribute(value.number); }

}  // namespace rlflow
