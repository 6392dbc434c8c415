// Chooses where matching of a rule starts and in which order its source statements follow.
#include <algorithm>

#include "rule.hpp"
#include "types.hpp"

namespace rlflow {
namespace {

bool mentions(const std::vector<Term>& terms, const std::vector<bool>& bound) {
  return std::any_of(terms.begin(), terms.end(), [&](const Term& term) { return bound[term.slot]; });
}

// A single operator that binds a whole list (Concat of a list, Split into a list) fixes how many elements there are, so
// it must come first; then an operator that is part of the result, which gives the match its site.
std::size_t choose_anchor(const Rule& rule) {
  const auto list_operator = [](const Statement& statement) {
    const auto starred = [](const Term& term) { return term.starred; };
    return !statement.mapped && (std::any_of(statement.arguments.begin(), statement.arguments.end(), starred) ||
                                 std::any_of(statement.results.begin(), statement.results.end(), starred));
  };
  for (std::size_t i = rule.source.size(); i-- > 0;) {
    if (list_operator(rule.source[i])) return i;
  }
  // A mapped operator can only start from an operand that all its elements share.
  const auto startable = [](const Statement& statement) {
    return !statement.kept && (!statement.mapped || std::any_of(statement.arguments.begin(), statement.arguments.end(),
                                                                [](const Term& term) { return !term.starred; }));
  };
  for (std::size_t i = 0; i < rule.source.size(); ++i) {
    if (!startable(rule.source[i])) continue;
    for (const Term& output : rule.outputs) {
      if (rule.source[i].results.size() && rule.source[i].results[0].slot == output.slot) return i;
    }
  }
  for (std::size_t i = 0; i < rule.source.size(); ++i) {
    if (startable(rule.source[i])) return i;
  }
  throw InvalidInput("rule '" + rule.name + "': no statement to start matching from; a starred statement needs a shared operand");
}

}  // namespace

void plan_matching(Rule& rule) {
  std::vector<bool> bound(rule.value_names.size()), done(rule.source.size());
  std::size_t next = choose_anchor(rule);
  while (true) {
    rule.plan.push_back(next);
    done[next] = true;
    for (const Term& term : rule.source[next].arguments) bound[term.slot] = true;
    for (const Term& term : rule.source[next].results) bound[term.slot] = true;
    if (rule.plan.size() == rule.source.size()) return;
    // Going to a producer leaves no choice, going to a consumer may leave many.
    const auto find = [&](auto reachable) {
      for (std::size_t i = 0; i < rule.source.size(); ++i) {
        if (!done[i] && reachable(rule.source[i])) return i;
      }
      return rule.source.size();
    };
    next = find([&](const Statement& statement) { return mentions(statement.results, bound); });
    if (next == rule.source.size()) next = find([&](const Statement& statement) { return mentions(statement.arguments, bound); });
    if (next == rule.source.size()) {
      throw InvalidInput("rule '" + rule.name + "': the source is not connected; every statement must share a tensor with another");
    }
  }
}

}  // namespace rlflow
