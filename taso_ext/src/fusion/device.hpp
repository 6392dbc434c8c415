// The processors that fusion plans are priced for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/types.hpp"

namespace rlflow::fusion {

// The properties of a processor that the price of a kernel depends on.
struct Device {
  std::string_view name;
  double cores;                      // streaming multiprocessors of a GPU
  double lanes;                      // fp32 lanes of a core
  double clock_ghz;
  double bytes_per_ms;               // bandwidth of its memory
  double cache_bytes;                // level-2 cache
  double shared_memory_bytes;        // that one block may use
  double launch_ms;
};

// Returns the device of this name. Throws InvalidInput for an unknown name; the error lists the names that exist.
[[nodiscard]] const Device& find_device(std::string_view name);
[[nodiscard]] std::vector<std::string> device_names();

}  // namespace rlflow::fusion
