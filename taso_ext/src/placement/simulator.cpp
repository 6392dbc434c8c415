#include "placement/simulator.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "ir/types.hpp"

namespace rlflow::placement {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::int32_t kNone = -1;

// The copies from one device to another, of which the first one that has not ended is in work.
struct Lane {
  std::vector<Copy> copies;
  std::size_t current = 0;
  bool in_work = false, transfers = false;
  double next_ms = kNever;       // when the latency or the transfer of the current copy ends
  double bytes_left = 0;         // at the time when rates were shared last
  double rate = 0;

  [[nodiscard]] bool waits() const { return !in_work && current < copies.size(); }
};

struct Waiting {
  double priority;
  TaskId task;
  // The heap has the smallest on top: the earliest, and of these the one with the smallest number.
  bool operator<(const Waiting& other) const { return std::tie(other.priority, other.task) < std::tie(priority, task); }
};

class Step {
 public:
  Step(const Machine& machine, const Workload& workload, std::span<const std::vector<TensorId>> reads,
       std::span<const std::vector<TensorId>> makes, std::span<const DeviceId> placement, std::span<const double> priorities, Trace* trace)
      : machine_(machine), workload_(workload), reads_(reads), makes_(makes), placement_(placement), priorities_(priorities), trace_(trace),
        devices_(static_cast<std::size_t>(machine.device_count())), queues_(devices_), running_(devices_, kNone), ends_ms_(devices_, kNever),
        lanes_(devices_ * devices_), missing_(workload.workspace_bytes.size(), 0), uses_(workload.tensors.size() * devices_, 0),
        used_bytes_(devices_, 0), shares_(machine) {
    outcome_.busy_ms.assign(devices_, 0);
    outcome_.peak_bytes.assign(devices_, 0);
  }

  [[nodiscard]] Outcome run() {
    begin();
    for (double now = 0; now != kNever; now = next_event()) {
      now_ = now;
      end_copies();
      end_tasks();
      start_tasks();
      start_copies();
      if (flows_changed_) share_channels();
    }
    outcome_.ms = now_;
    return std::move(outcome_);
  }

 private:
  std::int32_t& uses(TensorId tensor, DeviceId device) { return uses_[static_cast<std::size_t>(tensor) * devices_ + static_cast<std::size_t>(device)]; }

  [[nodiscard]] double next_event() const {
    double next = kNever;
    for (const double end : ends_ms_) next = std::min(next, end);
    for (const std::size_t lane : open_lanes_) next = std::min(next, lanes_[lane].next_ms);
    return next;
  }

  void begin() {
    for (TensorId id = 0; id < workload_.tensor_count(); ++id) {
      const Tensor& tensor = workload_.tensors[id];
      if (tensor.storage == Storage::kReplicated) hold_on_all(id);
      else for (const TaskId reader : workload_.readers_of(id)) ++missing_[reader];
      if (tensor.storage == Storage::kParameter) allocate(placement_[tensor.owner], tensor.bytes + tensor.state_bytes);
      if (tensor.storage == Storage::kFed) allocate(tensor.owner, tensor.bytes);
    }
    for (TaskId task = 0; task < workload_.task_count(); ++task) {
      if (missing_[task] == 0) enqueue(task);
    }
    for (TensorId id = 0; id < workload_.tensor_count(); ++id) {
      const Tensor& tensor = workload_.tensors[id];
      if (tensor.storage == Storage::kFed) publish(id, tensor.owner);
      if (tensor.storage == Storage::kParameter) publish(id, placement_[tensor.owner]);
    }
  }

  void hold_on_all(TensorId id) {
    for (const TaskId reader : workload_.readers_of(id)) {
      if (uses(id, placement_[reader])++ == 0) allocate(placement_[reader], workload_.tensors[id].bytes);
    }
  }

  // Hands a tensor that is on its own device to the readers there, and sends it to the other devices that read it.
  void publish(TensorId id, DeviceId from) {
    for (const TaskId reader : workload_.readers_of(id)) {
      const DeviceId to = placement_[reader];
      if (uses(id, to)++ == 0 && to != from) send(id, from, to);
    }
    arrive(id, from);
    release_if_unused(id, from);
  }

  void send(TensorId id, DeviceId from, DeviceId to) {
    const std::size_t index = static_cast<std::size_t>(from) * devices_ + static_cast<std::size_t>(to);
    Lane& lane = lanes_[index];
    if (lane.copies.empty()) open_lanes_.push_back(index);
    lane.copies.push_back({id, from, to, 0, 0});
    ++uses(id, from);
  }

  void arrive(TensorId id, DeviceId device) {
    for (const TaskId reader : workload_.readers_of(id)) {
      if (placement_[reader] == device && --missing_[reader] == 0) enqueue(reader);
    }
  }

  void enqueue(TaskId task) {
    auto& queue = queues_[placement_[task]];
    queue.push_back({priorities_.empty() ? now_ : priorities_[task], task});
    std::push_heap(queue.begin(), queue.end());
  }

  void allocate(DeviceId device, double bytes) {
    used_bytes_[device] += bytes;
    outcome_.peak_bytes[device] = std::max(outcome_.peak_bytes[device], used_bytes_[device]);
  }

  void release_use(TensorId id, DeviceId device) {
    --uses(id, device);
    release_if_unused(id, device);
  }

  void release_if_unused(TensorId id, DeviceId device) {
    const Tensor& tensor = workload_.tensors[id];
    if (uses(id, device) > 0 || tensor.storage == Storage::kReplicated) return;
    const bool is_home = tensor.storage == Storage::kFed ? tensor.owner == device : placement_[tensor.owner] == device;
    if (is_home && (tensor.kept || tensor.storage == Storage::kParameter)) return;
    used_bytes_[device] -= tensor.bytes;
  }

  void end_tasks() {
    for (std::size_t device = 0; device < devices_; ++device) {
      if (ends_ms_[device] > now_ || running_[device] == kNone) continue;
      const TaskId task = running_[device];
      running_[device] = kNone;
      ends_ms_[device] = kNever;
      used_bytes_[device] -= workload_.workspace_bytes[task];
      for (const TensorId id : makes_[task]) publish(id, static_cast<DeviceId>(device));
      for (const TensorId id : reads_[task]) release_use(id, static_cast<DeviceId>(device));
    }
  }

  void start_tasks() {
    for (std::size_t device = 0; device < devices_; ++device) {
      auto& queue = queues_[device];
      if (running_[device] != kNone || queue.empty()) continue;
      const TaskId task = queue.front().task;
      std::pop_heap(queue.begin(), queue.end());
      queue.pop_back();
      const double ms = workload_.ms(task, static_cast<DeviceId>(device));
      running_[device] = task;
      ends_ms_[device] = now_ + ms;
      outcome_.busy_ms[device] += ms;
      double bytes = workload_.workspace_bytes[task];
      for (const TensorId id : makes_[task]) bytes += workload_.tensors[id].bytes;
      allocate(static_cast<DeviceId>(device), bytes);
      if (trace_) {
        trace_->begin_ms[task] = now_;
        trace_->end_ms[task] = now_ + ms;
      }
    }
  }

  void start_copies() {
    for (const std::size_t index : open_lanes_) {
      Lane& lane = lanes_[index];
      if (!lane.waits()) continue;
      Copy& copy = lane.copies[lane.current];
      copy.begin_ms = now_;
      lane.in_work = true;
      lane.transfers = false;
      lane.next_ms = now_ + machine_.route(copy.from, copy.to).latency_ms;
      allocate(copy.to, workload_.tensors[copy.tensor].bytes);
      if (lane.next_ms == now_) begin_transfer(lane);
    }
  }

  void begin_transfer(Lane& lane) {
    lane.transfers = true;
    lane.bytes_left = workload_.tensors[lane.copies[lane.current].tensor].bytes;
    lane.rate = 0;
    lane.next_ms = kNever;
    flows_changed_ = true;
  }

  void end_copies() {
    for (const std::size_t index : open_lanes_) {
      Lane& lane = lanes_[index];
      if (!lane.in_work || lane.next_ms > now_) continue;
      if (!lane.transfers) {
        begin_transfer(lane);
        continue;
      }
      Copy& copy = lane.copies[lane.current++];
      copy.end_ms = now_;
      lane.in_work = lane.transfers = false;
      lane.next_ms = kNever;
      flows_changed_ = true;
      outcome_.copied_bytes += workload_.tensors[copy.tensor].bytes;
      ++outcome_.copies;
      if (trace_) trace_->copies.push_back(copy);
      arrive(copy.tensor, copy.to);
      release_use(copy.tensor, copy.from);
    }
  }

  // Gives the transfers that run now their new rates. One whose rate stays the same also keeps its end.
  void share_channels() {
    flows_changed_ = false;
    flows_.clear();
    moving_.clear();
    for (const std::size_t index : open_lanes_) {
      Lane& lane = lanes_[index];
      if (!lane.transfers) continue;
      lane.bytes_left = std::max(0.0, lane.bytes_left - lane.rate * (now_ - shared_ms_));
      flows_.push_back(&machine_.routes[index]);
      moving_.push_back(index);
    }
    shared_ms_ = now_;
    shares_.share(flows_, rates_);
    for (std::size_t flow = 0; flow < moving_.size(); ++flow) {
      Lane& lane = lanes_[moving_[flow]];
      if (lane.rate == rates_[flow]) continue;
      lane.rate = rates_[flow];
      lane.next_ms = now_ + lane.bytes_left / lane.rate;
    }
  }

  const Machine& machine_;
  const Workload& workload_;
  std::span<const std::vector<TensorId>> reads_, makes_;
  std::span<const DeviceId> placement_;
  std::span<const double> priorities_;
  Trace* trace_;
  std::size_t devices_;
  std::vector<std::vector<Waiting>> queues_;     // by device, heaps
  std::vector<TaskId> running_;                  // by device
  std::vector<double> ends_ms_;                  // by device
  std::vector<Lane> lanes_;                      // by source, then by destination
  std::vector<std::size_t> open_lanes_;          // those that ever had a copy, in the order of their first one
  std::vector<std::int32_t> missing_;            // by task: tensors that are not yet on its device
  std::vector<std::int32_t> uses_;               // by tensor, then by device: tasks and copies that still read it there
  std::vector<double> used_bytes_;               // by device
  FairShares shares_;
  std::vector<const Route*> flows_;
  std::vector<std::size_t> moving_;
  std::vector<double> rates_;
  bool flows_changed_ = false;
  double shared_ms_ = 0, now_ = 0;
  Outcome outcome_;
};

}  // namespace

Simulator::Simulator(const Machine& machine, const Workload& workload)
    : machine_(machine), workload_(workload), reads_(workload.workspace_bytes.size()), makes_(workload.workspace_bytes.size()) {
  check(machine);
  check(workload);
  if (machine.device_count() != workload.device_count) throw InvalidInput("the workload has times for another number of devices than the machine has");
  for (TensorId id = 0; id < workload.tensor_count(); ++id) {
    if (workload.tensors[id].storage == Storage::kComputed) makes_[workload.tensors[id].owner].push_back(id);
    for (const TaskId reader : workload.readers_of(id)) reads_[reader].push_back(id);
  }
}

Outcome Simulator::run(std::span<const DeviceId> placement, std::span<const double> priorities, Trace* trace) const {
  const std::size_t tasks = workload_.workspace_bytes.size();
  if (placement.size() != tasks || (!priorities.empty() && priorities.size() != tasks)) {
    throw InvalidInput("expected an entry for each of " + std::to_string(tasks) + " tasks");
  }
  for (TaskId task = 0; task < workload_.task_count(); ++task) {
    if (placement[task] < 0 || placement[task] >= machine_.device_count()) {
      throw InvalidInput("task " + std::to_string(task) + " is on device " + std::to_string(placement[task]) + ", which does not exist");
    }
    if (workload_.ms(task, placement[task]) == kNever) {
      const std::vector<double> nothing(static_cast<std::size_t>(machine_.device_count()), 0);
      return {.ms = kNever, .busy_ms = nothing, .peak_bytes = nothing, .copied_bytes = 0, .copies = 0};
    }
  }
  if (trace) {
    trace->begin_ms.assign(tasks, 0);
    trace->end_ms.assign(tasks, 0);
  }
  return Step(machine_, workload_, reads_, makes_, placement, priorities, trace).run();
}

}  // namespace rlflow::placement
