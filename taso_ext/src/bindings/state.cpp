#include "bindings/bindings.hpp"

#include "rewriting/everywhere.hpp"

namespace rlflow {
namespace {

constexpr std::int64_t kMostLocations = 20'000'000;    // as many as a graph can have operators
constexpr std::size_t kMostUndone = 256;

}  // namespace

bool Session::is_legal(std::int32_t rule, std::int32_t location) const {
  return rule == waypoint_rule() ? location >= 0 && location < waypoints_->size() : state_->is_legal(rule, location);
}

void Session::step(std::int32_t rule, std::int32_t location) {
  const py::gil_scoped_release release;
  if (rule != waypoint_rule()) {
    move_on(std::make_shared<const State>(state_->after(state_->match(rule, location))));
    return;
  }
  std::optional<Graph> waypoint = waypoints_->find(location);
  if (!waypoint) {
    throw InvalidInput("there is no waypoint " + std::to_string(location) + ": this start graph has " + std::to_string(waypoints_->size()));
  }
  move_on(std::make_shared<const State>(state_->moved_to(std::move(*waypoint))));
}

std::vector<std::int32_t> Session::step_everywhere(std::int32_t rule) {
  const py::gil_scoped_release release;
  EverywhereStep step = rlflow::step_everywhere(*state_, rule);
  move_on(std::move(step.state));
  return std::move(step.locations);
}

void Session::move_on(std::shared_ptr<const State> next) {
  past_.push_back(std::exchange(state_, std::move(next)));
  if (past_.size() > kMostUndone) past_.pop_front();
  work.steps.fetch_add(1, std::memory_order_relaxed);
}

const State& Session::priced() {
  if (!state_->is_priced()) state_ = state_->priced();
  return *state_;
}

void Session::undo() {
  if (past_.empty()) {
    throw InvalidInput("there is no step to undo: this state is where its walk started, or " + std::to_string(kMostUndone) +
                       " steps, the most that are kept, were undone already");
  }
  state_ = std::move(past_.back());
  past_.pop_back();
}

namespace {

py::array_t<bool> rule_mask(const State& state) {
  py::array_t<bool> mask(static_cast<py::ssize_t>(state.game().rules().size()));
  bool* data = mask.mutable_data();
  std::fill(data, data + mask.size(), false);
  for (const Match& match : state.matches()) data[match.rule] = true;
  return mask;
}

py::array_t<bool> location_mask(const State& state) {
  const auto locations = static_cast<py::ssize_t>(state.game().locations());
  py::array_t<bool> mask({static_cast<py::ssize_t>(state.game().rules().size()), locations});
  bool* data = mask.mutable_data();
  std::fill(data, data + mask.size(), false);
  for (const Match& match : state.matches()) data[match.rule * locations + match.location] = true;
  return mask;
}

py::array_t<std::int64_t> location_counts(const State& state) {
  std::vector<std::int64_t> counts(state.game().rules().size());
  for (const Match& match : state.matches()) ++counts[match.rule];
  const auto size = static_cast<py::ssize_t>(counts.size());
  return to_array(std::move(counts), {size});
}

py::array_t<std::int32_t> legal_actions(const State& state) {
  std::vector<std::int32_t> pairs;
  pairs.reserve(2 * state.matches().size());
  for (const Match& match : state.matches()) pairs.insert(pairs.end(), {match.rule, match.location});
  return to_array(std::move(pairs), {static_cast<py::ssize_t>(state.matches().size()), 2});
}

py::array_t<bool> everywhere_mask(const State& state) {
  py::array_t<bool> mask(static_cast<py::ssize_t>(state.game().rules().size()));
  bool* data = mask.mutable_data();
  std::fill(data, data + mask.size(), false);
  for (const std::int32_t rule : rules_everywhere(state)) data[rule] = true;
  return mask;
}

py::tuple candidates(Session& session, bool everywhere) {
  std::vector<Candidate> list;
  {
    const py::gil_scoped_release release;
    if (everywhere) list = everywhere_candidates(session.state());
    else list = session.priced().candidates();
  }
  work.priced.fetch_add(static_cast<std::int64_t>(list.size()), std::memory_order_relaxed);
  std::vector<std::int32_t> rules, locations;
  std::vector<double> costs;
  for (const Candidate& candidate : list) {
    rules.push_back(candidate.rule);
    locations.push_back(candidate.location);
    costs.push_back(candidate.cost_ms);
  }
  const auto size = static_cast<py::ssize_t>(list.size());
  return py::make_tuple(to_array(std::move(rules), {size}), to_array(std::move(locations), {size}), to_array(std::move(costs), {size}));
}

}  // namespace

void bind_state(py::module_& module) {
  module.def("take_work", [] { return py::make_tuple(work.steps.exchange(0), work.priced.exchange(0)); });
  py::class_<Waypoints, std::shared_ptr<Waypoints>>(module, "Waypoints")
      .def(py::init<>())
      .def("add", [](Waypoints& waypoints, const Graph& graph) { return waypoints.add(graph); }, py::arg("graph"))
      .def("__len__", &Waypoints::size)
      .def("__getitem__", [](const Waypoints& waypoints, std::int32_t number) {
        std::optional<Graph> found = waypoints.find(number);
        if (!found) throw py::index_error("there is no waypoint " + std::to_string(number) + " among " + std::to_string(waypoints.size()));
        return std::move(*found);
      }, py::arg("number"));
  py::class_<Session>(module, "State")
      .def(py::init([](const Graph& graph, const RuleSet& rules, const NamedCosts& costs, std::int64_t max_locations, std::shared_ptr<Waypoints> waypoints) {
             if (max_locations < 0 || max_locations > kMostLocations) {
               throw InvalidInput("max_locations must lie in [1, " + std::to_string(kMostLocations) + "], or be 0 for one for each operator, got " +
                                  std::to_string(max_locations));
             }
             const py::gil_scoped_release release;
             if (!waypoints) waypoints = std::make_shared<Waypoints>();
             return Session(State::start(graph, rules.book, costs.costs, static_cast<std::int32_t>(max_locations)), std::move(waypoints));
           }), py::arg("graph"), py::arg("rules"), py::arg("cost_model"), py::arg("max_locations") = 0, py::arg("waypoints") = nullptr)
      .def("copy", [](const Session& session) { return Session(session); })
      .def("is_legal", &Session::is_legal, py::arg("rule"), py::arg("location"))
      .def_property_readonly("waypoints", &Session::waypoints)
      .def_property_readonly("waypoint_rule", &Session::waypoint_rule)
      .def("step", &Session::step, py::arg("rule"), py::arg("location"))
      .def("step_everywhere", [](Session& session, std::int32_t rule) {
        std::vector<std::int32_t> locations = session.step_everywhere(rule);
        const auto size = static_cast<py::ssize_t>(locations.size());
        return to_array(std::move(locations), {size});
      }, py::arg("rule"))
      .def("undo", &Session::undo)
      .def("rematched", [](const Session& session) { return Session(session.state().rematched(), session.waypoints()); })
      .def_property_readonly("graph", [](const Session& session) { return session.state().graph(); })
      .def_property_readonly("cost", [](const Session& session) {
        const py::gil_scoped_release release;
        return session.state().cost();
      })
      .def_property_readonly("hash", [](const Session& session) { return hex(session.state().graph().hash()); })
      .def_property_readonly("num_locations", [](const Session& session) { return session.state().game().locations(); })
      .def_property_readonly("truncated_matches", [](const Session& session) { return session.state().truncated_matches(); })
      .def("rule_mask", [](const Session& session) { return rule_mask(session.state()); })
      .def("location_mask", [](const Session& session) { return location_mask(session.state()); })
      .def("location_counts", [](const Session& session) { return location_counts(session.state()); })
      .def("legal_actions", [](const Session& session) { return legal_actions(session.state()); })
      .def("everywhere_mask", [](const Session& session) { return everywhere_mask(session.state()); })
      .def("candidates", [](Session& session) { return candidates(session, false); })
      .def("everywhere_candidates", [](Session& session) { return candidates(session, true); });
}

}  // namespace rlflow
