#include "generator/enumeration.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <exception>
#include <map>
#include <span>
#include <thread>

namespace rlflow::generator {
namespace {

using Pair = std::pair<TermId, TermId>;

constexpr std::size_t kPairsOfTask = 100'000;    // few enough that threads share the work and progress is seen

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

// One operator at operands of one type each: all pairs of two lists, or the listed pairs.
struct Enumeration::Task {
  std::uint32_t op = 0;
  TypeId a_type = 0, b_type = kNoTerm;
  std::span<const TermId> as, bs;
  std::span<const Pair> pairs;

  [[nodiscard]] std::size_t weight() const { return pairs.size() + as.size() * std::max<std::size_t>(1, bs.size()); }
};

// The operands that the tasks of a level refer to.
struct Enumeration::Operands {
  std::array<std::map<TypeId, std::vector<TermId>>, kMostLevels> lists;          // terms by level and type
  std::map<std::pair<TypeId, TypeId>, std::vector<Pair>> pairs, ordered_pairs;    // sharing operators; ordered: a <= b
};

// Carries out tasks and collects what they computed.
class Enumeration::Worker {
 public:
  explicit Worker(const TermStore& store) : store_(store) {}

  void run(const Task& task) {
    const Operator& op = store_.grid().operators[task.op];
    const bool binary = task.b_type != kNoTerm;
    const auto plan = make_plan(op, key_of(op, store_.grid().seed), store_.shapes(task.a_type), binary ? &store_.shapes(task.b_type) : nullptr);
    if (!plan) return;
    plan_ = &*plan;
    op_ = task.op;
    a_elements_ = store_.elements(task.a_type);
    b_elements_ = binary ? store_.elements(task.b_type) : 0;
    out_.resize(kPrimes * plan->elements);
    inverse_.of = nullptr;
    for (const auto& [a, b] : task.pairs) take(a, b);
    if (!binary) {
      for (const TermId a : task.as) take(a, kNoTerm);
    }
    for (const TermId b : task.bs) {
      const Nodes& nodes = store_.term(b).nodes;
      for (const TermId a : task.as) {
        if (op.symmetric && a > b) continue;
        if (nodes.count == 0 || disjoint(store_.term(a).nodes, nodes)) take(a, b);
      }
    }
  }

  std::vector<Record> records;
  std::uint64_t enumerated = 0, evaluated = 0;
  double cpu_seconds = 0;

 private:
  static bool disjoint(const Nodes& a, const Nodes& b) { return union_size(a, b) == a.count + b.count; }

  void take(TermId a, TermId b) {
    const Term &first = store_.term(a), &second = b == kNoTerm ? first : store_.term(b);
    if (first.constant && second.constant) return;    // the result is one more constant
    if ((first.constant && !admits(first)) || (second.constant && !admits(second))) return;
    ++enumerated;
    if (!evaluate(*plan_, first.values, a_elements_, second.values, b_elements_, out_.data(), inverse_)) return;
    ++evaluated;
    if (is_constant()) return;
    records.push_back({fingerprint(*plan_, out_.data()), Code::of(op_, a, b)});
  }

  // Returns whether the operator takes a constant. Matrices and kernels are for products, and for operators that make
  // larger ones of them; elementwise they mean nothing.
  bool admits(const Term& constant) const {
    const Leaf::Content content = store_.grid().leaves[constant.code.a()].content;
    if (content == Leaf::Content::kZero || content == Leaf::Content::kOne) return true;
    return plan_->kind == Kind::kMatMul || plan_->kind == Kind::kConv || plan_->kind == Kind::kConcat || plan_->kind == Kind::kPad;
  }

  // Returns whether the result is zero or one whatever the variables are, as x - x and 0 * x are. Such expressions
  // differ from constants for floats that are not finite, so they make no rules, nor does anything built from them.
  bool is_constant() const {
    return out_[0] <= 1 && std::all_of(out_.begin(), out_.end(), [&](Element each) { return each == out_[0]; });
  }

  const TermStore& store_;
  const Plan* plan_ = nullptr;
  std::uint32_t op_ = 0;
  std::size_t a_elements_ = 0, b_elements_ = 0;
  std::vector<Element> out_;
  Inverse inverse_;
};

// Lists the pairs of terms that share operators and have `level` - 1 operators together.
void Enumeration::pair_shared(int level, bool linear, Operands& operands) const {
  std::unordered_map<std::uint32_t, std::vector<TermId>> by_node;    // smaller terms that hold an operator
  std::map<std::array<std::uint32_t, kMostLevels>, std::vector<TermId>> by_nodes;    // largest terms of the same operators
  for (TermId id = 0; id < store_.size(); ++id) {
    const Term& term = store_.term(id);
    if (term.level == 0 || (linear && !term.linear)) continue;
    if (term.level == level - 1) by_nodes[term.nodes.ids].push_back(id);
    else for (std::uint8_t i = 0; i < term.nodes.count; ++i) by_node[term.nodes.ids[i]].push_back(id);
  }
  const auto add = [&](TermId a, TermId b) {
    const std::pair types{store_.term(a).type, store_.term(b).type};
    operands.pairs[types].emplace_back(a, b);
    if (a <= b) operands.ordered_pairs[types].emplace_back(a, b);
  };
  for (TermId a = 0; a < store_.size(); ++a) {
    const Term& term = store_.term(a);
    if (term.level == 0 || (linear && !term.linear)) continue;
    if (term.level == level - 1) {
      for (const TermId b : by_nodes[term.nodes.ids]) add(a, b);
    }
    for (std::uint8_t i = 0; i < term.nodes.count; ++i) {
      for (const TermId b : by_node[term.nodes.ids[i]]) {
        const Nodes& nodes = store_.term(b).nodes;
        if (union_size(term.nodes, nodes) != level - 1) continue;
        const bool seen = std::any_of(term.nodes.ids.begin(), term.nodes.ids.begin() + i, [&](std::uint32_t id) { return nodes.contains(id); });
        if (seen) continue;
        add(a, b);
        if (term.level == level - 1) add(b, a);    // the smaller terms do not find the largest by themselves
      }
    }
  }
}

std::vector<Enumeration::Task> Enumeration::make_tasks(int level, bool linear, Operands& operands) const {
  for (TermId id = 0; id < store_.size(); ++id) {
    const Term& term = store_.term(id);
    if (term.level < level && (!linear || term.linear)) operands.lists[term.level][term.type].push_back(id);
  }
  if (level > 1) pair_shared(level, linear, operands);
  std::vector<Task> tasks;
  const auto add = [&](std::uint32_t op, TypeId a, TypeId b, std::span<const TermId> as, std::span<const TermId> bs) {
    const std::size_t step = std::max<std::size_t>(1, kPairsOfTask / std::max<std::size_t>(1, bs.size()));
    for (std::size_t begin = 0; begin < as.size(); begin += step) {
      tasks.push_back({.op = op, .a_type = a, .b_type = b, .as = as.subspan(begin, std::min(step, as.size() - begin)), .bs = bs, .pairs = {}});
    }
  };
  for (std::uint32_t op = 0; op < grid_.operators.size(); ++op) {
    const Operator& each = grid_.operators[op];
    if (linear && !each.linear) continue;
    if (each.operands == 1) {
      for (const auto& [type, as] : operands.lists[level - 1]) add(op, type, kNoTerm, as, {});
      continue;
    }
    for (int a_level = 0; a_level < level; ++a_level) {
      for (const auto& [a, as] : operands.lists[a_level]) {
        for (const auto& [b, bs] : operands.lists[level - 1 - a_level]) add(op, a, b, as, bs);
      }
    }
    for (const auto& [types, all] : each.symmetric ? operands.ordered_pairs : operands.pairs) {
      const std::span<const Pair> pairs = all;
      for (std::size_t begin = 0; begin < pairs.size(); begin += kPairsOfTask) {
        tasks.push_back({.op = op, .a_type = types.first, .b_type = types.second, .as = {}, .bs = {}, .pairs = pairs.subspan(begin, std::min(kPairsOfTask, pairs.size() - begin))});
      }
    }
  }
  return tasks;
}

std::vector<Enumeration::Record> Enumeration::evaluate_all(const std::vector<Task>& tasks, int level, const Progress& progress, LevelCounts& counts) {
  double total = 0;
  for (const Task& task : tasks) total += static_cast<double>(task.weight());
  std::vector<Worker> workers(static_cast<std::size_t>(std::max(1, grid_.threads)), Worker(store_));
  std::atomic<std::size_t> next{0}, running{workers.size()};
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> stop{false};
  const auto work = [&](Worker& worker) {
    const double begin = thread_seconds();
    for (std::size_t at = next++; at < tasks.size() && !stop; at = next++) {
      worker.run(tasks[at]);
      done += tasks[at].weight();
    }
    worker.cpu_seconds = thread_seconds() - begin;
    --running;
  };
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back(work, std::ref(worker));
  std::exception_ptr stopped;
  while (running > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    try {
      if (!stop) progress(level, total == 0 ? 1 : static_cast<double>(done) / total);
    } catch (...) {
      stopped = std::current_exception();
      stop = true;
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (stopped) std::rethrow_exception(stopped);
  std::vector<Record> records;
  for (Worker& worker : workers) {
    counts.enumerated += worker.enumerated;
    counts.evaluated += worker.evaluated;
    counts.constant += worker.evaluated - worker.records.size();
    counts.cpu_seconds += worker.cpu_seconds;
    if (records.empty()) records = std::move(worker.records);
    else records.insert(records.end(), worker.records.begin(), worker.records.end()), std::vector<Record>().swap(worker.records);
  }
  return records;
}

// Sorts the results into classes. The first expression of a new class stands for it, or the first linear one while
// larger linear expressions follow.
void Enumeration::file(std::vector<Record>& records, int level, LevelCounts& counts, const std::function<void(const Equation&)>& found) {
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    return a.fingerprint != b.fingerprint ? a.fingerprint < b.fingerprint : a.code < b.code;
  });
  const bool extended = level < grid_.most_operators, extended_linear = level < grid_.most_linear_operators;
  std::vector<std::pair<Code, std::uint64_t>> fresh;
  for (std::size_t begin = 0, end = 0; begin < records.size(); begin = end) {
    const std::uint64_t fingerprint = records[begin].fingerprint;
    while (end < records.size() && records[end].fingerprint == fingerprint) ++end;
    const auto known = by_fingerprint_.find(fingerprint);
    if (known != by_fingerprint_.end()) {
      for (std::size_t i = begin; i < end; ++i) found({records[i].code, store_.term(known->second).code, fingerprint});
      counts.pairs += end - begin;
      continue;
    }
    std::size_t best = begin;
    for (std::size_t i = begin; i < end && extended_linear; ++i) {
      if (store_.linear(records[i].code)) {
        best = i;
        break;
      }
    }
    const Code representative = records[best].code;
    for (std::size_t i = begin; i < end; ++i) {
      if (i != best) found({records[i].code, representative, fingerprint});
    }
    ++counts.classes;
    counts.pairs += end - begin - 1;
    if (extended || (extended_linear && store_.linear(representative))) fresh.emplace_back(representative, fingerprint);
  }
  std::sort(fresh.begin(), fresh.end());
  for (const auto& [code, fingerprint] : fresh) by_fingerprint_[fingerprint] = store_.add(code);
  if (!extended && !extended_linear) return;
  for (const Record& record : records) {
    const auto at = by_fingerprint_.find(record.fingerprint);
    if (at != by_fingerprint_.end()) store_.remember(record.code, at->second);
  }
}

LevelCounts Enumeration::run_level(int level, const Progress& progress, const std::function<void(const Equation&)>& found) {
  if (level == 1) {
    for (TermId id = 0; id < store_.size(); ++id) {
      const Term& leaf = store_.term(id);
      Plan plan;
      plan.elements = static_cast<std::uint32_t>(store_.elements(leaf.type));
      plan.shape_key = key_of(store_.shapes(leaf.type));
      by_fingerprint_.emplace(fingerprint(plan, leaf.values), id);
    }
  }
  LevelCounts counts{.operators = level, .linear = level > grid_.most_operators};
  std::vector<Record> records = [&] {
    Operands operands;
    const std::vector<Task> tasks = make_tasks(level, counts.linear, operands);
    return evaluate_all(tasks, level, progress, counts);
  }();
  file(records, level, counts, found);
  return counts;
}

}  // namespace rlflow::generator
