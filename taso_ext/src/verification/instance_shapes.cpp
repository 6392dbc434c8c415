#include "verification/instance_shapes.hpp"

#include <algorithm>
#include <array>

namespace rlflow {
namespace {

// Returns a number as float32 holds it, or nothing for what is no number.
std::optional<double> number(const Quantity& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(static_cast<float>(*integer));
  if (const auto* real = std::get_if<double>(&value)) return static_cast<double>(static_cast<float>(*real));
  return std::nullopt;
}

bool is_literal(const Expression& expression) {
  const bool number = expression.kind == Expression::Kind::kInteger || expression.kind == Expression::Kind::kReal;
  return number || (!expression.arguments.empty() && std::all_of(expression.arguments.begin(), expression.arguments.end(), is_literal));
}

}  // namespace

Demands::Demands(const Rule& rule, Dice& dice) : rule_(rule), dice_(dice), least_(rule.symbol_names.size(), 0) {
  for (const Expression& condition : rule.conditions) {
    collect(condition);
    ask(condition);
  }
  for (const Statement& statement : rule.target) {
    for (const AttributePattern& pattern : statement.attributes) ask(pattern.value);
  }
}

// Notes the weights whose content an expression asks for.
void Demands::ask(const Expression& expression) {
  const bool of_content = expression.kind == Expression::Kind::kCall && (expression.op == "value" || expression.op.starts_with("is_"));
  const bool asked = std::find(asked_.begin(), asked_.end(), expression.slot) != asked_.end();
  if (of_content && !asked && expression.slot >= 0 && is_weight(expression.slot)) asked_.push_back(expression.slot);
  for (const Expression& argument : expression.arguments) ask(argument);
}

void Demands::collect(const Expression& condition) {
  if (condition.kind == Expression::Kind::kBinary && condition.op == "==") {
    collect_equal(condition.arguments[0], condition.arguments[1]);
    collect_equal(condition.arguments[1], condition.arguments[0]);
  }
  constexpr std::string_view kOrders[] = {"<", ">", "<=", ">="};
  if (condition.kind == Expression::Kind::kBinary && std::find(std::begin(kOrders), std::end(kOrders), condition.op) != std::end(kOrders)) {
    collect_bound(condition.arguments[0], condition.arguments[1]);
    collect_bound(condition.arguments[1], condition.arguments[0]);
  }
  if (condition.kind == Expression::Kind::kCall && condition.op == "within" && condition.arguments.size() == 3) {
    collect_bound(condition.arguments[0], condition.arguments[1]);
    collect_bound(condition.arguments[0], condition.arguments[2]);
  }
  if (condition.kind == Expression::Kind::kBinary && condition.op == ">=" && condition.arguments[0].kind == Expression::Kind::kSymbol &&
      condition.arguments[1].kind == Expression::Kind::kInteger) {
    least_[condition.arguments[0].slot] = std::max(least_[condition.arguments[0].slot], condition.arguments[1].integer);
  }
  if (condition.kind == Expression::Kind::kReal) dice_.add_real(condition.real), dice_.add_square(condition.real);
  if (condition.kind == Expression::Kind::kInteger) dice_.add_real(static_cast<double>(condition.integer)), dice_.add_extent(condition.integer), dice_.add_square(static_cast<double>(condition.integer));
  if (condition.kind == Expression::Kind::kCall && condition.slot >= 0) {
    constexpr std::pair<std::string_view, Content::Kind> kPatterns[] = {
        {"is_identity", Content::Kind::kIdentity}, {"is_identity_kernel", Content::Kind::kIdentityKernel}, {"is_averaging_kernel", Content::Kind::kAveragingKernel}, {"is_finite", Content::Kind::kNonzero}, {"is_nonzero", Content::Kind::kNonzero}};
    for (const auto& [name, kind] : kPatterns) {
      if (condition.op == name) demands_.push_back({condition.slot, kind, nullptr});
    }
  }
  for (const Expression& argument : condition.arguments) collect(argument);
}

void Demands::collect_equal(const Expression& side, const Expression& other) {
  if (side.kind == Expression::Kind::kCall && side.op == "value") demands_.push_back({side.slot, Content::Kind::kUniform, &other});
  if (side.kind == Expression::Kind::kCall && side.op == "dtype" && other.kind == Expression::Kind::kText) dtypes_.emplace_back(side.slot, dtype_named(other.op));
  if (side.kind == Expression::Kind::kSymbol) wanted_.push_back({side.slot, Content::Kind::kUnknown, &other});
}

void Demands::collect_bound(const Expression& side, const Expression& other) {
  if (side.kind == Expression::Kind::kCall && side.op == "value" && !is_literal(other)) bounds_.push_back({side.slot, Content::Kind::kUniform, &other});
}

std::vector<double> Demands::bounds(std::int32_t slot, const Scope& known) const {
  std::vector<double> found;
  for (const Demand& bound : bounds_) {
    const auto value = bound.slot == slot ? evaluate(*bound.value, known) : std::nullopt;
    const auto real = value ? number(*value) : std::nullopt;
    if (real) found.insert(found.end(), {*real, *real, *real * 1.125, *real * 0.875});
  }
  return found;
}

bool Demands::is_weight(std::int32_t slot) const {
  return std::any_of(rule_.variables.begin(), rule_.variables.end(), [&](const Variable& v) { return v.slot == slot && v.weight_only && !v.starred; });
}

std::vector<Content> Demands::contents(std::int32_t slot, const Scope& known) const {
  std::vector<Content> found;
  for (const Demand& demand : demands_) {
    if (demand.slot != slot) continue;
    if (!demand.value) found.push_back({demand.kind});
    const auto value = demand.value ? evaluate(*demand.value, known) : std::nullopt;
    if (const auto real = value ? number(*value) : std::nullopt) found.push_back({Content::Kind::kUniform, *real});
  }
  return found;
}

std::optional<Quantity> Demands::wanted(std::int32_t symbol, const Scope& known) {
  for (const Demand& demand : wanted_) {
    if (demand.slot != symbol || dice_.chance(40)) continue;
    if (auto value = evaluate(*demand.value, known)) return value;
  }
  return std::nullopt;
}

std::optional<int> Demands::dtype(std::int32_t slot) const {
  const auto at = std::find_if(dtypes_.begin(), dtypes_.end(), [&](const auto& demand) { return demand.first == slot; });
  return at == dtypes_.end() ? std::nullopt : std::optional(at->second);
}

std::int64_t Demands::at_least(std::int32_t symbol, std::int64_t drawn) const {
  return drawn > 0 && drawn < least_[symbol] ? (least_[symbol] + drawn - 1) / drawn * drawn : drawn;
}

bool Demands::can_hold(const TensorType& type) {
  const Dims& dims = type.dims;
  using enum Content::Kind;
  if (type.content.kind == kUniform || type.content.kind == kNonzero || type.content.kind == kFinite) return true;
  if (type.content.kind == Content::Kind::kIdentity) return dims.size() >= 2 && dims[dims.size() - 1] == dims[dims.size() - 2];
  if (dims.size() < 3 || dims[1] == 0 || dims[0] % dims[1] != 0) return false;
  return type.content.kind == Content::Kind::kAveragingKernel || std::all_of(dims.begin() + 2, dims.end(), [](std::int64_t extent) { return extent % 2 == 1; });
}

// Returns the extent at a position, about which the window may say something.
std::int64_t ShapeDraw::extent(std::size_t at, const Window& window) {
  const bool kernel = window.role == Window::Role::kKernel;
  if (window.role != Window::Role::kNone && at < 2 && !window.other.empty()) {
    if (kernel && at == 1) return window.other[1] / window.group;
    if (kernel) return dice_.alike() && dice_.chance(50) ? window.other[1] : window.group * dice_.pick(1, 3);
    if (at == 1) return window.other[1] * window.group;
  }
  const bool channels = window.role == Window::Role::kInput && at == 1;
  const bool many = dice_.large(Dice::Large::kChannels) && at == 1 && (channels || (window.role == Window::Role::kNone && dice_.chance(80)));
  if (many) return dice_.any_of(std::array<std::int64_t, 5>{32, 96, 960, 1024, 1024});
  if (channels && !dice_.alike() && dice_.chance(40)) return dice_.pick(2, 6) * dice_.pick(2, 5);    // of several groups
  if (const auto unusual = window.role == Window::Role::kNone ? dice_.unusual_extent() : std::nullopt) return *unusual;
  return dice_.chance(15) ? 1 : dice_.size_within(2, 6);
}

// Returns the extents that an ellipsis at a position stands for.
Dims ShapeDraw::middle(std::size_t at, const Window& window) {
  Dims extents;
  if (window.role == Window::Role::kNone) {
    for (std::int64_t i = dice_.pick(0, 2); i > 0; --i) extents.push_back(dice_.size_within(1, 3));
    return extents;
  }
  for (; at < 2; ++at) extents.push_back(extent(at, window));
  const std::int64_t most = dice_.chance(20) ? 3 : 2;
  const std::size_t rank = window.other.empty() ? static_cast<std::size_t>(dice_.pick(1, most)) : window.other.size() - 2;
  const bool kernel = window.role == Window::Role::kKernel;
  // Long axes hold several windows in a row.
  const std::int64_t longest = rank == 1 && (dice_.chance(50) || dice_.windows_in_a_row()) ? 16 : rank == 2 && dice_.windows_in_a_row() ? 9 : 6;
  Dims drawn = kernel ? dice_.sides(rank, 1, 3, rank > 2 ? 5 : 16) : dice_.sides(rank, 3, longest, rank > 2 ? 6 : 24);
  for (std::int64_t& extent : drawn) extent += kernel ? 0 : dice_.stretch();
  extents.insert(extents.end(), drawn.begin(), drawn.end());
  return extents;
}

// Returns whether what a symbol is bound to, if to anything, is one extent, or a list for starred ones and ellipses. An
// attribute may have bound it to something else.
bool ShapeDraw::is_fit(const Extent& extent) const {
  if (extent.slot < 0 || !bindings_.bound[extent.slot]) return true;
  const Quantity& bound = bindings_.symbols[extent.slot];
  return extent.kind == Extent::Kind::kSymbol ? std::holds_alternative<std::int64_t>(bound) : std::holds_alternative<Dims>(bound);
}

std::optional<Dims> ShapeDraw::declared(const std::vector<Extent>& shape, std::size_t element, const Window& window) {
  Dims dims;
  for (const Extent& each : shape) {
    if (!is_fit(each)) return std::nullopt;
    if (each.kind == Extent::Kind::kInteger) {
      dims.push_back(each.integer);
      continue;
    }
    if (each.kind == Extent::Kind::kEllipsis) {
      Dims drawn;
      if (each.slot >= 0 && bindings_.bound[each.slot]) drawn = std::get<Dims>(bindings_.symbols[each.slot]);
      else drawn = middle(dims.size(), window);
      if (each.slot >= 0) bindings_.set(each.slot, drawn);
      dims.insert(dims.end(), drawn.begin(), drawn.end());
      continue;
    }
    const bool starred = each.kind == Extent::Kind::kStarred;
    if (starred && (!bindings_.bound[each.slot] || std::get<Dims>(bindings_.symbols[each.slot]).size() <= element)) {
      Dims extents = bindings_.bound[each.slot] ? std::get<Dims>(bindings_.symbols[each.slot]) : Dims{};
      extents.push_back(window.role == Window::Role::kKernel ? extent(dims.size(), window) : dice_.size_within(1, 5));
      bindings_.set(each.slot, std::move(extents));
    }
    if (!starred && !bindings_.bound[each.slot]) bindings_.set(each.slot, demands_.at_least(each.slot, extent(dims.size(), window)));
    dims.push_back(starred ? std::get<Dims>(bindings_.symbols[each.slot])[element] : std::get<std::int64_t>(bindings_.symbols[each.slot]));
  }
  return dims;
}

void ShapeDraw::begin() {
  dice_.begin_graph();
  base_.assign(dice_.pick(1, 4), 1);
  for (std::int64_t& extent : base_) extent = dice_.size_within(2, 4);
}

Dims ShapeDraw::open(const std::vector<Dims>& known) {
  if (dice_.alike() && dice_.chance(50)) return part_of_base();
  if (!known.empty() && dice_.chance(70)) {    // equal to a known shape, or broadcast against it
    Dims dims = dice_.any_of(known);
    if (dice_.chance(50)) return dims;
    if (dice_.chance(50)) dims.erase(dims.begin(), dims.begin() + dice_.pick(0, static_cast<std::int64_t>(dims.size())));
    for (std::int64_t& extent : dims) {
      if (dice_.chance(30)) extent = 1;
    }
    return dims;
  }
  Dims dims(dice_.pick(0, 5));
  if (dice_.chance(35)) return Dims(dims.size(), dice_.size_within(2, 3));    // equal: a wrong permutation still fits
  for (std::int64_t& item : dims) item = dice_.unusual_extent().value_or(dice_.size_within(1, 4));
  return dims;
}

// Returns a shape that broadcasts with all other shapes drawn in this way.
Dims ShapeDraw::part_of_base() {
  Dims dims = base_;
  if (dice_.chance(50)) {
    for (std::int64_t& extent : dims) {
      if (dice_.chance(40)) extent = 1;
    }
  }
  if (dice_.chance(25)) dims.erase(dims.begin(), dims.begin() + dice_.pick(0, std::ssize(dims)));
  return dims;
}

Dims ShapeDraw::beside(const Dims& first) {
  Dims dims = first;
  if (!dims.empty()) dims[dice_.pick(0, std::ssize(dims) - 1)] = dice_.size_within(1, 4);
  return dims;
}

}  // namespace rlflow
