#include "fusion/plan.hpp"

#include <algorithm>
#include <cmath>

namespace rlflow::fusion {

Plan::Plan(std::shared_ptr<const Problem> problem, std::vector<std::uint8_t> bits)
    : problem_(std::move(problem)), bits_(std::move(bits)), builder_(*problem_), kernels_(problem_->size()), reads_(problem_->size(), 0),
      touched_by_(problem_->size()), extra_reads_(problem_->size(), 0), queued_(problem_->size(), 0), affected_(problem_->size(), 0) {
  if (bits_.size() != problem_->size()) {
    throw InvalidInput("expected a configuration of " + std::to_string(problem_->size()) + " decisions, one for each tensor, got " + std::to_string(bits_.size()));
  }
  for (std::size_t k = 0; k < bits_.size(); ++k) {
    bits_[k] = bits_[k] != 0 ? 1 : 0;
    if (bits_[k]) require_configurable(static_cast<std::int32_t>(k));
  }
  for (std::size_t left = problem_->size(); left > 0; --left) {    // readers come before what they read
    const auto root = static_cast<std::int32_t>(left - 1);
    if (!needs_kernel(root, reads_[left - 1])) continue;
    Kernel& kernel = kernels_[left - 1];
    builder_.build(root, bits_, kernel);
    for (const std::int32_t read : kernel.reads) ++reads_[static_cast<std::size_t>(read)];
    touch(kernel, root);
    total_ += kernel.price;
  }
}

void Plan::require_configurable(std::int32_t tensor) const {
  if (tensor < 0 || static_cast<std::size_t>(tensor) >= problem_->size() || !problem_->tensor(tensor).configurable) {
    throw InvalidInput("tensor " + std::to_string(tensor) + " is not configurable: no operator can absorb it (see configurable())");
  }
}

bool Plan::needs_kernel(std::int32_t tensor, std::int32_t readers) const {
  const Tensor& info = problem_->tensor(tensor);
  return info.kind != Kind::kExternal && (info.is_output || readers > 0);
}

double Plan::cost_ms() const {
  problem_->count_queries(1);
  return to_ms(total_);
}

Femtoseconds Plan::delta(std::int32_t tensor) {
  require_configurable(tensor);
  problem_->count_queries(1);
  std::uint8_t& bit = bits_[static_cast<std::size_t>(tensor)];
  bit ^= 1;
  const Femtoseconds found = find_changes(tensor);
  bit ^= 1;
  return found;
}

void Plan::flip(std::span<const std::int32_t> tensors) {
  for (const std::int32_t tensor : tensors) require_configurable(tensor);
  for (const std::int32_t tensor : tensors) {
    bits_[static_cast<std::size_t>(tensor)] ^= 1;
    total_ += find_changes(tensor);
    commit();
  }
}

std::vector<std::int32_t> Plan::roots() const {
  std::vector<std::int32_t> found;
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    if (!kernels_[k].members.empty()) found.push_back(static_cast<std::int32_t>(k));
  }
  return found;
}

Plan::Change& Plan::next_change() {
  if (count_ == changes_.size()) changes_.emplace_back();
  return changes_[count_++];
}

void Plan::count_reads(const std::vector<std::int32_t>& reads, std::int32_t by) {
  for (const std::int32_t read : reads) {
    const auto at = static_cast<std::size_t>(read);
    if (problem_->tensor(read).kind == Kind::kExternal) continue;
    extra_reads_[at] += by;
    if (queued_[at]) continue;
    queued_[at] = 1;
    extra_.push_back(read);
    queue_.push_back(read);
    std::push_heap(queue_.begin(), queue_.end());
  }
}

Femtoseconds Plan::find_changes(std::int32_t tensor) {
  count_ = 0;
  for (const std::int32_t root : touched_by_[static_cast<std::size_t>(tensor)]) {
    affected_[static_cast<std::size_t>(root)] = queued_[static_cast<std::size_t>(root)] = 1;
    extra_.push_back(root);
    queue_.push_back(root);
  }
  std::make_heap(queue_.begin(), queue_.end());
  Femtoseconds change = 0;
  while (!queue_.empty()) {    // the largest number first: all readers of a tensor are decided before it
    std::pop_heap(queue_.begin(), queue_.end());
    const std::int32_t root = queue_.back();
    const auto at = static_cast<std::size_t>(root);
    queue_.pop_back();
    const bool had = !kernels_[at].members.empty(), has = needs_kernel(root, reads_[at] + extra_reads_[at]);
    if (had == has && !(had && affected_[at])) continue;
    Change& next = next_change();
    next.root = root, next.had = had, next.has = has;
    if (had) change -= kernels_[at].price, count_reads(kernels_[at].reads, -1);
    if (has) {
      builder_.build(root, bits_, next.kernel);
      change += next.kernel.price;
      count_reads(next.kernel.reads, 1);
    }
  }
  for (const std::int32_t each : extra_) {
    const auto at = static_cast<std::size_t>(each);
    extra_reads_[at] = 0;
    queued_[at] = affected_[at] = 0;
  }
  extra_.clear();
  return change;
}

void Plan::commit() {
  for (std::size_t k = 0; k < count_; ++k) {
    Change& change = changes_[k];
    Kernel& kernel = kernels_[static_cast<std::size_t>(change.root)];
    if (change.had) {
      for (const std::int32_t read : kernel.reads) --reads_[static_cast<std::size_t>(read)];
      untouch(kernel, change.root);
      kernel.members.clear(), kernel.reads.clear();
    }
    if (!change.has) continue;
    std::swap(kernel, change.kernel);
    for (const std::int32_t read : kernel.reads) ++reads_[static_cast<std::size_t>(read)];
    touch(kernel, change.root);
  }
}

void Plan::touch(const Kernel& kernel, std::int32_t root) {
  const auto add = [&](std::int32_t tensor) {
    if (tensor != root && problem_->tensor(tensor).configurable) touched_by_[static_cast<std::size_t>(tensor)].push_back(root);
  };
  for (const std::int32_t member : kernel.members) add(member);
  for (const std::int32_t read : kernel.reads) add(read);
}

void Plan::untouch(const Kernel& kernel, std::int32_t root) {
  const auto remove = [&](std::int32_t tensor) {
    if (tensor == root || !problem_->tensor(tensor).configurable) return;
    auto& roots = touched_by_[static_cast<std::size_t>(tensor)];
    *std::ranges::find(roots, root) = roots.back();
    roots.pop_back();
  };
  for (const std::int32_t member : kernel.members) remove(member);
  for (const std::int32_t read : kernel.reads) remove(read);
}

namespace {

// A sequence of random numbers that is the same everywhere (splitmix64), unlike the distributions of <random>.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // Returns a number in [0, 1).
  [[nodiscard]] double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Returns a whole number in [0, count); its bias is below count / 2^53.
  [[nodiscard]] std::size_t below(std::size_t count) { return static_cast<std::size_t>(uniform() * static_cast<double>(count)); }

 private:
  [[nodiscard]] std::uint64_t next() { return mix(state_++); }
  std::uint64_t state_;
};

}  // namespace

GibbsRecord sample_gibbs(Plan& plan, std::int64_t sweeps, double temperature_ms, std::uint64_t seed) {
  if (!(temperature_ms > 0) || sweeps < 0) {
    throw InvalidInput("Gibbs sampling takes a positive temperature in ms and a number of sweeps, got " + std::to_string(temperature_ms) + " and " + std::to_string(sweeps));
  }
  Random random(mix(seed));
  GibbsRecord record;
  std::vector<std::int32_t> order = plan.problem().configurable();
  for (std::int64_t sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.below(k)]);
    for (const std::int32_t tensor : order) {
      const double delta_ms = to_ms(plan.delta(tensor));
      const bool flips = random.uniform() * (1.0 + std::exp(delta_ms / temperature_ms)) < 1.0;
      if (flips) plan.flip({&tensor, 1});
      record.tensors.push_back(tensor);
      record.deltas_ms.push_back(delta_ms);
      record.flipped.push_back(flips ? 1 : 0);
    }
  }
  return record;
}

}  // namespace rlflow::fusion
