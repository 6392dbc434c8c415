// What a step has to compute: tasks, and the tensors that they hand to one another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "placement/machine.hpp"

namespace rlflow::placement {

using TaskId = std::int32_t;
using TensorId = std::int32_t;

enum class Storage : std::uint8_t {
  kComputed,     // by the task `owner`; held from its start until the last use, or until the end if it is kept
  kFed,          // lies on the device `owner` when the step begins; held until the last use
  kParameter,    // held all the time on the device of the task `owner`, with its optimiser state; copied to other readers
  kReplicated,   // held all the time on each device that reads it; never copied
};

struct Tensor {
  Storage storage = Storage::kComputed;
  std::int32_t owner = 0;
  double bytes = 0;
  double state_bytes = 0;    // of the optimiser; only parameters have one
  bool kept = false;         // whether it is an output of the step
};

// Invariant: each tensor lists each of its readers once, and tasks and tensors form no cycle.
struct Workload {
  std::int32_t device_count = 0;
  std::vector<double> task_ms;              // by task, then by device
  std::vector<double> workspace_bytes;      // by task: held while it runs, beside what it reads and returns
  std::vector<Tensor> tensors;
  std::vector<std::int32_t> reader_begin;   // by tensor, and one more: where its readers begin in `readers`
  std::vector<TaskId> readers;

  [[nodiscard]] TaskId task_count() const { return static_cast<TaskId>(workspace_bytes.size()); }
  [[nodiscard]] TensorId tensor_count() const { return static_cast<TensorId>(tensors.size()); }
  [[nodiscard]] std::span<const TaskId> readers_of(TensorId tensor) const {
    return {readers.data() + reader_begin[tensor], readers.data() + reader_begin[tensor + 1]};
  }
  [[nodiscard]] double ms(TaskId task, DeviceId device) const;
};

// Throws InvalidInput if the invariant does not hold or a number is out of range.
void check(const Workload& workload);

}  // namespace rlflow::placement
