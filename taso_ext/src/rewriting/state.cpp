#include "rewriting/state.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rewriting/waypoints.hpp"

namespace rlflow {
namespace {

constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

bool in_order(const Match& a, const Match& b) { return a.rule != b.rule ? a.rule < b.rule : a.location < b.location; }

// Lists in `desk.reached` the live run-time nodes within `longest` of a changed tensor, nearest first, and sets their
// `desk.distance`. It counts shared run-time tensors: a node at 0 reads or makes a changed tensor.
void measure_distances(const Graph& graph, std::span<const ValueId> changed, std::int32_t longest, Game::Desk& desk) {
  for (const NodeId id : desk.reached) desk.distance[id] = kFar;
  desk.reached.clear();
  desk.distance.resize(std::max(desk.distance.size(), graph.node_count()), kFar);
  const auto reach = [&](ValueId value, std::int32_t at) {
    if (graph.value(value).weight_only) return;
    const auto mark = [&](NodeId id) {
      if (id == kNoNode || !graph.alive(id) || desk.distance[id] <= at) return;
      desk.distance[id] = at;
      desk.reached.push_back(id);
    };
    mark(graph.value(value).producer);
    for (const NodeId consumer : graph.consumers(value)) mark(consumer);
  };
  for (const ValueId value : changed) reach(value, 0);
  for (std::size_t next = 0; next < desk.reached.size(); ++next) {
    const NodeId id = desk.reached[next];
    const std::int32_t at = desk.distance[id] + 1;
    if (at > longest) break;
    for (const ValueId operand : graph.operands(id)) {
      if (operand != kNoValue) reach(operand, at);
    }
    const Node& node = graph.node(id);
    for (std::uint32_t k = 0; k < node.output_count; ++k) reach(node.output_begin + static_cast<ValueId>(k), at);
  }
}

}  // namespace

Game::Game(std::shared_ptr<Context> context, std::shared_ptr<const RuleBook> book, std::shared_ptr<const CostModel> costs, std::int32_t locations)
    : context_(std::move(context)), book_(std::move(book)), recipes_(std::make_shared<RecipeBook>(context_, book_->rules)),
      costs_(std::move(costs)), locations_(locations) {}

std::unique_ptr<Game::Desk, Game::Return> Game::desk() {
  const std::lock_guard guard(mutex_);
  if (idle_.empty()) idle_.push_back(std::make_unique<Desk>(Desk{Matcher(context_, book_, recipes_), {}, {}, {}, {}}));
  std::unique_ptr<Desk, Return> desk(idle_.back().release(), Return{this});
  idle_.pop_back();
  return desk;
}

void Game::Return::operator()(Desk* desk) const {
  const std::lock_guard guard(game->mutex_);
  game->idle_.emplace_back(desk);
}

Game::Storage Game::storage() {
  const std::lock_guard guard(mutex_);
  if (spare_.empty()) return {};
  Storage storage = std::move(spare_.back());
  spare_.pop_back();
  return storage;
}

void Game::give_back(Storage storage) {
  constexpr std::size_t kMostSpare = 16;
  const std::lock_guard guard(mutex_);
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(storage));
}

State::~State() {
  if (game_) game_->give_back(std::move(held_));
}

State State::start(Graph graph, std::shared_ptr<const RuleBook> rules, std::shared_ptr<const CostModel> costs, std::int32_t max_locations) {
  graph.number_sites();
  const auto locations = max_locations > 0 ? max_locations : std::max<std::int32_t>(1, static_cast<std::int32_t>(graph.runtime_node_count()));
  auto game = std::make_shared<Game>(graph.shared_context(), std::move(rules), std::move(costs), locations);
  State state(game, {std::move(graph), {}, {}, {}});
  state.find_all(*game->desk(), nullptr);
  state.sum_costs(nullptr, {}, Pricing::kExact);
  return state;
}

State State::moved_to(Graph graph) const {
  require_same_interface(this->graph(), graph);
  graph.renew_origins(graph.hash());
  return start(std::move(graph), game_->shared_book(), game_->shared_costs(), game_->locations());
}

State State::after(const Match& match, Pricing pricing) const {
  State next(game_, game_->storage());
  const auto desk = game_->desk();
  apply(graph(), *match.recipe, match.key, held_.matches.nodes(match), held_.matches.values(match), next.held_.graph, desk->changed);
  // Matches without a location are not kept, so all matches are found anew while there are any.
  const bool everything = truncated_ > 0;
  measure_distances(next.graph(), desk->changed, everything ? 0 : game_->book().longest_radius + 1, *desk);
  if (everything) next.find_all(*desk, this);
  else next.find_changed(*desk, *this);
  const auto beyond = std::find_if(desk->reached.begin(), desk->reached.end(), [&](NodeId id) { return desk->distance[id] > 0; });
  next.sum_costs(this, {desk->reached.begin(), beyond}, pricing);
  next.history_ = history_;
  next.history_ += match.key;
  if (next.graph().is_sparse()) next.compact();
  return next;
}

State State::exactly_priced() const {
  State same(*this);
  same.sum_costs(nullptr, {}, Pricing::kExact);
  return same;
}

void State::change_by(const Match& match, Change& change) const {
  game_->desk()->preview.change(graph(), *match.recipe, nodes(match), held_.matches.values(match), change);
}

Hash128 State::plain_hash_after(const Match& match) const {
  if (game_->rules()[match.rule].may_cycle) return after(match).graph().plain_hash();
  return game_->desk()->preview.plain_hash(graph(), *match.recipe, nodes(match), held_.matches.values(match));
}

State State::rematched() const {
  State same(game_, {graph(), {}, {}, {}});
  same.find_all(*game_->desk(), this);
  same.sum_costs(nullptr, {}, Pricing::kExact);
  return same;
}

void State::find_all(Game::Desk& desk, const State* previous) {
  MatchList& found = held_.matches;
  found.matches.clear();
  found.ids.clear();
  for (const NodeId anchor : graph().order()) {
    if (graph().node(anchor).weight_only) continue;
    desk.matcher.find_near(graph(), anchor, 0, found);
    desk.matcher.find_far(graph(), anchor, found);
  }
  settle(0, previous);
}

void State::find_changed(Game::Desk& desk, const State& previous) {
  MatchList& found = held_.matches;
  found.matches.clear();
  found.matches.reserve(previous.matches().size() + 16);
  found.ids.reserve(previous.held_.matches.ids.size() + 128);
  found.ids = previous.held_.matches.ids;
  for (const Match& match : previous.matches()) {
    const Rule& rule = game_->rules()[match.rule];
    if (rule.far || !graph().alive(match.anchor) || desk.distance[match.anchor] <= rule.radius) continue;
    Match& kept = found.matches.emplace_back(match);
    // The price also depends on the readers of what the match reads and makes.
    if (rule.may_free || desk.distance[match.anchor] == rule.radius + 1) kept.delta_ms = kUnknown;
  }
  const std::size_t kept = found.matches.size();
  for (const NodeId anchor : desk.reached) desk.matcher.find_near(graph(), anchor, desk.distance[anchor], found);
  for (const NodeId anchor : graph().order()) {
    if (!graph().node(anchor).weight_only) desk.matcher.find_far(graph(), anchor, found);
  }
  settle(kept, &previous);
}

void State::settle(std::size_t kept, const State* previous) {
  MatchList& found = held_.matches;
  std::vector<Match>& all = found.matches;
  truncated_ = 0;
  const auto fresh = all.begin() + static_cast<std::ptrdiff_t>(kept);
  const auto by_rule = [](const Match& a, const Match& b) { return a.rule < b.rule; };
  std::stable_sort(fresh, all.end(), [&](const Match& a, const Match& b) {
    return a.rule != b.rule ? a.rule < b.rule : graph().rank(found.root(a)) < graph().rank(found.root(b));
  });
  std::vector<char> taken(game_->locations());
  for (auto begin = fresh; begin != all.end();) {
    const auto end = std::upper_bound(begin, all.end(), *begin, by_rule);
    std::fill(taken.begin(), taken.end(), 0);
    const auto [first, last] = std::equal_range(all.begin(), fresh, *begin, by_rule);
    std::for_each(first, last, [&](const Match& match) { taken[match.location] = 1; });
    if (previous) {
      const auto& old = previous->matches();
      const auto [old_begin, old_end] = std::equal_range(old.begin(), old.end(), *begin, by_rule);
      for (auto match = begin; match != end; ++match) {
        const auto at = std::find_if(old_begin, old_end, [&](const Match& known) { return known.key == match->key; });
        if (at == old_end || taken[at->location]) continue;
        match->location = at->location;
        taken[match->location] = 1;
      }
    }
    for (auto match = begin; match != end; ++match) {
      if (match->location >= 0) continue;
      std::int32_t location = graph().node(found.root(*match)).site % game_->locations(), tried = 0;
      while (tried < game_->locations() && taken[location]) location = (location + 1) % game_->locations(), ++tried;
      if (tried == game_->locations()) {
        ++truncated_;
        continue;
      }
      match->location = location;
      taken[location] = 1;
    }
    begin = end;
  }
  all.erase(std::remove_if(fresh, all.end(), [](const Match& match) { return match.location < 0; }), all.end());
  std::sort(all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), in_order);
  std::inplace_merge(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), in_order);
  drop_unused_ids();
}

// Drops the ids of matches that are gone once they are the greater part of the list.
void State::drop_unused_ids() {
  constexpr std::size_t kAlwaysKept = 256;
  std::size_t used = 0;
  for (const Match& match : matches()) used += match.recipe->node_count + match.recipe->value_count;
  if (held_.matches.ids.size() <= 2 * used + kAlwaysKept) return;
  std::vector<std::int32_t> ids;
  ids.reserve(used);
  for (Match& match : held_.matches.matches) {
    const auto begin = held_.matches.ids.begin() + match.begin;
    match.begin = static_cast<std::uint32_t>(ids.size());
    ids.insert(ids.end(), begin, begin + match.recipe->node_count + match.recipe->value_count);
  }
  held_.matches.ids = std::move(ids);
}

// Computes the costs of the nodes and their sum. `touched` lists the nodes whose cost may differ from that in
// `previous`, unless the whole graph is priced.
void State::sum_costs(const State* previous, std::span<const NodeId> touched, Pricing pricing) {
  const CostModel& costs = game_->costs();
  const bool whole = costs.looks_around() && pricing == Pricing::kExact;
  const auto update = [&](NodeId id) {
    if (graph().node(id).weight_only) return;
    held_.fused[id] = is_fused(graph(), id);
    if (whole || (costs.looks_around() && keeps_price(*previous, id))) return;
    held_.node_ms[id] = costs.price(graph().signature(id), held_.fused[id]).ms;
  };
  if (previous) {
    held_.fused.reserve(graph().node_count());
    held_.node_ms.reserve(graph().node_count());
    held_.fused = previous->held_.fused;
    held_.node_ms = previous->held_.node_ms;
  }
  held_.fused.resize(graph().node_count());
  held_.node_ms.resize(graph().node_count());
  cost_ms_ = 0;
  total_ = {};
  std::ranges::for_each(previous ? touched : std::span(graph().order()), update);
  if (whole) {
    const std::vector<Cost> by_node = costs.price_in(graph());
    std::ranges::transform(by_node, held_.node_ms.begin(), &Cost::ms);
    for (const NodeId id : graph().order()) total_ += by_node[id];
  }
  for (const NodeId id : graph().order()) cost_ms_ += held_.node_ms[id];    // weights cost nothing
}

// Returns whether an operator of this state stands in `previous` too and is as fused there.
bool State::keeps_price(const State& previous, NodeId id) const {
  if (static_cast<std::size_t>(id) >= previous.graph().node_count() || !previous.graph().alive(id)) return false;
  return previous.graph().origin(id) == graph().origin(id) && previous.held_.fused[id] == held_.fused[id];
}

void State::compact() {
  const Graph::Renumbering to = held_.graph.compact();
  for (Match& match : held_.matches.matches) {
    match.anchor = to.nodes[match.anchor];
    const auto ids = std::span(held_.matches.ids).subspan(match.begin, match.recipe->node_count + match.recipe->value_count);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i < match.recipe->node_count ? to.nodes[ids[i]] : to.values[ids[i]];
  }
  std::vector<char> fused(graph().node_count());
  std::vector<double> node_ms(graph().node_count());
  for (std::size_t id = 0; id < to.nodes.size(); ++id) {
    if (to.nodes[id] == kNoNode) continue;
    fused[to.nodes[id]] = held_.fused[id];
    node_ms[to.nodes[id]] = held_.node_ms[id];
  }
  held_.fused = std::move(fused);
  held_.node_ms = std::move(node_ms);
}

const Match* State::find(std::int32_t rule, std::int32_t location) const {
  Match wanted;
  wanted.rule = rule, wanted.location = location;
  const auto at = std::lower_bound(matches().begin(), matches().end(), wanted, in_order);
  return at != matches().end() && at->rule == rule && at->location == location ? &*at : nullptr;
}

const Match& State::match(std::int32_t rule, std::int32_t location) const {
  if (const Match* found = find(rule, location)) return *found;
  const std::vector<Rule>& rules = game_->rules();
  if (rule < 0 || rule >= static_cast<std::int32_t>(rules.size())) {
    throw InvalidInput("rule " + std::to_string(rule) + " is out of range: there are " + std::to_string(rules.size()) + " rules");
  }
  const auto count = std::count_if(matches().begin(), matches().end(), [&](const Match& m) { return m.rule == rule; });
  throw InvalidInput("location " + std::to_string(location) + " is not legal for rule '" + rules[rule].name + "': it has " +
                     std::to_string(count) + " matches in this state (see location_mask)");
}

std::vector<Candidate> State::candidates() const {
  std::vector<Candidate> out;
  out.reserve(matches().size());
  for (const Match& match : matches()) out.push_back({match.rule, match.location, cost_ms_ + match.delta_ms});
  return out;
}

bool State::is_priced() const {
  return std::none_of(matches().begin(), matches().end(), [](const Match& match) { return std::isnan(match.delta_ms); });
}

std::shared_ptr<const State> State::price_matches() && {
  {
    const auto desk = game_->desk();
    for (Match& match : held_.matches.matches) {
      if (std::isnan(match.delta_ms)) match.delta_ms = desk->preview.price(graph(), *match.recipe, nodes(match), held_.matches.values(match), held_.fused, held_.node_ms, game_->costs());
    }
  }
  return std::make_shared<const State>(std::move(*this));
}

std::size_t State::memory_bytes() const {
  return sizeof *this - sizeof held_.graph + graph().memory_bytes() + held_.matches.matches.capacity() * sizeof(Match) +
         held_.matches.ids.capacity() * sizeof(std::int32_t) + held_.fused.capacity() + held_.node_ms.capacity() * sizeof(double);
}

}  // namespace rlflow
