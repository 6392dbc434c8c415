#include "bindings/bindings.hpp"

#include "features/features.hpp"
#include "fusion/plan.hpp"

namespace rlflow {
namespace {

using fusion::Plan;
using fusion::Problem;

template <typename T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <typename T, typename Field>
py::object column(const Problem& problem, Field field) {
  std::vector<T> values(problem.size());
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<T>(field(problem.tensor(static_cast<std::int32_t>(k))));
  const auto size = static_cast<py::ssize_t>(values.size());
  return to_array(std::move(values), {size});
}

py::dict tensors(const Problem& problem) {
  using fusion::Tensor;
  py::dict columns;
  columns["kind"] = column<std::int32_t>(problem, [](const Tensor& tensor) { return tensor.kind; });
  columns["position"] = column<std::int32_t>(problem, [](const Tensor& tensor) { return tensor.position; });
  columns["output"] = column<std::int32_t>(problem, [](const Tensor& tensor) { return tensor.output; });
  columns["operator"] = column<std::int32_t>(problem, [](const Tensor& tensor) {
    return tensor.position < 0 ? feature_operator_count() - 1 : std::min(tensor.op, known_operator_count());
  });
  columns["is_output"] = column<std::uint8_t>(problem, [](const Tensor& tensor) { return tensor.is_output; }).attr("astype")("bool");
  columns["configurable"] = column<std::uint8_t>(problem, [](const Tensor& tensor) { return tensor.configurable; }).attr("astype")("bool");
  columns["expensive"] = column<std::uint8_t>(problem, [](const Tensor& tensor) { return tensor.expensive; }).attr("astype")("bool");
  columns["uses"] = column<std::int32_t>(problem, [](const Tensor& tensor) { return tensor.uses; });
  columns["elements"] = column<double>(problem, [](const Tensor& tensor) { return tensor.elements; });
  columns["bytes"] = column<double>(problem, [](const Tensor& tensor) { return tensor.bytes; });
  columns["flops"] = column<double>(problem, [](const Tensor& tensor) { return tensor.flops; });
  columns["loop_elements"] = column<double>(problem, [](const Tensor& tensor) { return tensor.loop_elements; });
  return columns;
}

py::dict edges(const Problem& problem) {
  std::vector<std::int32_t> producers, readers;
  std::vector<double> demanded;
  std::vector<std::uint8_t> elementwise, absorbable;
  for (std::size_t reader = 0; reader < problem.size(); ++reader) {
    for (const fusion::Operand& operand : problem.operands(static_cast<std::int32_t>(reader))) {
      producers.push_back(operand.producer), readers.push_back(static_cast<std::int32_t>(reader));
      demanded.push_back(operand.demanded), elementwise.push_back(operand.elementwise), absorbable.push_back(operand.absorbable);
    }
  }
  const auto size = static_cast<py::ssize_t>(producers.size());
  py::dict columns;
  columns["producer"] = to_array(std::move(producers), {size});
  columns["reader"] = to_array(std::move(readers), {size});
  columns["demanded"] = to_array(std::move(demanded), {size});
  columns["elementwise"] = to_array(std::move(elementwise), {size}).attr("astype")("bool");
  columns["absorbable"] = to_array(std::move(absorbable), {size}).attr("astype")("bool");
  return columns;
}

py::array_t<std::uint8_t> as_array(const std::vector<std::uint8_t>& bits) { return to_array(std::vector<std::uint8_t>(bits), {static_cast<py::ssize_t>(bits.size())}); }

py::array_t<double> deltas(Plan& plan, const Array<std::int32_t>& ids) {
  const std::span<const std::int32_t> asked(ids.data(), static_cast<std::size_t>(ids.size()));
  std::vector<double> found;
  {
    const py::gil_scoped_release release;
    for (const std::int32_t id : asked) found.push_back(fusion::to_ms(plan.delta(id)));
  }
  const auto size = static_cast<py::ssize_t>(found.size());
  return to_array(std::move(found), {size});
}

py::tuple gibbs(Plan& plan, std::int64_t sweeps, double temperature_ms, std::uint64_t seed) {
  fusion::GibbsRecord record;
  {
    const py::gil_scoped_release release;
    record = fusion::sample_gibbs(plan, sweeps, temperature_ms, seed);
  }
  const auto size = static_cast<py::ssize_t>(record.tensors.size());
  return py::make_tuple(to_array(std::move(record.tensors), {size}), to_array(std::move(record.deltas_ms), {size}),
                        to_array(std::move(record.flipped), {size}).attr("astype")("bool"));
}

py::list kernels(const Plan& plan) {
  py::list found;
  for (const std::int32_t root : plan.roots()) {
    const fusion::Kernel& kernel = plan.kernel(root);
    found.append(py::make_tuple(kernel.members, kernel.reads, fusion::to_ms(kernel.price)));
  }
  return found;
}

}  // namespace

void bind_fusion(py::module_& module) {
  py::class_<Problem, std::shared_ptr<Problem>>(module, "FusionProblem")
      .def(py::init([](const Graph& graph, const std::string& device) { return std::make_shared<Problem>(graph, fusion::find_device(device)); }),
           py::arg("graph"), py::arg("device"))
      .def_static("devices", &fusion::device_names)
      .def("__len__", &Problem::size)
      .def_property_readonly("device", [](const Problem& problem) { return std::string(problem.device().name); })
      .def_property_readonly("constants", [](const Problem& problem) {
        const fusion::Device& device = problem.device();
        py::dict constants;
        constants["cores"] = device.cores, constants["lanes"] = device.lanes, constants["clock_ghz"] = device.clock_ghz;
        constants["bytes_per_ms"] = device.bytes_per_ms, constants["cache_bytes"] = device.cache_bytes;
        constants["shared_memory_bytes"] = device.shared_memory_bytes, constants["launch_ms"] = device.launch_ms;
        return constants;
      })
      .def("tensors", &tensors).def("edges", &edges)
      .def("configurable", [](const Problem& problem) {
        return to_array(std::vector<std::int32_t>(problem.configurable()), {static_cast<py::ssize_t>(problem.configurable().size())});
      })
      .def("neighbourhood", [](const Problem& problem, std::int32_t tensor, int distance) {
        if (tensor < 0 || static_cast<std::size_t>(tensor) >= problem.size() || distance < 0) {
          throw InvalidInput("expected a tensor below " + std::to_string(problem.size()) + " and a distance of at least 0, got " + std::to_string(tensor) + " and " + std::to_string(distance));
        }
        std::vector<std::int32_t> found = problem.neighbourhood(tensor, distance);
        const auto size = static_cast<py::ssize_t>(found.size());
        return to_array(std::move(found), {size});
      }, py::arg("tensor"), py::arg("distance"))
      .def("compiler_default", [](const Problem& problem) { return as_array(problem.compiler_default()); })
      .def_property_readonly("queries", &Problem::queries);
  py::class_<Plan>(module, "FusionPlan")
      .def(py::init([](std::shared_ptr<Problem> problem, const Array<std::uint8_t>& bits) {
        if (bits.ndim() != 1) throw InvalidInput("expected a configuration of one axis");
        return std::make_unique<Plan>(std::move(problem), std::vector<std::uint8_t>(bits.data(), bits.data() + bits.size()));
      }), py::arg("problem"), py::arg("configuration"))
      .def("configuration", [](const Plan& plan) { return as_array(plan.bits()); })
      .def("cost_ms", &Plan::cost_ms)
      .def("deltas_ms", &deltas, py::arg("tensors"))
      .def("flip", [](Plan& plan, const Array<std::int32_t>& ids) { plan.flip({ids.data(), static_cast<std::size_t>(ids.size())}); }, py::arg("tensors"))
      .def("gibbs", &gibbs, py::arg("sweeps"), py::arg("temperature_ms"), py::arg("seed"))
      .def("kernels", &kernels);
}

}  // namespace rlflow
