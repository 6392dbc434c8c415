#include <algorithm>
#include <map>

#include "search/explored.hpp"
#include "search/worker_pool.hpp"

namespace rlflow {
namespace {

// The search itself is sequential. With several threads, the rewrites whose turn is next are carried out beforehand.
// The outcome of a rewrite does not depend on when it is carried out, so the result is that of one thread.
class TasoSearch {
 public:
  TasoSearch(const State& start, double alpha, const SearchLimits& limits)
      : alpha_(alpha), root_(start.priced()), explored_(root_, limits.memory_bytes),
        histories_(limits.memory_bytes / 4), frontier_(limits.memory_bytes * 3 / 16, [this](const QueuedRewrite& rewrite) { done_with(rewrite); }), pool_(search_threads(start, limits)) {
    result_.cost_ms = start.cost_ms();
  }

  SearchResult run(const SearchLimits& limits, const SearchProgress& progress) {
    SearchWatch watch(limits, progress, result_);
    expand(0, *root_);
    while (true) {
      if (frontier_.empty() && next_.empty()) {
        result_.stop_reason = "exhausted";
        break;
      }
      const std::size_t queue_bytes = frontier_.memory_bytes() + histories_.memory_bytes() + queued_.capacity() * sizeof queued_[0];
      if (!watch.go_on(explored_.share_memory(queue_bytes))) break;
      take_next();
    }
    watch.finish();
    for (auto& [rewrite, job] : next_) job->cancel();
    result_.actions = explored_.tree().path(best_);
    result_.evicted = frontier_.evicted();
    result_.rebuilt = explored_.tree().rebuilt();
    return std::move(result_);
  }

 private:
  void expand(std::int32_t index, const State& state) {
    if (is_cheaper(state.cost_ms(), result_.cost_ms)) result_.cost_ms = state.cost_ms(), best_ = index;
    queued_.push_back(0);
    const std::vector<Match>& matches = state.matches();
    const auto history = [&](std::size_t i) {
      Hash128 sum = state.history();
      return sum += matches[i].key;
    };
    for (std::size_t i = 0; i < matches.size(); ++i) histories_.prefetch(history(i));
    for (std::size_t i = 0; i < matches.size(); ++i) {
      const QueuedRewrite rewrite{state.cost_ms() + matches[i].delta_ms, index, static_cast<std::uint32_t>(i)};
      if (rewrite.cost_ms >= alpha_ * result_.cost_ms) continue;
      if (!histories_.insert(history(i))) {    // queued already: the same rewrites in another order
        ++result_.duplicates;
        continue;
      }
      ++queued_[index];
      push(rewrite);
    }
    result_.generated += static_cast<std::int64_t>(matches.size());
    ++result_.expanded;
    if (queued_[index] == 0) explored_.tree().release(index);
  }

  // Queues a rewrite. If it comes before a rewrite that is carried out beforehand, it takes the place of the last of
  // these.
  void push(const QueuedRewrite& rewrite) {
    frontier_.push(rewrite);
    if (next_.empty() || !(rewrite < next_.rbegin()->first)) return;
    look_ahead();
    if (next_.size() < pool_.width()) return;
    const auto last = std::prev(next_.end());
    last->second->cancel();
    frontier_.give_back(last->first);
    next_.erase(last);
  }

  void look_ahead() {
    const QueuedRewrite rewrite = frontier_.lend();
    auto job = std::make_shared<Job<Outcome>>([this, rewrite] { return explored_.carry_out(rewrite); });
    next_.emplace(rewrite, job);
    pool_.submit(std::move(job));
  }

  void take_next() {
    if (pool_.width() == 1) {
      const QueuedRewrite rewrite = frontier_.pop();
      if (rewrite.cost_ms >= alpha_ * result_.cost_ms) return frontier_.clear();    // all behind it is as costly
      return take(rewrite, explored_.carry_out(rewrite));
    }
    while (!frontier_.empty() && next_.size() < pool_.width()) look_ahead();
    const auto first = next_.begin();
    const QueuedRewrite rewrite = first->first;
    const std::shared_ptr<Job<Outcome>> job = std::move(first->second);
    next_.erase(first);
    frontier_.forget_one();
    if (rewrite.cost_ms < alpha_ * result_.cost_ms) return take(rewrite, job->get());
    job->cancel();
    for (auto& [later, other] : next_) other->cancel();
    next_.clear();
    frontier_.clear();
  }

  void take(const QueuedRewrite& rewrite, const Outcome& outcome) {
    if (explored_.insert(outcome)) {
      result_.rules.insert(outcome.rule);
      expand(explored_.tree().add(rewrite.parent, outcome.rule, outcome.location, outcome.state), *outcome.state);
    } else {
      ++(outcome.unpriced ? result_.unpriced : result_.duplicates);
    }
    done_with(rewrite);
  }

  void done_with(const QueuedRewrite& rewrite) {
    if (--queued_[rewrite.parent] == 0) explored_.tree().release(rewrite.parent);
  }

  const double alpha_;
  SearchResult result_;
  std::int32_t best_ = 0;
  std::shared_ptr<const State> root_;
  Explored explored_;
  HashSet histories_;    // of queued graphs: finds some graphs seen before without making them
  std::vector<std::int32_t> queued_;    // by visited graph: how many of its rewrites are queued
  Frontier frontier_;
  std::map<QueuedRewrite, std::shared_ptr<Job<Outcome>>> next_;
  WorkerPool pool_;    // last, because its threads use the members above
};

}  // namespace

SearchResult search_taso(const State& start, double alpha, const SearchLimits& limits, const SearchProgress& progress) {
  if (!(alpha >= 1)) throw InvalidInput("alpha must be at least 1 (1 follows improvements only), got " + std::to_string(alpha));
  check_limits(limits);
  return TasoSearch(start, alpha, limits).run(limits, progress);
}

}  // namespace rlflow
