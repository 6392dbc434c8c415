#include "rewriting/recipe.hpp"

#include <algorithm>

namespace rlflow {
namespace {

// Returns the attributes of a target operator: those of its `@` name, overridden by the evaluated ones; or nothing.
std::optional<AttributesId> target_attributes(Context& context, const Statement& statement, const Reading& reading,
                                              const Scope& scope, const TensorType& first_operand) {
  if (statement.op_variable >= 0) return reading.op(statement.op_variable).second;
  AttributeMap map;
  if (statement.rest >= 0) map = context.attributes(reading.rest(statement.rest));
  for (const AttributePattern& pattern : statement.attributes) {
    auto value = evaluate_attribute(pattern, scope, first_operand.dims.size());
    if (!value || loses_precision(pattern.name, *value, first_operand.dtype)) return std::nullopt;
    const auto at = std::lower_bound(map.begin(), map.end(), pattern.name,
                                     [](const auto& entry, const std::string& name) { return entry.first < name; });
    Attribute attribute = to_attribute(pattern.name, std::move(*value), first_operand.dtype);
    if (at != map.end() && at->first == pattern.name) at->second = std::move(attribute);
    else map.emplace(at, pattern.name, std::move(attribute));
  }
  complete_attributes(*statement.op, map, first_operand.dtype);
  return context.attributes(map);
}

// Reads a key and builds the target from it.
class Planner final : public Scope {
 public:
  Planner(Context& context, const Rule& rule, std::span<const std::uint32_t> key)
      : context_(context), rule_(rule), reading_(context, rule), refs_(rule.slots.size()), source_begin_(rule.slots.size()) {
    recipe_.key.assign(key.begin(), key.end());
  }

  Recipe plan() {
    recipe_.legal = read_source() && reading_.consistent(true) && build_target() && collect_outputs();
    if (recipe_.legal) inherit_sites();
    return std::move(recipe_);
  }

  const Quantity* symbol(std::int32_t slot) const override { return reading_.symbol(slot); }
  std::size_t count(std::int32_t slot) const override { return refs_[slot].empty() ? reading_.count(slot) : refs_[slot].size(); }
  const AttributeMap* attributes(std::int32_t slot, bool of_operator) const override { return reading_.attributes(slot, of_operator); }
  const TensorType* type(std::int32_t slot) const override {
    return refs_[slot].empty() || rule_.value_starred[slot] ? reading_.type(slot) : &context_.type(type_of(refs_[slot][0]));
  }

 private:
  bool read_source() {
    std::size_t at = 1;    // behind the rule's number
    std::uint32_t nodes = 0;
    for (std::size_t i = 0; i < rule_.source.size(); ++i) {
      if (i == rule_.root) recipe_.root = nodes;
      const std::uint32_t count = rule_.source[i].mapped ? recipe_.key[at++] : 1;
      producer_.emplace_back(nodes);
      for (std::uint32_t k = 0; k < count; ++k, at += 2) {
        if (!reading_.add(i, {recipe_.key[at], recipe_.key[at + 1]})) return false;
      }
      nodes += count;
      recipe_.kept.resize(nodes, rule_.source[i].kept);
    }
    recipe_.node_count = nodes;
    std::uint32_t bit = 0;
    for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(rule_.slots.size()); ++slot) {
      source_begin_[slot] = recipe_.value_count;
      const bool variable = rule_.slots[slot].variable >= 0;
      for (const TypeId type : reading_.types(slot)) {
        const bool weight = variable && ((recipe_.key[at + bit / 32] >> (bit % 32)) & 1U);
        bit += variable;
        if (variable || rule_.slots[slot].kept) refs_[slot].push_back(static_cast<ValueRef>(recipe_.value_count));
        matched_.push_back({type, weight});
        ++recipe_.value_count;
      }
    }
    return true;
  }

  TypeId type_of(ValueRef ref) const { return is_new(ref) ? recipe_.values[new_index(ref)].type : matched_[ref].type; }
  bool weight_only(ValueRef ref) const {
    return is_new(ref) ? recipe_.nodes[recipe_.values[new_index(ref)].producer].weight_only : matched_[ref].weight_only;
  }

  bool build_target() {
    return std::all_of(rule_.target.begin(), rule_.target.end(), [&](const Statement& statement) { return build(statement); });
  }

  bool build(const Statement& statement) {
    if (!statement.op && statement.op_variable < 0) {    // `y = x`
      refs_[statement.results[0].slot] = refs_[statement.arguments[0].slot];
      return true;
    }
    std::size_t count = 1;
    if (statement.mapped) {
      count = 0;
      for (const Term& term : statement.arguments) {
        if (term.starred) count = std::max(count, refs_[term.slot].size());
      }
    }
    std::vector<std::vector<ValueRef>> results(statement.results.size());
    for (std::size_t element = 0; element < count; ++element) {
      if (!build_element(statement, element, results)) return false;
    }
    for (std::size_t i = 0; i < results.size(); ++i) refs_[statement.results[i].slot] = std::move(results[i]);
    return true;
  }

  bool build_element(const Statement& statement, std::size_t element, std::vector<std::vector<ValueRef>>& results) {
    std::vector<ValueRef> operands;
    for (const Term& term : statement.arguments) {
      const std::vector<ValueRef>& refs = refs_[term.slot];
      if (!term.starred) {
        if (refs.size() != 1) return false;
        operands.push_back(refs[0]);
      } else if (!statement.mapped) {
        operands.insert(operands.end(), refs.begin(), refs.end());
      } else if (element < refs.size()) {
        operands.push_back(refs[element]);
      } else {
        return false;
      }
    }
    const auto created = add(statement, operands);
    if (!created) return false;
    const auto [first, count] = *created;
    const bool list = statement.results[0].starred && !statement.mapped;
    if (!list && count != results.size()) return false;
    for (std::size_t i = 0; i < count; ++i) results[list ? 0 : i].push_back(new_value(first + i));
    return true;
  }

  // Adds one operator; returns the index of its first value and the number of its values, or nothing.
  std::optional<std::pair<std::size_t, std::size_t>> add(const Statement& statement, const std::vector<ValueRef>& operands) {
    std::vector<TypeId> types;
    bool constant = true;
    for (const ValueRef operand : operands) {
      types.push_back(type_of(operand));
      constant = constant && weight_only(operand);
    }
    const auto attributes = target_attributes(context_, statement, reading_, *this, types.empty() ? constant_type() : context_.type(types[0]));
    if (!attributes) return std::nullopt;
    const OperatorId op = statement.op ? *statement.op : reading_.op(statement.op_variable).first;
    const auto signature = context_.inferred(op, *attributes, types);
    if (!signature) return std::nullopt;
    const std::vector<TypeId>& outputs = context_.signature(*signature).outputs;
    const std::size_t first = recipe_.values.size();
    for (const TypeId type : outputs) recipe_.values.push_back({type, static_cast<std::uint32_t>(recipe_.nodes.size())});
    recipe_.nodes.push_back({.signature = *signature,
                             .operand_begin = static_cast<std::uint32_t>(recipe_.operands.size()),
                             .operand_count = static_cast<std::uint32_t>(operands.size()),
                             .first_value = static_cast<std::uint32_t>(first),
                             .value_count = static_cast<std::uint32_t>(outputs.size()),
                             .site_of = recipe_.root,
                             .weight_only = constant});
    recipe_.operands.insert(recipe_.operands.end(), operands.begin(), operands.end());
    return std::pair(first, outputs.size());
  }

  // Returns a scalar type of the dtype that constants have: that of the rule's first float variable.
  TensorType constant_type() const {
    for (const Variable& variable : rule_.variables) {
      const std::vector<TypeId>& types = reading_.types(variable.slot);
      if (!types.empty() && is_floating(context_.type(types[0]).dtype)) return {context_.type(types[0]).dtype, true, {}};
    }
    return {};
  }

  bool collect_outputs() {
    for (const Term& output : rule_.outputs) {
      const std::vector<ValueRef>& fresh = refs_[output.slot];
      if (reading_.types(output.slot).size() != fresh.size()) return false;
      for (std::size_t i = 0; i < fresh.size(); ++i) {
        const std::uint32_t old = source_begin_[output.slot] + static_cast<std::uint32_t>(i);
        if (type_of(fresh[i]) != matched_[old].type) return false;
        // A run-time output never turns into a weight here: constant folding is the clean-up's work.
        if (weight_only(fresh[i])) return false;
        recipe_.replaced.emplace_back(old, fresh[i]);
      }
    }
    return true;
  }

  // Gives the node that makes a replacement the site of the old producer.
  void inherit_sites() {
    for (const auto& [old, fresh] : recipe_.replaced) {
      if (!is_new(fresh)) continue;
      NewNode& node = recipe_.nodes[recipe_.values[new_index(fresh)].producer];
      if (node.first_value == new_index(fresh)) node.site_of = matched_producer(old);
    }
  }

  // Returns the position of the matched node that makes a matched tensor.
  std::uint32_t matched_producer(std::uint32_t value) const {
    for (std::size_t i = 0; i < rule_.source.size(); ++i) {
      for (const Term& result : rule_.source[i].results) {
        const std::uint32_t begin = source_begin_[result.slot];
        const std::size_t count = reading_.types(result.slot).size();
        if (value >= begin && value < begin + count) return producer_[i] + (rule_.source[i].mapped ? value - begin : 0);
      }
    }
    return recipe_.root;
  }

  struct Matched {
    TypeId type;
    bool weight_only;
  };
  Context& context_;
  const Rule& rule_;
  Reading reading_;
  std::vector<std::vector<ValueRef>> refs_;    // by value slot: variables, given results, what the target has made so far
  std::vector<std::uint32_t> source_begin_;    // by value slot: first of its tensors in the match
  std::vector<std::uint32_t> producer_;        // by source statement: first of its nodes in the match
  std::vector<Matched> matched_;
  Recipe recipe_;
};

}  // namespace

const Recipe& RecipeBook::find(std::span<const std::uint32_t> key) {
  const std::lock_guard guard(mutex_);
  std::unique_ptr<const Recipe>& known = known_[std::u32string(key.begin(), key.end())];
  if (!known) known = std::make_unique<const Recipe>(Planner(*context_, rules_[key[0]], key).plan());
  return *known;
}

}  // namespace rlflow
