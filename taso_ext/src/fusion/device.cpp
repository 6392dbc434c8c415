#include "fusion/device.hpp"

#include <array>

namespace rlflow::fusion {
namespace {

// The figures are those of the specifications that XLA ships for its compiler, xla/backends/gpu/target_config/specs:
// v100.txtpb (Tesla V100-SXM2-16GB) and h100_sxm.txtpb (H100 80GB HBM3). The launch is kKernelLaunchOverhead of
// xla/service/gpu/model/gpu_performance_model_base.h.
constexpr auto kDevices = std::to_array<Device>({
    {"v100", 80, 64, 1.53, 898.048e6, 6291456, 49152, 1e-3},
    {"h100", 132, 128, 1.98, 3352.32e6, 52428800, 49152, 1e-3},
});

}  // namespace

const Device& find_device(std::string_view name) {
  std::string known;
  for (const Device& device : kDevices) {
    if (device.name == name) return device;
    known += (known.empty() ? "" : ", ") + std::string(device.name);
  }
  throw InvalidInput("no fusion device is called '" + std::string(name) + "'; choose one of " + known);
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& device : kDevices) names.emplace_back(device.name);
  return names;
}

}  // namespace rlflow::fusion
