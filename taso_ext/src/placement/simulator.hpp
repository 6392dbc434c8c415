// A discrete-event simulation of one step of a workload that is spread over the devices of a machine.
//
// Each device has a queue and runs one task at a time. A task enters the queue of its device when everything that it
// reads is there. The queue is first in, first out, or by given priorities. As soon as a tensor is computed, one copy is
// sent to each other device that reads it, while the devices go on. Copies between the same two devices in the same
// direction wait for one another; all others run at the same time and share channels fairly (`FairShares`). A copy
// occupies its place in the order for the latency and the transfer. Memory is counted and never blocks: a placement that
// needs too much has a peak above the device's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "placement/machine.hpp"
#include "placement/workload.hpp"

namespace rlflow::placement {

struct Copy {
  TensorId tensor = 0;
  DeviceId from = 0, to = 0;
  double begin_ms = 0, end_ms = 0;
};

struct Outcome {
  double ms = 0;                        // when the last task has ended; infinite if a task cannot run on its device
  std::vector<double> busy_ms;          // by device: sum of the times of its tasks
  std::vector<double> peak_bytes;       // by device
  double copied_bytes = 0;
  std::int32_t copies = 0;
};

struct Trace {
  std::vector<double> begin_ms, end_ms;   // by task
  std::vector<Copy> copies;               // in the order in which they began
};

// Keeps references: machine and workload have to outlive it. Several threads may use it at once.
class Simulator {
 public:
  // Throws InvalidInput if the machine or the workload is malformed, or their numbers of devices differ.
  Simulator(const Machine& machine, const Workload& workload);
  // Simulates a step. `placement` has the device of each task; `priorities`, if not empty, a number for each task, of
  // which the smallest waiting one runs first. Throws InvalidInput for another number of entries or an unknown device.
  [[nodiscard]] Outcome run(std::span<const DeviceId> placement, std::span<const double> priorities = {}, Trace* trace = nullptr) const;

 private:
  const Machine& machine_;
  const Workload& workload_;
  std::vector<std::vector<TensorId>> reads_, makes_;    // by task
};

}  // namespace rlflow::placement
