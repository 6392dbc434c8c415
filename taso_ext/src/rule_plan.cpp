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

bool share_a_tensor(const Statement& a, const Statement& b) {
  const auto all = [](const Statement& statement) {
    std::vector<Term> terms = statement.arguments;
    terms.insert(terms.end(), statement.results.begin(), statement.results.end());
    return terms;
  };
  const auto of_a = all(a), of_b = all(b);
  return std::any_of(of_a.begin(), of_a.end(), [&](const Term& term) {
    return std::any_of(of_b.begin(), of_b.end(), [&](const Term& other) { return other.slot == term.slot; });
  });
}

// Greatest distance from the anchor; the elements of a mapped anchor are one shared tensor apart.
std::int32_t reach(const Rule& rule) {
  std::vector<std::int32_t> distance(rule.source.size(), -1);
  std::vector<std::size_t> queue = {rule.plan[0]};
  distance[rule.plan[0]] = std::any_of(rule.source.begin(), rule.source.end(), [](const Statement& s) { return s.mapped; }) ? 1 : 0;
  for (std::size_t at = 0; at < queue.size(); ++at) {
    for (std::size_t i = 0; i < rule.source.size(); ++i) {
      if (distance[i] >= 0 || !share_a_tensor(rule.source[queue[at]], rule.source[i])) continue;
      distance[i] = distance[queue[at]] + 1;
      queue.push_back(i);
    }
  }
  return *std::max_element(distance.begin(), distance.end());
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
    if (rule.plan.size() == rule.source.size()) break;
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
  rule.radius = reach(rule);
}

std::vector<OperatorId> anchor_operators(const Rule& rule) {
  const Statement& anchor = rule.source[rule.plan[0]];
  return anchor.op ? std::vector<OperatorId>{*anchor.op} : rule.operators[anchor.op_variable].choices;
}

RuleBook::RuleBook(std::vector<Rule> all) : rules(std::move(all)), by_anchor(known_operator_count()) {
  for (std::size_t r = 0; r < rules.size(); ++r) {
    longest_radius = std::max(longest_radius, rules[r].radius);
    for (const OperatorId op : anchor_operators(rules[r])) by_anchor[op].push_back(static_cast<std::int32_t>(r));
  }
}

}  // namespace rlflow
