#include "verification/instance_demands.hpp"

#include <algorithm>

namespace rlflow {
namespace {

// As float32 holds it.
std::optional<double> number(const Quantity& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(static_cast<float>(*integer));
  if (const auto* real = std::get_if<double>(&value)) return static_cast<double>(static_cast<float>(*real));
  return std::nullopt;
}

}  // namespace

Demands::Demands(const Rule& rule, Dice& dice) : rule_(rule), dice_(dice), least_(rule.symbol_names.size(), 0) {
  for (const Expression& condition : rule.conditions) collect(condition);
}

void Demands::collect(const Expression& condition) {
  if (condition.kind == Expression::Kind::kBinary && condition.op == "==") {
    collect_equal(condition.arguments[0], condition.arguments[1]);
    collect_equal(condition.arguments[1], condition.arguments[0]);
  }
  if (condition.kind == Expression::Kind::kBinary && condition.op == ">=" && condition.arguments[0].kind == Expression::Kind::kSymbol &&
      condition.arguments[1].kind == Expression::Kind::kInteger) {
    least_[condition.arguments[0].slot] = std::max(least_[condition.arguments[0].slot], condition.arguments[1].integer);
  }
  if (condition.kind == Expression::Kind::kReal) dice_.add_real(condition.real);
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
  for (const Expression& argument : condition.arguments) collect(argument);
}

void Demands::collect_equal(const Expression& side, const Expression& other) {
  if (side.kind == Expression::Kind::kCall && side.op == "value") demands_.push_back({side.slot, Content::Kind::kUniform, &other});
  if (side.kind == Expression::Kind::kSymbol) wanted_.push_back({side.slot, Content::Kind::kUnknown, &other});
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

std::int64_t Demands::at_least(std::int32_t symbol, std::int64_t drawn) const {
  return drawn > 0 && drawn < least_[symbol] ? (least_[symbol] + drawn - 1) / drawn * drawn : drawn;
}

bool Demands::can_hold(const TensorType& type) {
  const Dims& dims = type.dims;
  if (type.content.kind == Content::Kind::kUniform) return true;
  if (type.content.kind == Content::Kind::kIdentity) return dims.size() >= 2 && dims[dims.size() - 1] == dims[dims.size() - 2];
  if (dims.size() < 3 || dims[0] % dims[1] != 0) return false;
  return type.content.kind == Content::Kind::kAveragingKernel || std::all_of(dims.begin() + 2, dims.end(), [](std::int64_t extent) { return extent % 2 == 1; });
}

}  // namespace rlflow
