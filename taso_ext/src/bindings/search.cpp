#include "bindings/bindings.hpp"

#include <pybind11/functional.h>

#include "search/reached.hpp"
#include "search/search.hpp"

namespace rlflow {
namespace {

using ProgressFunction = std::optional<py::function>;

// Runs a search without the GIL, which is taken back to report progress and to notice Ctrl-C.
template <typename Search>
SearchResult run_search(const ProgressFunction& progress, Search search) {
  const SearchProgress report = [&](std::int64_t expanded, double best_ms) {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!progress) return true;
    const py::object answer = (*progress)(expanded, best_ms);
    return answer.is_none() || answer.cast<bool>();
  };
  const py::gil_scoped_release release;
  SearchResult result = search(report);
  work.steps.fetch_add(result.expanded, std::memory_order_relaxed);
  work.priced.fetch_add(result.generated, std::memory_order_relaxed);
  return result;
}

SearchLimits limits(std::int64_t budget, double seconds, std::int64_t memory_bytes, int threads) {
  return {.budget = budget, .seconds = seconds, .memory_bytes = static_cast<std::size_t>(std::max<std::int64_t>(0, memory_bytes)), .threads = threads};
}

// Defines a search whose own arguments stand before the limits that all searches share.
template <typename Function, typename... Arguments>
void define_search(py::module_& module, const char* name, Function function, Arguments... arguments) {
  const SearchLimits defaults;
  module.def(name, function, py::arg("state"), arguments..., py::arg("budget") = defaults.budget, py::kw_only(),
             py::arg("seconds") = defaults.seconds, py::arg("memory_bytes") = defaults.memory_bytes, py::arg("threads") = defaults.threads,
             py::arg("progress") = py::none());
}

using Numbers = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
using Signatures = py::array_t<std::uint64_t, py::array::c_style | py::array::forcecast>;
using Weights = py::array_t<float, py::array::c_style | py::array::forcecast>;

// Fills a row of `masks` for each graph.
py::array_t<bool> legal_in(ReachedGraphs& graphs, std::span<const std::int64_t> numbers) {
  const std::size_t width = graphs.action_count() + 1;
  py::array_t<bool> masks({static_cast<py::ssize_t>(numbers.size()), static_cast<py::ssize_t>(width)});
  bool* const data = masks.mutable_data();
  const py::gil_scoped_release release;
  for (std::size_t row = 0; row < numbers.size(); ++row) graphs.legal_in(numbers[row], {data + row * width, width});
  return masks;
}

std::span<const std::int64_t> flat(const Numbers& array) { return {array.data(), static_cast<std::size_t>(array.size())}; }

py::tuple step(ReachedGraphs& graphs, const Numbers& from, const Numbers& actions) {
  if (from.ndim() != 1 || actions.ndim() != 1 || from.size() != actions.size()) {
    throw InvalidInput("as many graphs as actions are needed, got " + std::to_string(from.size()) + " and " + std::to_string(actions.size()));
  }
  std::vector<std::int64_t> reached(static_cast<std::size_t>(from.size()));
  {
    const std::span<const std::int64_t> before = flat(from), taken = flat(actions);
    const py::gil_scoped_release release;
    for (std::size_t row = 0; row < reached.size(); ++row) reached[row] = graphs.after(before[row], taken[row]);
  }
  const py::array_t<bool> masks = legal_in(graphs, reached);
  const auto size = static_cast<py::ssize_t>(reached.size());
  return py::make_tuple(masks, to_array(std::move(reached), {size}));
}

}  // namespace

void bind_search(py::module_& module) {
  py::class_<ReachedGraphs>(module, "ReachedGraphs")
      .def(py::init([](const Session& session, const Numbers& actions, const Signatures& signatures, const Weights& weights, int opset, int distance,
                       std::array<double, SignatureWeights::kTotals> per_total, std::int64_t memory_bytes) {
             if (actions.ndim() != 2 || actions.shape(1) != 2) throw InvalidInput("actions must be pairs (rule, location), of shape [A, 2]");
             std::vector<Action> pairs;
             for (py::ssize_t i = 0; i < actions.shape(0); ++i) {
               pairs.push_back({static_cast<std::int32_t>(actions.at(i, 0)), static_cast<std::int32_t>(actions.at(i, 1))});
             }
             if (signatures.ndim() != 1 || weights.ndim() != 1 || signatures.size() != weights.size()) {
               throw InvalidInput("each signature needs a weight, got " + std::to_string(signatures.size()) + " and " + std::to_string(weights.size()));
             }
             if (distance < 0) throw InvalidInput("the distance of signatures must be at least 0, got " + std::to_string(distance));
             SignatureWeights weighted{opset, distance, {}, per_total};
             for (py::ssize_t i = 0; i < signatures.size(); ++i) weighted.of[signatures.at(i)] = weights.at(i);
             return std::make_unique<ReachedGraphs>(std::make_shared<const State>(session.state()), std::move(pairs), std::move(weighted),
                                                    static_cast<std::size_t>(std::max<std::int64_t>(0, memory_bytes)));
           }), py::arg("start"), py::arg("actions"), py::arg("signatures") = Signatures(0), py::arg("weights") = Weights(0), py::arg("opset") = 0,
           py::arg("distance") = 0, py::arg("per_total") = std::array<double, SignatureWeights::kTotals>{}, py::arg("memory_bytes") = 512ll << 20)
      .def("step", &step, py::arg("graphs"), py::arg("actions"))
      .def("legal", [](ReachedGraphs& graphs, const Numbers& numbers) { return legal_in(graphs, flat(numbers)); }, py::arg("graphs"))
      .def("state", [](ReachedGraphs& graphs, std::int64_t number) { return Session(State(*graphs.state(number)), std::make_shared<Waypoints>()); }, py::arg("graph"))
      .def("weights", [](ReachedGraphs& graphs, const Numbers& numbers) {
        std::vector<double> sums;
        {
          const std::span<const std::int64_t> wanted = flat(numbers);
          const py::gil_scoped_release release;
          for (const std::int64_t number : wanted) sums.push_back(graphs.weight_of(number));
        }
        const auto size = static_cast<py::ssize_t>(sums.size());
        return to_array(std::move(sums), {size});
      }, py::arg("graphs"));
  py::class_<SearchResult>(module, "SearchResult")
      .def_readonly("actions", &SearchResult::actions).def_readonly("cost_ms", &SearchResult::cost_ms)
      .def_readonly("stop_reason", &SearchResult::stop_reason).def_readonly("expanded", &SearchResult::expanded)
      .def_readonly("generated", &SearchResult::generated).def_readonly("duplicates", &SearchResult::duplicates)
      .def_readonly("unpriced", &SearchResult::unpriced)
      .def_readonly("evicted", &SearchResult::evicted).def_readonly("rebuilt", &SearchResult::rebuilt)
      .def_readonly("memory_bytes", &SearchResult::memory_bytes).def_readonly("seconds", &SearchResult::seconds)
      .def_readonly("rules", &SearchResult::rules);
  define_search(module, "search_taso", [](const Session& session, double alpha, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_taso(session.state(), alpha, limits(budget, seconds, memory, threads), report); });
  }, py::arg("alpha") = 1.05);
  define_search(module, "search_greedy", [](const Session& session, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_greedy(session.state(), limits(budget, seconds, memory, threads), report); });
  });
  define_search(module, "search_beam", [](const Session& session, std::int64_t width, bool everywhere, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_beam(session.state(), width, everywhere, limits(budget, seconds, memory, threads), report); });
  }, py::arg("width") = 16, py::arg("everywhere") = false);
  define_search(module, "search_restarts", [](const Session& session, std::int64_t walk, std::uint64_t seed, std::int64_t budget, double seconds, std::int64_t memory, int threads, const ProgressFunction& progress) {
    return run_search(progress, [&](const SearchProgress& report) { return search_restarts(session.state(), walk, seed, limits(budget, seconds, memory, threads), report); });
  }, py::arg("walk") = 10, py::arg("seed") = 0);
}

}  // namespace rlflow
