// The Python interface of the engine (typed stub: taso_ext/_core.pyi).
#include "bindings/bindings.hpp"


namespace rlflow {

std::string hex(const Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high), static_cast<unsigned long long>(hash.low));
  return text;
}

}  // namespace rlflow

PYBIND11_MODULE(_core, module) {
  using namespace rlflow;
  module.doc() = "Native tensor-graph substitution engine of RLFlow.";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const InvalidInput& error) {
      py::set_error(PyExc_ValueError, error.what());
    } catch (const Unpriced& error) {
      try {
        std::rethrow_exception(error.cause());
      } catch (py::error_already_set& cause) {
        cause.restore();
      }
    }
  });

  bind_graph(module);
  bind_costs(module);
  bind_fusion(module);
  bind_rules(module);
  bind_state(module);
  bind_features(module);
  bind_search(module);
  bind_verification(module);
  bind_placement(module);
}
