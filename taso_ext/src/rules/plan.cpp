// The plan of matching a rule: where matching starts, in which order the source statements follow, and what a rewrite
// elsewhere can do to a match.
#include <algorithm>
#include <set>

#include "rules/rule.hpp"
#include "ir/types.hpp"

namespace rlflow {
namespace {

bool mentions_slot(const std::vector<Term>& terms, std::int32_t slot) {
  return std::any_of(terms.begin(), terms.end(), [&](const Term& term) { return term.slot == slot; });
}

bool mentions(const std::vector<Term>& terms, const std::vector<bool>& bound) {
  return std::any_of(terms.begin(), terms.end(), [&](const Term& term) { return bound[term.slot]; });
}

// Returns the last statement that is a single operator and binds a whole list (Concat of a list, Split into a list), if
// another statement is mapped over a list. It fixes how many elements there are, so it must come first.
std::optional<std::size_t> list_operator(const Rule& rule) {
  if (std::none_of(rule.source.begin(), rule.source.end(), [](const Statement& statement) { return statement.mapped; })) return std::nullopt;
  const auto starred = [](const Term& term) { return term.starred; };
  for (std::size_t i = rule.source.size(); i-- > 0;) {
    const Statement& statement = rule.source[i];
    if (!statement.mapped && (std::any_of(statement.arguments.begin(), statement.arguments.end(), starred) ||
                              std::any_of(statement.results.begin(), statement.results.end(), starred))) {
      return i;
    }
  }
  return std::nullopt;
}

// Returns whether matching can start at a statement. A mapped one needs an operand that all its elements share.
bool startable(const Statement& statement) {
  return !statement.kept && (!statement.mapped || std::any_of(statement.arguments.begin(), statement.arguments.end(),
                                                              [](const Term& term) { return !term.starred; }));
}

// Returns the statement whose operator gives a match its site: one that makes an output of the rule, if possible.
std::size_t choose_root(const Rule& rule) {
  if (const auto list = list_operator(rule)) return *list;
  for (std::size_t i = 0; i < rule.source.size(); ++i) {
    if (startable(rule.source[i]) && mentions_slot(rule.outputs, rule.source[i].results[0].slot)) return i;
  }
  for (std::size_t i = 0; i < rule.source.size(); ++i) {
    if (startable(rule.source[i])) return i;
  }
  throw InvalidInput("no statement to start matching from; a starred statement needs a shared operand");
}

// Returns whether a tensor is certainly computed at run time. This holds for a result (operators on weights alone are
// never matched), for a variable declared `runtime`, and for the only operand of an operator that is not declared a
// weight.
bool surely_runtime(const Rule& rule, std::int32_t slot) {
  if (rule.slots[slot].variable < 0 || rule.slots[slot].computed) return true;
  return std::any_of(rule.source.begin(), rule.source.end(), [&](const Statement& statement) {
    return mentions_slot(statement.arguments, slot) &&
           std::all_of(statement.arguments.begin(), statement.arguments.end(),
                       [&](const Term& term) { return term.slot == slot || rule.slots[term.slot].weight_only; });
  });
}

// Returns whether `b` reads every operand of `a` that may be computed at run time. At least one of these operands is.
bool reads_all(const Rule& rule, const Statement& a, const Statement& b) {
  const auto plain = [](const Statement& statement) {
    return !statement.mapped && std::none_of(statement.arguments.begin(), statement.arguments.end(), [](const Term& term) { return term.starred; });
  };
  return plain(a) && plain(b) && std::all_of(a.arguments.begin(), a.arguments.end(), [&](const Term& term) {
    return rule.slots[term.slot].weight_only || mentions_slot(b.arguments, term.slot);
  });
}

bool share_a_runtime_tensor(const Rule& rule, const Statement& a, const Statement& b) {
  if (reads_all(rule, a, b) || reads_all(rule, b, a)) return true;
  for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(rule.slots.size()); ++slot) {
    const bool in_a = mentions_slot(a.arguments, slot) || mentions_slot(a.results, slot);
    const bool in_b = mentions_slot(b.arguments, slot) || mentions_slot(b.results, slot);
    if (in_a && in_b && surely_runtime(rule, slot)) return true;
  }
  return false;
}

// Returns the greatest distance of a statement from `from`, counted in shared run-time tensors, or nothing if some
// statement is connected with it only through a weight. The elements of a mapped operator are one shared tensor apart.
std::optional<std::int32_t> reach(const Rule& rule, std::size_t from) {
  std::vector<std::int32_t> distance(rule.source.size(), -1);
  std::vector<std::size_t> queue = {from};
  distance[from] = std::any_of(rule.source.begin(), rule.source.end(), [](const Statement& s) { return s.mapped; }) ? 1 : 0;
  const Statement& anchor = rule.source[from];
  if (anchor.mapped && std::none_of(anchor.arguments.begin(), anchor.arguments.end(), [&](const Term& term) {
        return !term.starred && surely_runtime(rule, term.slot);
      })) {
    return std::nullopt;
  }
  for (std::size_t at = 0; at < queue.size(); ++at) {
    for (std::size_t i = 0; i < rule.source.size(); ++i) {
      if (distance[i] >= 0 || !share_a_runtime_tensor(rule, rule.source[queue[at]], rule.source[i])) continue;
      distance[i] = distance[queue[at]] + 1;
      queue.push_back(i);
    }
  }
  if (queue.size() < rule.source.size()) return std::nullopt;
  return *std::max_element(distance.begin(), distance.end());
}

// Returns the statement at which matching starts. It is one in the middle, so that `radius` is small: anchors further
// than that from a change need not be looked at.
std::size_t choose_anchor(const Rule& rule) {
  if (const auto list = list_operator(rule)) return *list;
  std::size_t best = rule.root;
  for (std::size_t i = 0; i < rule.source.size(); ++i) {
    if (!startable(rule.source[i])) continue;
    const auto radius = reach(rule, i), least = reach(rule, best);
    if (radius && (!least || *radius < *least)) best = i;
  }
  return best;
}

// Returns the tensors that every element of a source tensor depends on; if `whole` is true, those that some element
// depends on.
std::set<std::int32_t> ancestors(const Rule& rule, std::int32_t slot, bool whole) {
  std::set<std::int32_t> found;
  std::set<std::pair<std::int32_t, bool>> visited;
  std::vector<std::pair<std::int32_t, bool>> open = {{slot, whole}};
  while (!open.empty()) {
    const auto [at, all] = open.back();
    open.pop_back();
    if (!visited.insert({at, all}).second) continue;
    for (const Statement& statement : rule.source) {
      if (!mentions_slot(statement.results, at)) continue;
      for (const Term& term : statement.arguments) {
        const bool elementwise = statement.mapped && term.starred && !all;
        if (!elementwise) found.insert(term.slot);
        open.emplace_back(term.slot, term.starred && !elementwise);
      }
    }
  }
  return found;
}

bool target_reads(const Rule& rule, std::int32_t slot) {
  return std::any_of(rule.target.begin(), rule.target.end(), [&](const Statement& s) { return mentions_slot(s.arguments, slot); });
}

// Returns whether `known` contains all run-time variables that a tensor is or depends on.
bool rests_on(const Rule& rule, std::int32_t slot, const std::set<std::int32_t>& known) {
  if (known.count(slot)) return true;
  const auto below = ancestors(rule, slot, true);
  return std::all_of(rule.variables.begin(), rule.variables.end(), [&](const Variable& variable) {
    const bool read = variable.slot == slot || below.count(variable.slot);
    return variable.weight_only || !read || known.count(variable.slot);
  });
}

// Returns whether a rewrite can close a cycle. A new operator makes a replaced tensor depend on what the target reads.
// That closes a cycle only if what it reads depends on another replaced tensor, which is impossible if every replaced
// tensor depends on it already.
bool can_close_cycle(const Rule& rule) {
  for (const Term& output : rule.outputs) {
    const auto above = ancestors(rule, output.slot, false);
    for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(rule.slots.size()); ++slot) {
      const bool outside = rule.slots[slot].variable >= 0 || rule.slots[slot].kept;
      if (outside && target_reads(rule, slot) && !rests_on(rule, slot, above)) return true;
    }
  }
  return false;
}

// Records what can be asked about the anchor's neighbours before matching begins.
void describe_neighbours(Rule& rule) {
  const Statement& anchor = rule.source[rule.plan[0]];
  const auto shares = [](const std::vector<Term>& made, const std::vector<Term>& read) {
    return std::any_of(made.begin(), made.end(), [&](const Term& term) { return mentions_slot(read, term.slot); });
  };
  for (const Statement& statement : rule.source) {
    OperatorSet operators;
    for (const OperatorId op : operators_of(rule, statement)) operators.add(op);
    if (shares(statement.results, anchor.arguments)) rule.makers.push_back(operators);
    if (shares(anchor.results, statement.arguments)) rule.readers.push_back(operators);
  }
  if (anchor.stars > 0) return;    // operands are not at the positions of the arguments
  const auto read_by_another = [&](const Term& term) {
    const bool by_sibling = anchor.mapped && !term.starred && rule.least_elements > 1;
    return by_sibling || std::any_of(rule.source.begin(), rule.source.end(), [&](const Statement& statement) {
      return &statement != &anchor && !term.starred && mentions_slot(statement.arguments, term.slot);
    });
  };
  for (std::size_t i = 0; i < std::min(anchor.arguments.size(), kMostShared); ++i) {
    if (read_by_another(anchor.arguments[i])) rule.shared |= 1U << i;
  }
}

void describe_slots(Rule& rule) {
  for (Statement& statement : rule.source) {
    for (const Term& term : statement.arguments) statement.stars += term.starred && !statement.mapped;
  }
  rule.slots.assign(rule.value_names.size(), {});
  for (std::size_t i = 0; i < rule.variables.size(); ++i) {
    const Variable& variable = rule.variables[i];
    rule.slots[variable.slot] = {.variable = static_cast<std::int32_t>(i), .starred = variable.starred, .weight_only = variable.weight_only, .computed = variable.computed};
  }
  for (const Statement& statement : rule.source) {
    for (const Term& result : statement.results) {
      Slot& slot = rule.slots[result.slot];
      slot.starred = result.starred;
      slot.kept = statement.kept;
      slot.inner = !result.starred && !statement.kept && !mentions_slot(rule.outputs, result.slot);
    }
  }
  for (const Statement& statement : rule.source) {
    for (const Term& argument : statement.arguments) ++rule.slots[argument.slot].reads;
    if (!statement.mapped) continue;    // each element reads it, and their number is not known here
    for (const Term& argument : statement.arguments) rule.slots[argument.slot].inner = false;
  }
  for (const Statement& statement : rule.source) {
    for (const Term& result : statement.results) {
      const bool dies = !statement.kept && !mentions_slot(rule.outputs, result.slot);
      if (dies && !rule.slots[result.slot].inner) rule.shielded.push_back(result.slot);
    }
  }
}

}  // namespace

void plan_matching(Rule& rule) {
  describe_slots(rule);
  std::vector<bool> bound(rule.value_names.size()), done(rule.source.size());
  rule.root = choose_root(rule);
  std::size_t next = choose_anchor(rule);
  while (true) {
    rule.plan.push_back(next);
    done[next] = true;
    for (const Term& term : rule.source[next].arguments) bound[term.slot] = true;
    for (const Term& term : rule.source[next].results) bound[term.slot] = true;
    if (rule.plan.size() == rule.source.size()) break;
    // A step to a producer leaves no choice; a step to a consumer may leave many.
    const auto find = [&](auto reachable) {
      for (std::size_t i = 0; i < rule.source.size(); ++i) {
        if (!done[i] && reachable(rule.source[i])) return i;
      }
      return rule.source.size();
    };
    next = find([&](const Statement& statement) { return mentions(statement.results, bound); });
    if (next == rule.source.size()) next = find([&](const Statement& statement) { return mentions(statement.arguments, bound); });
    if (next == rule.source.size()) {
      throw InvalidInput("the source is not connected; every statement must share a tensor with another");
    }
  }
  describe_neighbours(rule);
  const auto radius = reach(rule, rule.plan[0]);
  rule.may_cycle = can_close_cycle(rule);
  rule.far = !radius || rule.may_cycle;
  rule.radius = radius.value_or(0);
  rule.may_free = std::any_of(rule.variables.begin(), rule.variables.end(), [&](const Variable& variable) {
    return !variable.weight_only && !target_reads(rule, variable.slot);
  });
}

std::vector<OperatorId> operators_of(const Rule& rule, const Statement& statement) {
  return statement.op ? std::vector<OperatorId>{*statement.op} : rule.operators[statement.op_variable].choices;
}

RuleBook::RuleBook(std::vector<Rule> all) : rules(std::move(all)), by_anchor(known_operator_count()) {
  for (std::size_t r = 0; r < rules.size(); ++r) {
    statement_begin.push_back(statements);
    statements += rules[r].source.size();
    if (!rules[r].far) longest_radius = std::max(longest_radius, rules[r].radius);
    for (const OperatorId op : operators_of(rules[r], rules[r].source[rules[r].plan[0]])) by_anchor[op].push_back(static_cast<std::int32_t>(r));
  }
}

}  // namespace rlflow
