// A state of the substitution game: a graph, every rewrite that is legal in it, and a stable location for each.
#pragma once

#include <memory>

#include "rewriting/matcher.hpp"
#include "rewriting/rewrite.hpp"

namespace rlflow {

struct Candidate {
  std::int32_t rule = 0, location = 0;
  double cost_ms = 0;    // cost of the graph after the rewrite
};

// How the operators of a new state are priced. It makes a difference only if costs look around: then kPredicted takes
// over the prices of operators that stay as they are and estimates the others by their signatures, as is done for
// rewrites that are not carried out, while kExact prices the whole graph and may throw Unpriced.
enum class Pricing { kExact, kPredicted };

// What all states that descend from one start share. Several threads may use it.
class Game {
 public:
  Game(std::shared_ptr<Context> context, std::shared_ptr<const RuleBook> book, std::shared_ptr<const CostModel> costs, std::int32_t locations);

  [[nodiscard]] const std::vector<Rule>& rules() const { return book_->rules; }
  [[nodiscard]] const RuleBook& book() const { return *book_; }
  [[nodiscard]] const CostModel& costs() const { return *costs_; }
  [[nodiscard]] const std::shared_ptr<const RuleBook>& shared_book() const { return book_; }
  [[nodiscard]] const std::shared_ptr<const CostModel>& shared_costs() const { return costs_; }
  [[nodiscard]] std::int32_t locations() const { return locations_; }

  // What one thread needs while it matches and prices.
  struct Desk {
    Matcher matcher;
    Preview preview;
    std::vector<std::int32_t> distance;    // by node; kFar if it was not reached
    std::vector<NodeId> reached;
    std::vector<ValueId> changed;
  };
  // The memory of a state, which the next one can use again: taking it from the system costs as much as a step.
  struct Storage {
    Graph graph;
    MatchList matches;
    std::vector<char> fused;        // by node: whether the kernel that feeds it absorbs it
    std::vector<double> node_ms;    // by node: its share of the cost
  };
  [[nodiscard]] Storage storage();
  void give_back(Storage storage);
  // Lends a desk for as long as the pointer lives; it comes back with all that it has learned.
  struct Return {
    Game* game;
    void operator()(Desk* desk) const;
  };
  [[nodiscard]] std::unique_ptr<Desk, Return> desk();

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<const RuleBook> book_;
  std::shared_ptr<RecipeBook> recipes_;
  std::shared_ptr<const CostModel> costs_;
  std::int32_t locations_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Desk>> idle_;
  std::vector<Storage> spare_;
};

// A state. Invariant: `matches` are the legal rewrites of `graph`, ordered by rule and location. A match that a step
// did not touch keeps its location; a new one takes the site of its root (modulo the number of locations), or the next
// free number. A state does not change: a step makes a new one, so that states may be kept, shared between threads and
// returned to.
class State {
 public:
  State(const State&) = default;
  State(State&&) = default;
  State& operator=(const State&) = delete;
  State& operator=(State&&) = delete;
  ~State();

  // Returns the start of a game. A `max_locations` of 0 means as many as there are run-time operators.
  [[nodiscard]] static State start(Graph graph, std::shared_ptr<const RuleBook> rules, std::shared_ptr<const CostModel> costs, std::int32_t max_locations);
  // Returns the state after a match. Prices that the step did not touch are taken over.
  [[nodiscard]] State after(const Match& match, Pricing pricing = Pricing::kExact) const;
  // Returns this state, which may have been priced by prediction, with the exact price of its graph.
  [[nodiscard]] State exactly_priced() const;
  // Fills `change` with how a match changes the graph. That is a small part of the work of after().
  void change_by(const Match& match, Change& change) const;
  // Returns the plain hash of the graph after a match. That is a small part of the work of after(), unless the rule may
  // close a cycle.
  [[nodiscard]] Hash128 plain_hash_after(const Match& match) const;
  // Returns the start of a game with the same rules, costs and number of locations on another graph, whose operators have
  // origins of their own. Throws InvalidInput if its inputs or outputs are others.
  [[nodiscard]] State moved_to(Graph graph) const;
  // Returns the same graph and locations with every match found anew, where after() finds them incrementally.
  [[nodiscard]] State rematched() const;

  [[nodiscard]] const Graph& graph() const { return held_.graph; }
  [[nodiscard]] Game& game() const { return *game_; }
  [[nodiscard]] const std::vector<Match>& matches() const { return held_.matches.matches; }
  [[nodiscard]] std::span<const NodeId> nodes(const Match& match) const { return held_.matches.nodes(match); }
  // Returns the sum of the keys of all rewrites since the start. Equal histories mean equal graphs, because a set of
  // rewrites decides the graph whatever their order; but one graph may have several histories.
  [[nodiscard]] Hash128 history() const { return history_; }
  [[nodiscard]] std::int64_t truncated_matches() const { return truncated_; }
  [[nodiscard]] double cost_ms() const { return cost_ms_; }
  // Return, by node, whether the kernel that feeds it absorbs it, and its share of the cost.
  [[nodiscard]] const std::vector<char>& fused() const { return held_.fused; }
  [[nodiscard]] const std::vector<double>& node_ms() const { return held_.node_ms; }
  [[nodiscard]] Cost cost() const { return game_->costs().looks_around() ? total_ : total_cost(held_.graph, game_->costs()); }
  [[nodiscard]] bool is_legal(std::int32_t rule, std::int32_t location) const { return find(rule, location) != nullptr; }
  // Returns a legal rewrite. Throws InvalidInput if there is no such rewrite.
  [[nodiscard]] const Match& match(std::int32_t rule, std::int32_t location) const;
  // Returns all rewrites with their prices. The state must be priced.
  [[nodiscard]] std::vector<Candidate> candidates() const;
  [[nodiscard]] bool is_priced() const;
  // Return this state, or the one after a match, with the price of every match.
  [[nodiscard]] std::shared_ptr<const State> priced() const { return State(*this).price_matches(); }
  [[nodiscard]] std::shared_ptr<const State> priced_after(const Match& match) const { return after(match).price_matches(); }
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  State(std::shared_ptr<Game> game, Game::Storage storage) : game_(std::move(game)), held_(std::move(storage)) {}
  // Finds all legal rewrites anew. If there is a `previous` state, its matches keep their locations.
  void find_all(Game::Desk& desk, const State* previous);
  // Finds all legal rewrites, but keeps those of `previous` that are too far from the change (see `desk`) to be touched
  // by it.
  void find_changed(Game::Desk& desk, const State& previous);
  // Gives the matches that were found their locations. The first `kept` of them are in order and have theirs already.
  void settle(std::size_t kept, const State* previous);
  // Returns nullptr if there is no such rewrite.
  [[nodiscard]] const Match* find(std::int32_t rule, std::int32_t location) const;
  void drop_unused_ids();
  [[nodiscard]] std::shared_ptr<const State> price_matches() &&;
  void sum_costs(const State* previous, std::span<const NodeId> touched, Pricing pricing);
  [[nodiscard]] bool keeps_price(const State& previous, NodeId id) const;
  void compact();

  std::shared_ptr<Game> game_;
  Game::Storage held_;
  double cost_ms_ = 0;
  Cost total_;    // only if costs look around: they are computed for the whole graph anyway
  std::int64_t truncated_ = 0;
  Hash128 history_;
};

}  // namespace rlflow
