#include "fusion/device.hpp"

#include <array>

namespace rlflow::fusion {
namespace {

// The figures are those of the specifications that XLA ships for its compiler, xla/backends/gpu/target_config/specs:
// v100.txtpb (Tesla V100-SXM2-16GB) and h100_sxm.txtpb (H100 80GB HBM3). The launch is kKernelLaunchOverhead of
// xla/service/gpu/model/gpu_performance_model_base.h.
//
// xeon is one core of a CPU, the device of that name in costs/cost.cpp: 2 units of 16 lanes with AVX-512 at 2.5 GHz,
// 12 GB/s, and 1 us for the call of an operator in a CPU runtime. A core of Skylake-SP has 1 MiB of level-2 cache and
// 32 KiB of level-1 data cache, in which a row of a normalisation stays (Intel 64 and IA-32 Architectures Optimization
// Reference Manual, section on the Skylake server microarchitecture). Instructions keep the figures of a GPU.
constexpr auto kDevices = std::to_array<Device>({
    {"v100", 80, 64, 1.53, 898.048e6, 6291456, 49152, 1e-3},
    {"h100", 132, 128, 1.98, 3352.32e6, 52428800, 49152, 1e-3},
    {"xeon", 1, 32, 2.5, 12e6, 1048576, 32768, 1e-3},
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
