// All expressions of a grid, level by level, and which of them are equal.
#pragma once

#include <functional>

#include "generator/terms.hpp"

namespace rlflow::generator {

// Two expressions that compute the same.
struct Equation {
  Code left, right;              // the right one is smaller or of equal size
  std::uint64_t fingerprint = 0;
};

struct LevelCounts {
  int operators = 0;
  bool linear = false;           // whether it holds the linear subset alone
  std::uint64_t enumerated = 0;  // expressions whose shapes fit
  std::uint64_t evaluated = 0;   // those that have a value, because they do not divide by zero
  std::uint64_t constant = 0;    // those that are zero or one whatever the variables are
  std::uint64_t classes = 0;     // classes that hold no smaller expression
  std::uint64_t pairs = 0;       // expressions that equal another one
  double cpu_seconds = 0;        // of all threads, for evaluation and fingerprints
};

// Called with the share of a level that is done; an exception that it throws stops the enumeration.
using Progress = std::function<void(int level, double share)>;

class Enumeration {
 public:
  explicit Enumeration(const Grid& grid) : grid_(grid), store_(grid_) {}

  // Evaluates all expressions of `level` operators; levels ascend from 1. Calls `found` for every pair of equal ones.
  LevelCounts run_level(int level, const Progress& progress, const std::function<void(const Equation&)>& found);

  [[nodiscard]] TermStore& store() { return store_; }
  [[nodiscard]] int levels() const { return std::max(grid_.most_operators, grid_.most_linear_operators); }

 private:
  struct Record {
    std::uint64_t fingerprint;
    Code code;
  };
  struct Task;
  struct Operands;
  class Worker;

  std::vector<Task> make_tasks(int level, bool linear, Operands& operands) const;
  void pair_shared(int level, bool linear, Operands& operands) const;
  std::vector<Record> evaluate_all(const std::vector<Task>& tasks, int level, const Progress& progress, LevelCounts& counts);
  void file(std::vector<Record>& records, int level, LevelCounts& counts, const std::function<void(const Equation&)>& found);

  const Grid grid_;
  TermStore store_;
  std::unordered_map<std::uint64_t, TermId> by_fingerprint_;
};

}  // namespace rlflow::generator
