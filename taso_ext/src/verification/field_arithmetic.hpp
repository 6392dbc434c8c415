// Arithmetic modulo primes below 2^62 on arrays, for the exact evaluation of rules (taso_ext/verify).
#pragma once

#include <pybind11/pybind11.h>

namespace rlflow {

// Adds field_multiply, field_power and field_matmul to the module.
void bind_field_arithmetic(pybind11::module_& module);

}  // namespace rlflow
