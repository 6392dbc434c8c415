#include "placement/workload.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "ir/types.hpp"

namespace rlflow::placement {
namespace {

[[nodiscard]] bool is_size(double bytes) { return bytes >= 0 && !std::isinf(bytes); }

void check_tensor(const Workload& workload, TensorId id) {
  const Tensor& tensor = workload.tensors[id];
  const std::string name = "tensor " + std::to_string(id);
  const std::int32_t owners = tensor.storage == Storage::kFed ? workload.device_count : workload.task_count();
  if (tensor.storage > Storage::kReplicated) throw InvalidInput(name + ": unknown kind of storage");
  if (tensor.storage != Storage::kReplicated && (tensor.owner < 0 || tensor.owner >= owners)) {
    throw InvalidInput(name + ": owner " + std::to_string(tensor.owner) + " is not in [0, " + std::to_string(owners) + ")");
  }
  if (!is_size(tensor.bytes) || !is_size(tensor.state_bytes)) throw InvalidInput(name + ": its size must not be negative or infinite");
  if (workload.reader_begin[id] > workload.reader_begin[id + 1]) throw InvalidInput(name + ": its readers end before they begin");
  std::vector<TaskId> seen(workload.readers_of(id).begin(), workload.readers_of(id).end());
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) throw InvalidInput(name + " lists a reader twice");
  if (!seen.empty() && (seen.front() < 0 || seen.back() >= workload.task_count())) throw InvalidInput(name + ": a reader does not exist");
}

// Runs through the tasks in topological order; whoever is left over lies on a cycle or behind one.
void check_acyclic(const Workload& workload) {
  const std::size_t tasks = workload.workspace_bytes.size();
  std::vector<std::int32_t> missing(tasks, 0);
  std::vector<std::vector<TensorId>> made(tasks);
  for (TensorId id = 0; id < workload.tensor_count(); ++id) {
    if (workload.tensors[id].storage != Storage::kComputed) continue;
    made[workload.tensors[id].owner].push_back(id);
    for (const TaskId reader : workload.readers_of(id)) ++missing[reader];
  }
  std::vector<TaskId> ready;
  for (TaskId task = 0; task < workload.task_count(); ++task) {
    if (missing[task] == 0) ready.push_back(task);
  }
  for (std::size_t next = 0; next < ready.size(); ++next) {
    for (const TensorId id : made[ready[next]]) {
      for (const TaskId reader : workload.readers_of(id)) {
        if (--missing[reader] == 0) ready.push_back(reader);
      }
    }
  }
  if (ready.size() == tasks) return;
  const auto stuck = std::find_if(missing.begin(), missing.end(), [](std::int32_t count) { return count > 0; });
  throw InvalidInput("the tasks form a cycle, on which or behind which lies task " + std::to_string(stuck - missing.begin()));
}

}  // namespace

double Workload::ms(TaskId task, DeviceId device) const {
  return task_ms[static_cast<std::size_t>(task) * static_cast<std::size_t>(device_count) + static_cast<std::size_t>(device)];
}

void check(const Workload& workload) {
  const std::size_t tasks = workload.workspace_bytes.size();
  if (workload.device_count < 1) throw InvalidInput("a workload needs at least one device");
  if (workload.task_ms.size() != tasks * static_cast<std::size_t>(workload.device_count)) {
    throw InvalidInput("expected a time of each task on each device");
  }
  for (const double ms : workload.task_ms) {
    if (!(ms >= 0)) throw InvalidInput("the time of a task must not be negative");
  }
  for (const double bytes : workload.workspace_bytes) {
    if (!is_size(bytes)) throw InvalidInput("the workspace of a task must not be negative or infinite");
  }
  if (workload.reader_begin.size() != workload.tensors.size() + 1 || workload.reader_begin.front() != 0 ||
      workload.reader_begin.back() != static_cast<std::int32_t>(workload.readers.size())) {
    throw InvalidInput("expected the begin of each tensor's readers, and the number of all");
  }
  for (TensorId id = 0; id < workload.tensor_count(); ++id) check_tensor(workload, id);
  check_acyclic(workload);
}

}  // namespace rlflow::placement
