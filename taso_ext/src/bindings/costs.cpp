#include "bindings/bindings.hpp"

#include <cmath>
#include <limits>

#include <pybind11/functional.h>

#include "costs/learned_costs.hpp"

namespace rlflow {
namespace {

// Returns the costs in the rows of an array; the columns are ms, bytes and launches.
std::vector<Cost> costs_from(const py::array_t<double, py::array::c_style | py::array::forcecast>& rows) {
  if (rows.ndim() != 2 || rows.shape(1) != 3) throw InvalidInput("expected costs as [N, 3]: ms, bytes, launches");
  std::vector<Cost> costs(static_cast<std::size_t>(rows.shape(0)));
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const double* row = rows.data(static_cast<py::ssize_t>(i), 0);
    costs[i] = {.ms = row[0], .flops = 0, .memory_bytes = row[1], .kernel_launches = std::llround(row[2])};
  }
  return costs;
}

NamedCosts learned_costs(const std::string& name, const std::string& device, const py::function& price_operators,
                         const py::array_t<std::uint64_t, py::array::c_style | py::array::forcecast>& signatures,
                         const py::array_t<double, py::array::c_style | py::array::forcecast>& costs, int opset,
                         std::pair<double, double> most) {
  // The thread that calls the function, or lets it go last, may be one without the interpreter's lock.
  const std::shared_ptr<py::function> held(new py::function(price_operators), [](py::function* function) {
    const py::gil_scoped_acquire acquire;
    delete function;
  });
  const auto call = [held](const Graph& graph, const std::vector<std::int64_t>& positions) {
    const py::gil_scoped_acquire acquire;
    try {
      return costs_from((*held)(graph, positions));
    } catch (const py::error_already_set& error) {
      const py::object unpriced = py::module_::import("taso_ext.errors").attr("UnpricedError");
      if (error.matches(unpriced)) throw Unpriced(std::current_exception());
      throw;
    }
  };
  const auto refuse = [] {
    const py::gil_scoped_acquire acquire;
    try {
      const py::object unpriced = py::module_::import("taso_ext.errors").attr("UnpricedError");
      py::set_error(unpriced, "Rewriting has made a graph of several times the model's operations, or bytes moved: too large to measure anything of it.");
      throw py::error_already_set();
    } catch (const py::error_already_set&) {
      throw Unpriced(std::current_exception());
    }
  };
  auto learned = std::make_shared<LearnedCosts>(find_device(device), call, opset, WorkLimit{most.first, most.second, refuse});
  const std::vector<Cost> known = costs_from(costs);
  if (known.size() != static_cast<std::size_t>(signatures.size())) throw InvalidInput("expected as many costs as signatures");
  learned->add({signatures.data(), known.size()}, known);
  return {name, std::move(learned)};
}

}  // namespace

void bind_costs(py::module_& module) {
  py::class_<Cost>(module, "Cost")
      .def_readonly("ms", &Cost::ms).def_readonly("flops", &Cost::flops).def_readonly("memory_bytes", &Cost::memory_bytes)
      .def_readonly("kernel_launches", &Cost::kernel_launches)
      .def("__repr__", [](const Cost& cost) {
        return "Cost(ms=" + std::to_string(cost.ms) + ", flops=" + std::to_string(cost.flops) + ", memory_bytes=" + std::to_string(cost.memory_bytes) +
               ", kernel_launches=" + std::to_string(cost.kernel_launches) + ")";
      });
  py::class_<NamedCosts>(module, "CostModel")
      .def_static("roofline", [](const std::string& device) { return NamedCosts{"roofline:" + device, std::make_shared<Roofline>(find_device(device))}; }, py::arg("device"))
      .def_static("learned", &learned_costs, py::arg("name"), py::arg("device"), py::arg("price_operators"), py::arg("signatures"), py::arg("costs"), py::arg("opset"),
                  py::arg("most") = std::pair(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()))
      .def_static("devices", &device_names)
      .def_readonly("name", &NamedCosts::name)
      .def_property_readonly("looks_around", [](const NamedCosts& model) { return model.costs->looks_around(); });
}

}  // namespace rlflow
