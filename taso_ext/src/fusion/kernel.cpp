#include "fusion/kernel.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rlflow::fusion {
namespace {

// Constants of xla/service/gpu/model/gpu_performance_model_base.{h,cc}. Re-reading what fits into a cache is faster than
// memory by these factors. The level-1 cache is counted as 2 KB a core only, since other data is in it too.
constexpr double kLevel2Speedup = 2.5, kLevel1Speedup = 8, kLevel1Bytes = 2048;
// GpuPerformanceModelOptions::PriorityFusion: this share of the shorter of computing and loading is hidden.
constexpr double kParallelism = 0.95;
constexpr double kThreadsPerBlock = 128, kElementsOfBlock = 4 * kThreadsPerBlock;
constexpr double kBytesPerClock = 32;    // AdjustBandwidth: a core moves one sector of 32 bytes in a clock

[[nodiscard]] bool is_hero(Kind kind) {
  return kind == Kind::kTranspose || kind == Kind::kWindow || kind == Kind::kReduction || kind == Kind::kLibrary;
}

}  // namespace

void KernelBuilder::build(std::int32_t root, std::span<const std::uint8_t> bits, Kernel& kernel) {
  slots_.clear(), members_.clear(), reads_.clear(), group_evaluations_.clear();
  pending_.clear();
  hero_ = is_hero(problem_.tensor(root).kind) ? root : -1;
  slots_.push_back({.tensor = root, .own = 1});
  place_[static_cast<std::size_t>(root)] = 0;
  const auto take_in = [&](std::size_t place) {
    group_evaluations_.push_back(slots_[place].own);
    if (slots_[place].own > 0) slots_[place].groups |= std::uint64_t{1} << members_.size();
    members_.push_back(place);
    expand(Slot(slots_[place]));
  };
  take_in(0);
  while (!pending_.empty()) {
    const auto youngest = std::ranges::max_element(pending_, {}, [&](std::size_t place) { return slots_[place].tensor; });
    const std::size_t next = *youngest;
    const bool taken = takes_in(slots_[next], bits);
    *youngest = pending_.back();
    pending_.pop_back();
    if (taken) {
      if (is_hero(problem_.tensor(slots_[next].tensor).kind)) hero_ = slots_[next].tensor;
      take_in(next);
    } else {
      reads_.push_back(next);
    }
  }
  kernel.members.clear(), kernel.reads.clear();
  for (const std::size_t place : members_) kernel.members.push_back(slots_[place].tensor);
  for (const std::size_t place : reads_) kernel.reads.push_back(slots_[place].tensor);
  kernel.price = price();
  for (const Slot& slot : slots_) place_[static_cast<std::size_t>(slot.tensor)] = -1;
}

void KernelBuilder::expand(const Slot& member) {
  const double times = evaluations(member);
  for (const Operand& operand : problem_.operands(member.tensor)) {
    std::int32_t& place = place_[static_cast<std::size_t>(operand.producer)];
    if (place < 0) {
      place = static_cast<std::int32_t>(slots_.size());
      pending_.push_back(slots_.size());
      slots_.push_back({.tensor = operand.producer});
    }
    Slot& slot = slots_[static_cast<std::size_t>(place)];
    slot.absorbable &= operand.absorbable;
    if (operand.elementwise) slot.groups |= member.groups;
    else slot.own += times * operand.demanded / problem_.tensor(operand.producer).elements;
  }
}

bool KernelBuilder::takes_in(const Slot& slot, std::span<const std::uint8_t> bits) const {
  if (!bits[static_cast<std::size_t>(slot.tensor)] || !slot.absorbable || members_.size() == kMostMembers) return false;
  const bool at_root = slot.groups == 1 && slot.own == 0;    // reached from the root through pointwise operators alone
  if (is_hero(problem_.tensor(slot.tensor).kind) && (hero_ >= 0 || !at_root)) return false;
  const std::size_t before = reads_.size() + pending_.size();
  const std::size_t added = count_new_operands(slot.tensor), after = before - 1 + added, live = pending_.size() - 1 + added;
  const std::size_t registers = kFixedRegisters + kPointerRegisters * (after + 1) + kElementsPerThread * live;
  return after <= before || (after <= kMostOperands && registers <= kMostRegisters);
}

std::size_t KernelBuilder::count_new_operands(std::int32_t tensor) const {
  const auto operands = problem_.operands(tensor);
  std::size_t count = 0;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const auto same = [&](const Operand& other) { return other.producer == operands[k].producer; };
    if (place_[static_cast<std::size_t>(operands[k].producer)] < 0 && std::none_of(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(k), same)) ++count;
  }
  return count;
}

double KernelBuilder::evaluations(const Slot& slot) const {
  // A member's own evaluations are those of its group; a tensor that is loaded has no group.
  double times = 0;
  for (std::uint64_t rest = slot.groups; rest != 0; rest &= rest - 1) times += group_evaluations_[static_cast<std::size_t>(std::countr_zero(rest))];
  return times;
}

Femtoseconds KernelBuilder::price() const {
  const Tensor& root = problem_.tensor(slots_[0].tensor);
  if (root.kind == Kind::kProjection || root.kind == Kind::kExternal) return 0;
  const Device& device = problem_.device();
  const Tensor& hero = hero_ >= 0 ? problem_.tensor(hero_) : root;
  const bool fills_device = hero.kind == Kind::kLibrary || hero.kind == Kind::kOpaque;
  const double blocks = fills_device ? device.cores : std::ceil(std::max(hero.loop_elements, 1.0) / kElementsOfBlock);
  double work = 0;
  for (const std::size_t place : members_) work += problem_.tensor(slots_[place].tensor).flops * evaluations(slots_[place]);
  const double flops_per_ms = 2e6 * device.clock_ghz * std::min(blocks, device.cores) * std::min(kThreadsPerBlock, device.lanes);
  const double most_bandwidth = blocks * device.clock_ghz * 1e6 * kBytesPerClock;
  double memory_ms = root.bytes / device.bytes_per_ms;
  for (const std::size_t place : reads_) {
    const Tensor& tensor = problem_.tensor(slots_[place].tensor);
    const double total = tensor.bytes * (evaluations(slots_[place]) + slots_[place].own), net = std::min(total, tensor.bytes);
    double again = device.bytes_per_ms;    // bandwidth of reading a second time
    if (net < device.cache_bytes) again *= kLevel2Speedup;
    if (net < device.cache_bytes && net < kLevel1Bytes * device.cores) again *= kLevel1Speedup;
    memory_ms += net / std::min(device.bytes_per_ms, most_bandwidth) + (total - net) / std::min(again, most_bandwidth);
  }
  const double compute_ms = work / flops_per_ms;
  const double ms = compute_ms + memory_ms - kParallelism * std::min(compute_ms, memory_ms) + device.launch_ms;
  return static_cast<Femtoseconds>(std::llround(ms * 1e12));
}

}  // namespace rlflow::fusion
