#include "bindings/bindings.hpp"

#include "placement/simulator.hpp"

namespace rlflow {
namespace {

using namespace placement;

template <typename T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <typename T>
std::vector<T> to_vector(const Array<T>& array) {
  return {array.data(), array.data() + array.size()};
}

template <typename T>
std::span<const T> to_span(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

Machine machine_from(const Array<double>& memory_bytes, const Array<double>& channel_bytes_per_ms, const Array<double>& latency_ms,
                     const std::vector<std::vector<ChannelId>>& routes) {
  if (static_cast<std::size_t>(latency_ms.size()) != routes.size()) throw InvalidInput("expected a latency for each route");
  Machine machine{to_vector(memory_bytes), to_vector(channel_bytes_per_ms), {}};
  for (std::size_t index = 0; index < routes.size(); ++index) {
    machine.routes.push_back({routes[index], latency_ms.data()[index]});
  }
  return machine;
}

Workload workload_from(const Array<double>& task_ms, const Array<double>& workspace_bytes, const Array<std::uint8_t>& storage,
                       const Array<std::int32_t>& owner, const Array<double>& bytes, const Array<double>& state_bytes,
                       const Array<bool>& kept, const Array<std::int32_t>& reader_begin, const Array<std::int32_t>& readers) {
  if (task_ms.ndim() != 2) throw InvalidInput("expected task_ms as [tasks, devices]");
  const py::ssize_t tensors = storage.size();
  if (owner.size() != tensors || bytes.size() != tensors || state_bytes.size() != tensors || kept.size() != tensors) {
    throw InvalidInput("expected as many owners, sizes and flags as tensors");
  }
  Workload workload{static_cast<std::int32_t>(task_ms.shape(1)), to_vector(task_ms), to_vector(workspace_bytes), {},
                    to_vector(reader_begin), to_vector(readers)};
  for (py::ssize_t id = 0; id < tensors; ++id) {
    workload.tensors.push_back({static_cast<Storage>(storage.data()[id]), owner.data()[id], bytes.data()[id], state_bytes.data()[id], kept.data()[id]});
  }
  return workload;
}

// Owns what a simulator refers to.
class PlacementSimulator {
 public:
  PlacementSimulator(Machine machine, Workload workload)
      : machine_(std::move(machine)), workload_(std::move(workload)), simulator_(machine_, workload_) {}
  PlacementSimulator(const PlacementSimulator&) = delete;
  PlacementSimulator& operator=(const PlacementSimulator&) = delete;
  [[nodiscard]] const Simulator& get() const { return simulator_; }
  [[nodiscard]] py::ssize_t tasks() const { return workload_.task_count(); }
  [[nodiscard]] py::ssize_t devices() const { return machine_.device_count(); }

 private:
  Machine machine_;
  Workload workload_;
  Simulator simulator_;
};

py::tuple simulate(const PlacementSimulator& simulator, const Array<std::int32_t>& placement, const Array<double>& priorities) {
  Outcome outcome;
  {
    const py::gil_scoped_release release;
    outcome = simulator.get().run(to_span(placement), to_span(priorities));
  }
  const py::ssize_t devices = simulator.devices();
  return py::make_tuple(outcome.ms, to_array(std::move(outcome.busy_ms), {devices}), to_array(std::move(outcome.peak_bytes), {devices}),
                        outcome.copied_bytes, outcome.copies);
}

py::tuple trace_of(const PlacementSimulator& simulator, const Array<std::int32_t>& placement, const Array<double>& priorities) {
  Trace trace;
  (void)simulator.get().run(to_span(placement), to_span(priorities), &trace);
  const auto copies = static_cast<py::ssize_t>(trace.copies.size());
  std::vector<std::int32_t> ends;
  std::vector<double> times;
  for (const Copy& copy : trace.copies) {
    ends.insert(ends.end(), {copy.tensor, copy.from, copy.to});
    times.insert(times.end(), {copy.begin_ms, copy.end_ms});
  }
  const auto tasks = static_cast<py::ssize_t>(trace.begin_ms.size());
  return py::make_tuple(to_array(std::move(trace.begin_ms), {tasks}), to_array(std::move(trace.end_ms), {tasks}),
                        to_array(std::move(ends), {copies, 3}), to_array(std::move(times), {copies, 2}));
}

// Returns (ms [N], peak bytes [N, devices]) of N placements.
py::tuple simulate_all(const PlacementSimulator& simulator, const Array<std::int32_t>& placements) {
  if (placements.ndim() != 2 || placements.shape(1) != simulator.tasks()) throw InvalidInput("expected placements as [N, tasks]");
  const py::ssize_t count = placements.shape(0), devices = simulator.devices();
  const auto tasks = static_cast<std::size_t>(simulator.tasks());
  std::vector<double> ms, peaks;
  {
    const py::gil_scoped_release release;
    for (std::size_t row = 0; row < static_cast<std::size_t>(count); ++row) {
      const Outcome outcome = simulator.get().run({placements.data() + row * tasks, tasks});
      ms.push_back(outcome.ms);
      peaks.insert(peaks.end(), outcome.peak_bytes.begin(), outcome.peak_bytes.end());
    }
  }
  return py::make_tuple(to_array(std::move(ms), {count}), to_array(std::move(peaks), {count, devices}));
}

}  // namespace

void bind_placement(py::module_& module) {
  const Array<double> none(0);
  py::class_<PlacementSimulator>(module, "PlacementSimulator")
      .def(py::init([](const Array<double>& memory_bytes, const Array<double>& channel_bytes_per_ms, const Array<double>& latency_ms,
                       const std::vector<std::vector<ChannelId>>& routes, const Array<double>& task_ms, const Array<double>& workspace_bytes,
                       const Array<std::uint8_t>& storage, const Array<std::int32_t>& owner, const Array<double>& bytes,
                       const Array<double>& state_bytes, const Array<bool>& kept, const Array<std::int32_t>& reader_begin,
                       const Array<std::int32_t>& readers) {
             return std::make_unique<PlacementSimulator>(
                 machine_from(memory_bytes, channel_bytes_per_ms, latency_ms, routes),
                 workload_from(task_ms, workspace_bytes, storage, owner, bytes, state_bytes, kept, reader_begin, readers));
           }),
           py::kw_only(), py::arg("memory_bytes"), py::arg("channel_bytes_per_ms"), py::arg("latency_ms"), py::arg("routes"), py::arg("task_ms"),
           py::arg("workspace_bytes"), py::arg("storage"), py::arg("owner"), py::arg("bytes"), py::arg("state_bytes"), py::arg("kept"),
           py::arg("reader_begin"), py::arg("readers"))
      .def("run", &simulate, py::arg("placement"), py::arg("priorities") = none)
      .def("trace", &trace_of, py::arg("placement"), py::arg("priorities") = none)
      .def("run_all", &simulate_all, py::arg("placements"));
}

}  // namespace rlflow
