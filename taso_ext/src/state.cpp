#include "state.hpp"

#include <algorithm>
#include <unordered_map>

namespace rlflow {
namespace {

std::uint64_t key_of(std::int32_t rule, const Binding& binding) {
  std::uint64_t key = mix(static_cast<std::uint64_t>(rule) + 1);
  const auto add = [&](std::int64_t word) { key = mix(key ^ static_cast<std::uint64_t>(word)); };
  for (const auto& nodes : binding.nodes) {
    add(-static_cast<std::int64_t>(nodes.size()));
    for (const NodeId node : nodes) add(node);
  }
  for (const ValueId value : binding.values) add(value);
  for (const auto& list : binding.lists) {
    add(-static_cast<std::int64_t>(list.size()));
    for (const ValueId value : list) add(value);
  }
  return key;
}

// Calls visitor(binding, edit, ordinal) for every legal rewrite at an anchor until it returns false.
template <typename Visitor>
void visit_rewrites(const Graph& graph, Matcher& matcher, const Rule& rule, NodeId anchor, Visitor visitor) {
  std::int32_t ordinal = 0;
  matcher.visit(anchor, [&](const Binding& binding) {
    const auto edit = plan_edit(graph, rule, binding);
    return !edit || visitor(binding, *edit, ordinal++);
  });
}

// The rewrite a match stands for.
Edit edit_of(const Graph& graph, const Rule& rule, const Match& match) {
  std::optional<Edit> found;
  Matcher matcher(graph, rule);
  visit_rewrites(graph, matcher, rule, match.anchor, [&](const Binding&, const Edit& edit, std::int32_t ordinal) {
    if (ordinal == match.ordinal) found = edit;
    return !found;
  });
  if (!found) throw std::logic_error("rule '" + rule.name + "' no longer matches where it did: please report this");
  return std::move(*found);
}

// Whether a match can come or go without any change near it: a rewrite far away may open or close a path between two
// outputs, and with it a cycle.
bool sees_far(const Rule& rule) {
  return rule.outputs.size() > 1 || rule.outputs[0].starred;
}

// Distance of every node from the nearest node that reads or makes a changed value, counted in shared values and cut
// off behind `longest`.
std::vector<std::int32_t> distances(const Graph& graph, const std::vector<ValueId>& changed, std::int32_t longest) {
  std::vector<std::int32_t> distance(graph.nodes().size(), longest + 1);
  std::vector<NodeId> frontier, next;
  const auto reach = [&](ValueId value, std::int32_t at) {
    const auto mark = [&](NodeId id) {
      if (id == kNoNode || !graph.alive(id) || distance[id] <= at) return;
      distance[id] = at;
      next.push_back(id);
    };
    mark(graph.value(value).producer);
    for (const NodeId consumer : graph.consumers(value)) mark(consumer);
  };
  for (const ValueId value : changed) reach(value, 0);
  for (std::int32_t at = 1; at <= longest; ++at) {
    frontier.swap(next);
    next.clear();
    for (const NodeId id : frontier) {
      for (const ValueId operand : graph.operands(id)) {
        if (operand != kNoValue) reach(operand, at);
      }
      const Node& node = graph.node(id);
      for (std::uint32_t k = 0; k < node.output_count; ++k) reach(node.output_begin + static_cast<ValueId>(k), at);
    }
  }
  return distance;
}

}  // namespace

State::State(Graph graph, std::shared_ptr<const RuleBook> rules, std::shared_ptr<CostTable> costs, std::int32_t max_locations)
    : graph_(std::move(graph)), rules_(std::move(rules)), costs_(std::move(costs)) {
  graph_.number_sites();
  locations_ = max_locations > 0 ? max_locations : std::max<std::int32_t>(1, static_cast<std::int32_t>(graph_.runtime_node_count()));
  find_matches({});
  cost_ = total_cost(graph_, *costs_);
}

void State::find_matches(const std::vector<ValueId>& changed) {
  const std::vector<Match> previous = std::move(matches_);
  matches_.clear();
  // Matches without a location are not kept, so while there are any, all are looked for again.
  const bool everything = changed.empty() || truncated_ > 0;
  truncated_ = 0;
  const auto distance = everything ? std::vector<std::int32_t>(graph_.nodes().size()) : distances(graph_, changed, rules_->longest_radius);
  const auto stale = [&](const Rule& rule, NodeId anchor) { return distance[anchor] <= rule.radius || sees_far(rule); };

  std::vector<std::vector<Match>> fresh(rules().size());
  for (const Match& match : previous) {
    if (graph_.alive(match.anchor) && !stale(rules()[match.rule], match.anchor)) fresh[match.rule].push_back(match);
  }
  std::vector<std::unique_ptr<Matcher>> matchers(rules().size());
  for (const NodeId anchor : graph_.order()) {
    const OperatorId op = graph_.signature(anchor).op;
    if (graph_.node(anchor).weight_only || op >= known_operator_count()) continue;
    for (const std::int32_t r : rules_->by_anchor[op]) {
      const Rule& rule = rules()[r];
      if (!stale(rule, anchor)) continue;
      if (!matchers[r]) matchers[r] = std::make_unique<Matcher>(graph_, rule);
      visit_rewrites(graph_, *matchers[r], rule, anchor, [&](const Binding& binding, const Edit&, std::int32_t ordinal) {
        fresh[r].push_back({key_of(r, binding), anchor, r, ordinal, -1});
        return true;
      });
    }
  }
  auto old_begin = previous.begin();
  for (std::size_t r = 0; r < rules().size(); ++r) {
    const auto old_end = std::find_if(old_begin, previous.end(), [&](const Match& m) { return m.rule != static_cast<std::int32_t>(r); });
    assign_locations(fresh[r], {old_begin, old_end});
    old_begin = old_end;
  }
}

void State::assign_locations(std::vector<Match>& fresh, std::span<const Match> previous) {
  std::vector<char> taken(locations_);
  for (const Match& match : fresh) {
    if (match.location >= 0) taken[match.location] = 1;
  }
  for (Match& match : fresh) {
    if (match.location >= 0) continue;
    const auto at = std::find_if(previous.begin(), previous.end(), [&](const Match& old) { return old.key == match.key; });
    if (at == previous.end() || taken[at->location]) continue;
    match.location = at->location;
    taken[match.location] = 1;
  }
  for (Match& match : fresh) {
    if (match.location >= 0) continue;
    std::int32_t location = graph_.node(match.anchor).site % locations_;
    std::int32_t tried = 0;
    while (tried < locations_ && taken[location]) location = (location + 1) % locations_, ++tried;
    if (tried == locations_) {
      ++truncated_;
      continue;
    }
    match.location = location;
    taken[location] = 1;
  }
  std::erase_if(fresh, [](const Match& match) { return match.location < 0; });
  std::sort(fresh.begin(), fresh.end(), [](const Match& a, const Match& b) { return a.location < b.location; });
  matches_.insert(matches_.end(), fresh.begin(), fresh.end());
}

std::vector<Candidate> State::candidates() const {
  std::vector<Candidate> out;
  out.reserve(matches_.size());
  for (const Match& match : matches_) {
    const Edit edit = edit_of(graph_, rules()[match.rule], match);
    out.push_back({match.rule, match.location, cost_.ms + price_edit(graph_, edit, *costs_)});
  }
  return out;
}

void State::step(std::int32_t rule, std::int32_t location) {
  const auto at = std::find_if(matches_.begin(), matches_.end(), [&](const Match& m) { return m.rule == rule && m.location == location; });
  if (at == matches_.end()) {
    if (rule < 0 || rule >= static_cast<std::int32_t>(rules().size())) {
      throw InvalidInput("rule " + std::to_string(rule) + " is out of range: there are " + std::to_string(rules().size()) + " rules");
    }
    const auto count = std::count_if(matches_.begin(), matches_.end(), [&](const Match& m) { return m.rule == rule; });
    throw InvalidInput("location " + std::to_string(location) + " is not legal for rule '" + rules()[rule].name + "': it has " +
                       std::to_string(count) + " matches in this state (see location_mask)");
  }
  find_matches(apply_edit(graph_, edit_of(graph_, rules()[rule], *at)));
  cost_ = total_cost(graph_, *costs_);
}

}  // namespace rlflow
