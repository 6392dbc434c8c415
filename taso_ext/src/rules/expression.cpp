#include "rules/expression.hpp"

#include <algorithm>
#include <cmath>

namespace rlflow {
namespace {

using Result = std::optional<Quantity>;

constexpr std::int64_t kLongestRepeat = 64;

const std::int64_t* integer(const Quantity& value) { return std::get_if<std::int64_t>(&value); }

bool is_number(const Quantity& value) { return integer(value) || std::holds_alternative<double>(value); }
bool is_list(const Quantity& value) { return std::holds_alternative<Dims>(value) || std::holds_alternative<Reals>(value); }
std::size_t length(const Quantity& list) {
  const Dims* integers = std::get_if<Dims>(&list);
  return integers ? integers->size() : std::get<Reals>(list).size();
}
// Returns a number itself, or the k-th element of a list.
Quantity element(const Quantity& value, std::size_t k) {
  if (const Dims* integers = std::get_if<Dims>(&value)) return (*integers)[k];
  if (const Reals* reals = std::get_if<Reals>(&value)) return (*reals)[k];
  return value;
}
double as_real(const Quantity& number) { return integer(number) ? static_cast<double>(*integer(number)) : std::get<double>(number); }

// Returns a list of integers if all items are integers, else a list of reals; nothing if some item is no number.
Result make_list(const std::vector<Quantity>& items) {
  if (!std::all_of(items.begin(), items.end(), is_number)) return std::nullopt;
  if (std::all_of(items.begin(), items.end(), [](const Quantity& item) { return integer(item) != nullptr; })) {
    Dims out;
    for (const Quantity& item : items) out.push_back(*integer(item));
    return out;
  }
  Reals out;
  for (const Quantity& item : items) out.push_back(as_real(item));
  return out;
}

Result finite(double value) { return std::isfinite(value) ? Result(value) : std::nullopt; }

Result on_integers(char op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
    case '+': return __builtin_add_overflow(a, b, &out) ? std::nullopt : Result(out);
    case '-': return __builtin_sub_overflow(a, b, &out) ? std::nullopt : Result(out);
    case '*': return __builtin_mul_overflow(a, b, &out) ? std::nullopt : Result(out);
    case '/': return b == 0 || b == -1 || a % b != 0 ? std::nullopt : Result(a / b);    // exact division only
    default: return b <= 0 ? std::nullopt : Result(a % b < 0 ? a % b + b : a % b);
  }
}

Result arithmetic(char op, const Quantity& a, const Quantity& b) {
  if (!is_number(a) || !is_number(b)) return std::nullopt;
  if (integer(a) && integer(b)) return on_integers(op, *integer(a), *integer(b));
  switch (op) {
    case '+': return finite(as_real(a) + as_real(b));
    case '-': return finite(as_real(a) - as_real(b));
    case '*': return finite(as_real(a) * as_real(b));
    case '/': return as_real(b) == 0.0 ? std::nullopt : finite(as_real(a) / as_real(b));
    default: return std::nullopt;
  }
}

Result truth(bool value) { return Quantity(std::int64_t{value}); }

Result compare(const std::string& op, const Quantity& a, const Quantity& b) {
  if (!is_number(a) || !is_number(b)) return std::nullopt;
  const bool equal = same(a, b);
  const bool less = integer(a) && integer(b) ? *integer(a) < *integer(b) : as_real(a) < as_real(b);
  if (op == "<") return truth(less && !equal);
  if (op == ">") return truth(!less && !equal);
  return truth(equal || (op == "<=") == less);
}

// Returns whether an expression depends on the number in a weight.
bool reads_value(const Expression& expression) {
  const bool itself = expression.kind == Expression::Kind::kCall && expression.op == "value";
  return itself || std::any_of(expression.arguments.begin(), expression.arguments.end(), reads_value);
}

// Returns whether an expression is the same in every match.
bool is_constant(const Expression& expression) {
  using enum Expression::Kind;
  const bool varies = expression.kind == kSymbol || expression.kind == kAttribute || expression.kind == kOnly || expression.kind == kCount || (expression.kind == kCall && expression.slot >= 0);
  return !varies && std::all_of(expression.arguments.begin(), expression.arguments.end(), is_constant);
}

Result evaluate_binary(const Expression& expression, const Scope& scope) {
  const std::string& op = expression.op;
  if (op == "and") return truth(holds(expression.arguments[0], scope) && holds(expression.arguments[1], scope));
  if (op == "or") return truth(holds(expression.arguments[0], scope) || holds(expression.arguments[1], scope));
  const Result a = evaluate(expression.arguments[0], scope), b = evaluate(expression.arguments[1], scope);
  if (!a || !b) return std::nullopt;
  if (op == "==" || op == "!=") {
    const Expression &left = expression.arguments[0], &right = expression.arguments[1];
    const bool from_right = !reads_value(left) && (reads_value(right) || is_constant(left));
    return truth(same(from_right ? *b : *a, from_right ? *a : *b) == (op == "=="));
  }
  if (op.size() != 1 || op == "<" || op == ">") return compare(op, *a, *b);
  if (!is_list(*a) && !is_list(*b)) return arithmetic(op[0], *a, *b);
  if (is_list(*a) && is_list(*b) && length(*a) != length(*b)) return std::nullopt;
  std::vector<Quantity> out;    // elementwise; a number that meets a list is repeated
  for (std::size_t k = 0; k < length(is_list(*a) ? *a : *b); ++k) {
    Result each = arithmetic(op[0], element(*a, k), element(*b, k));
    if (!each) return std::nullopt;
    out.push_back(std::move(*each));
  }
  return make_list(out);
}

Result evaluate_list(const Expression& expression, const Scope& scope) {
  std::vector<Quantity> out;
  for (const Expression& item : expression.arguments) {
    const bool splice = item.kind == Expression::Kind::kSplice;
    const Result value = evaluate(splice ? item.arguments[0] : item, scope);
    if (!value || is_list(*value) != splice) return std::nullopt;
    for (std::size_t k = 0; k < (splice ? length(*value) : 1); ++k) out.push_back(element(*value, k));
  }
  return make_list(out);
}

Result inverse(const Quantity& list) {
  const Dims* perm = std::get_if<Dims>(&list);
  if (!perm) return std::nullopt;
  Dims out(perm->size(), -1);
  for (std::size_t i = 0; i < perm->size(); ++i) {
    const std::int64_t at = (*perm)[i];
    if (at < 0 || at >= std::ssize(*perm) || out[at] >= 0) return std::nullopt;
    out[at] = static_cast<std::int64_t>(i);
  }
  return out;
}

// Returns the elements of a list at the positions in `order`; nothing if a position is out of range.
Result permute(const Quantity& values, const Quantity& order) {
  const Dims* perm = std::get_if<Dims>(&order);
  std::vector<Quantity> out;
  for (const std::int64_t from : perm ? *perm : Dims{}) {
    if (from < 0 || from >= static_cast<std::int64_t>(length(values))) return std::nullopt;
    out.push_back(element(values, static_cast<std::size_t>(from)));
  }
  return perm ? make_list(out) : std::nullopt;
}

Result sorted(Quantity list) {
  std::visit([](auto& held) {
    if constexpr (requires { held.begin(); }) std::sort(held.begin(), held.end());
  }, list);
  return list;
}

Result part(const Quantity& list, std::size_t begin, std::size_t end) {
  std::vector<Quantity> out;
  for (std::size_t k = begin; k < end; ++k) out.push_back(element(list, k));
  return make_list(out);
}

// Returns the sum or the product of a list; nothing if an intermediate result does not fit into its type.
Result reduce(char op, const Quantity& list) {
  Result total = Quantity(std::int64_t{op == '*'});
  for (std::size_t k = 0; k < length(list) && total; ++k) total = arithmetic(op, *total, element(list, k));
  return total;
}

Result describe(const std::string& function, const TensorType& type) {
  if (function == "rank") return Quantity(static_cast<std::int64_t>(type.dims.size()));
  if (function == "dims") return type.dims;
  if (function == "size") return reduce('*', type.dims);
  if (function == "dtype") return dtype_name(type.dtype).empty() ? std::nullopt : Result(std::string(dtype_name(type.dtype)));
  if (function == "is_identity") return truth(is_identity(type));
  if (function == "is_identity_kernel") return truth(is_identity_kernel(type));
  if (function == "is_averaging_kernel") return truth(is_averaging_kernel(type));
  if (function == "is_finite") return truth(is_finite(type));
  if (function == "is_nonzero") return truth(is_nonzero(type));
  if (type.content.kind != Content::Kind::kUniform) return std::nullopt;
  const double value = type.content.value;
  if (is_floating(type.dtype)) return value;
  constexpr double kWhole = 9.007199254740992e15;    // 2^53: integers up to here are exact
  if (!(std::abs(value) <= kWhole)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

// Returns whether a number, or every number of a list, lies between two others or equals one of them.
Result within(const Quantity& value, const Quantity& low, const Quantity& high) {
  for (std::size_t k = 0; k < (is_list(value) ? length(value) : 1); ++k) {
    const Result above = compare(">=", element(value, k), low), below = compare("<=", element(value, k), high);
    if (!above || !below) return std::nullopt;
    if (!*integer(*above) || !*integer(*below)) return truth(false);
  }
  return truth(true);
}

Result evaluate_call(const Expression& call, const Scope& scope) {
  if (call.slot >= 0) {
    const TensorType* type = scope.type(call.slot);
    return type ? describe(call.op, *type) : std::nullopt;
  }
  std::vector<Quantity> arguments;
  for (const Expression& argument : call.arguments) {
    Result value = evaluate(argument, scope);
    if (!value) return std::nullopt;
    arguments.push_back(std::move(*value));
  }
  const Quantity& first = arguments[0];
  if (call.op == "sqrt") return is_number(first) && as_real(first) >= 0 ? finite(std::sqrt(as_real(first))) : std::nullopt;
  const std::int64_t* count = arguments.size() > 1 ? integer(arguments[1]) : nullptr;
  if (call.op == "repeat") {
    if (!is_number(first) || !count || *count < 0 || *count > kLongestRepeat) return std::nullopt;
    return make_list(std::vector<Quantity>(static_cast<std::size_t>(*count), first));
  }
  if (call.op == "within") return within(first, arguments[1], arguments[2]);
  if (!is_list(first)) return std::nullopt;
  if (call.op == "len") return Quantity(static_cast<std::int64_t>(length(first)));
  if (call.op == "prod") return reduce('*', first);
  if (call.op == "sum") return reduce('+', first);
  if (call.op == "inverse") return inverse(first);
  if (call.op == "sorted") return sorted(first);
  if (call.op == "permute") return permute(first, arguments[1]);
  if (!count || *count < 0 || *count > static_cast<std::int64_t>(length(first))) return std::nullopt;
  const auto cut = static_cast<std::size_t>(*count);
  return call.op == "take" ? part(first, 0, cut) : part(first, cut, length(first));
}

Result evaluate_index(const Expression& expression, const Scope& scope) {
  const Result values = evaluate(expression.arguments[0], scope), index = evaluate(expression.arguments[1], scope);
  if (!values || !index || !is_list(*values) || !integer(*index)) return std::nullopt;
  const auto size = static_cast<std::int64_t>(length(*values));
  const std::int64_t at = *integer(*index) < 0 ? *integer(*index) + size : *integer(*index);
  return at >= 0 && at < size ? Result(element(*values, static_cast<std::size_t>(at))) : std::nullopt;
}

Result evaluate_attribute_call(const Expression& call, const Scope& scope) {
  const AttributeMap* map = scope.attributes(call.slot, call.of_operator);
  const Attribute* found = map ? find_attribute(*map, call.op) : nullptr;
  if (found) return to_quantity(*found);
  return map && !call.arguments.empty() ? evaluate(call.arguments[0], scope) : std::nullopt;
}

// Returns whether all attributes have one of the names.
Result only(const Expression& call, const Scope& scope) {
  const AttributeMap* map = scope.attributes(call.slot, call.of_operator);
  if (!map) return std::nullopt;
  return truth(std::all_of(map->begin(), map->end(), [&](const auto& entry) {
    return std::any_of(call.arguments.begin(), call.arguments.end(), [&](const Expression& name) { return name.op == entry.first; });
  }));
}

// Attributes that ONNX declares as float, or that hold the elements of a tensor.
constexpr std::string_view kRealAttributes[] = {"alpha", "beta", "bias", "epsilon", "gamma", "lambd", "mask_filter_value",
                                                "scale", "softcap", "value", "values"};
constexpr int kDouble = 11;    // TensorProto.DOUBLE
constexpr double kDoublePrecision = 1e-12;

bool is_real_attribute(std::string_view name) {
  return std::find(std::begin(kRealAttributes), std::end(kRealAttributes), name) != std::end(kRealAttributes);
}

// Returns whether an attribute holds the elements of a tensor of doubles.
bool is_exact(std::string_view name, int dtype) { return dtype == kDouble && name.starts_with("value"); }

}  // namespace

std::optional<Quantity> to_quantity(const Attribute& attribute) {
  return std::visit([](const auto& held) -> std::optional<Quantity> {
    if constexpr (std::is_constructible_v<Quantity, decltype(held)>) return Quantity(held);
    else return std::nullopt;
  }, attribute);
}

bool same(const Quantity& found, const Quantity& expected) {
  if (is_number(found) && is_number(expected)) {
    return integer(found) && integer(expected) ? *integer(found) == *integer(expected) : nearly_equal(as_real(found), as_real(expected));
  }
  if (!is_list(found) || !is_list(expected)) return found == expected;
  if (length(found) != length(expected)) return false;
  for (std::size_t k = 0; k < length(found); ++k) {
    if (!same(element(found, k), element(expected, k))) return false;
  }
  return true;
}

Result evaluate(const Expression& expression, const Scope& scope) {
  switch (expression.kind) {
    case Expression::Kind::kInteger: return Quantity(expression.integer);
    case Expression::Kind::kReal: return Quantity(expression.real);
    case Expression::Kind::kText: return Quantity(expression.op);
    case Expression::Kind::kSymbol: {
      const Quantity* bound = scope.symbol(expression.slot);
      return bound ? Result(*bound) : std::nullopt;
    }
    case Expression::Kind::kList: return evaluate_list(expression, scope);
    case Expression::Kind::kSplice: return std::nullopt;
    case Expression::Kind::kUnary: {
      if (expression.op == "not") return truth(!holds(expression.arguments[0], scope));
      const Result value = evaluate(expression.arguments[0], scope);
      return value ? arithmetic('-', std::int64_t{0}, *value) : std::nullopt;
    }
    case Expression::Kind::kBinary: return evaluate_binary(expression, scope);
    case Expression::Kind::kIndex: return evaluate_index(expression, scope);
    case Expression::Kind::kCall: return evaluate_call(expression, scope);
    case Expression::Kind::kCount: return Quantity(static_cast<std::int64_t>(scope.count(expression.slot)));
    case Expression::Kind::kAttribute: return evaluate_attribute_call(expression, scope);
    case Expression::Kind::kOnly: return only(expression, scope);
  }
  return std::nullopt;
}

bool holds(const Expression& condition, const Scope& scope) {
  const Result value = evaluate(condition, scope);
  return value && is_number(*value) && as_real(*value) != 0;
}

Result evaluate_attribute(const AttributePattern& pattern, const Scope& scope, std::size_t rank) {
  Result value = evaluate(pattern.value, scope);
  const auto from_front = [&](std::int64_t& axis) { axis += axis < 0 ? static_cast<std::int64_t>(rank) : 0; };
  if (auto* axis = value && pattern.name == "axis" ? std::get_if<std::int64_t>(&*value) : nullptr) from_front(*axis);
  if (auto* axes = value && pattern.name == "axes" ? std::get_if<Dims>(&*value) : nullptr) std::for_each(axes->begin(), axes->end(), from_front);
  return value;
}

bool loses_precision(std::string_view name, const Quantity& value, int dtype) {
  if (dtype != kDouble || is_exact(name, dtype) || !is_real_attribute(name)) return false;
  const auto loses = [](double real) { return std::abs(static_cast<double>(static_cast<float>(real)) - real) > kDoublePrecision * std::abs(real); };
  if (is_number(value)) return loses(as_real(value));
  for (std::size_t k = 0; is_list(value) && k < length(value); ++k) {
    if (loses(as_real(element(value, k)))) return true;
  }
  return false;
}

Attribute to_attribute(std::string_view name, Quantity value, int dtype) {
  const bool exact = is_exact(name, dtype);
  const auto held = [&](double real) { return exact ? real : static_cast<double>(static_cast<float>(real)); };
  if (is_real_attribute(name)) {
    if (is_number(value)) return held(as_real(value));
    if (is_list(value)) {
      Reals reals(length(value));
      for (std::size_t k = 0; k < reals.size(); ++k) reals[k] = held(as_real(element(value, k)));
      return reals;
    }
  }
  return std::visit([](auto& any) { return Attribute(std::move(any)); }, value);
}

}  // namespace rlflow
