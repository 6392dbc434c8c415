// The functions that bind each folder's part of the Python module `taso_ext._core`, and the types that several parts
// take.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "costs/cost.hpp"
#include "rewriting/state.hpp"
#include "rewriting/waypoints.hpp"

namespace py = pybind11;

namespace rlflow {

void bind_graph(py::module_& module);
void bind_costs(py::module_& module);
void bind_fusion(py::module_& module);
void bind_rules(py::module_& module);
void bind_state(py::module_& module);
void bind_features(py::module_& module);    // after bind_state: adds methods to State
void bind_search(py::module_& module);
void bind_verification(py::module_& module);
void bind_placement(py::module_& module);

// What Python has asked the engine to do, in all threads, since it was last taken. A search counts by its own totals, and
// not what it does inside.
struct Work {
  std::atomic<std::int64_t> steps{0}, priced{0};
};
inline Work work;

struct NamedCosts {
  std::string name;
  std::shared_ptr<const CostModel> costs;
};

struct RuleSet {
  std::shared_ptr<const RuleBook> book;
};

// A state and the states before it, as far back as `undo` can go, and the waypoints of their start graph.
class Session {
 public:
  Session(State start, std::shared_ptr<Waypoints> waypoints) : state_(std::make_shared<const State>(std::move(start))), waypoints_(std::move(waypoints)) {}
  [[nodiscard]] const State& state() const { return *state_; }
  [[nodiscard]] const std::shared_ptr<Waypoints>& waypoints() const { return waypoints_; }
  // Returns the number that stands for a waypoint where actions name a rule. The number before it is NO-OP's in
  // environments.
  [[nodiscard]] std::int32_t waypoint_rule() const { return static_cast<std::int32_t>(state_->game().rules().size()) + 1; }
  [[nodiscard]] bool is_legal(std::int32_t rule, std::int32_t location) const;
  // Carries out a rewrite, or goes to a waypoint. Throws InvalidInput if that is not legal.
  void step(std::int32_t rule, std::int32_t location);
  // Carries a rule out everywhere, as one step; returns the locations of the single rewrites.
  std::vector<std::int32_t> step_everywhere(std::int32_t rule);
  // Returns the state with the prices of all rewrites. It keeps them, and later states inherit what a step leaves alone.
  const State& priced();
  // Takes the last step back. Throws InvalidInput if there is none.
  void undo();

 private:
  void move_on(std::shared_ptr<const State> next);

  std::shared_ptr<const State> state_;
  std::shared_ptr<Waypoints> waypoints_;
  std::deque<std::shared_ptr<const State>> past_;
};

// Returns 32 hexadecimal digits.
[[nodiscard]] std::string hex(const Hash128& hash);

// Hands the data over to a new array without a copy.
template <typename T>
py::array_t<T> to_array(std::vector<T> data, std::vector<py::ssize_t> shape) {
  auto* owned = new std::vector<T>(std::move(data));
  const py::capsule owner(owned, [](void* pointer) { delete static_cast<std::vector<T>*>(pointer); });
  return py::array_t<T>(std::move(shape), owned->data(), owner);
}

}  // namespace rlflow
