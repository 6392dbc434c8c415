#include "placement/machine.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "ir/types.hpp"

namespace rlflow::placement {

void check(const Machine& machine) {
  const std::size_t devices = machine.memory_bytes.size();
  if (devices == 0) throw InvalidInput("a machine needs at least one device");
  for (const double bytes : machine.memory_bytes) {
    if (!(bytes >= 0)) throw InvalidInput("the memory of a device must not be negative");
  }
  for (const double rate : machine.channel_bytes_per_ms) {
    if (!(rate > 0) || std::isinf(rate)) throw InvalidInput("the bandwidth of a channel must be positive and finite");
  }
  if (machine.routes.size() != devices * devices) {
    throw InvalidInput("expected " + std::to_string(devices * devices) + " routes, got " + std::to_string(machine.routes.size()));
  }
  for (std::size_t index = 0; index < machine.routes.size(); ++index) {
    const Route& route = machine.routes[index];
    if (!(route.latency_ms >= 0) || std::isinf(route.latency_ms)) throw InvalidInput("a latency must not be negative or infinite");
    if (index / devices != index % devices && route.channels.empty()) {
      throw InvalidInput("there is no route from device " + std::to_string(index / devices) + " to device " + std::to_string(index % devices));
    }
    for (const ChannelId channel : route.channels) {
      if (channel < 0 || static_cast<std::size_t>(channel) >= machine.channel_bytes_per_ms.size()) {
        throw InvalidInput("a route uses channel " + std::to_string(channel) + ", which does not exist");
      }
    }
  }
}

FairShares::FairShares(const Machine& machine)
    : machine_(machine), left_(machine.channel_bytes_per_ms.size()), waiting_(machine.channel_bytes_per_ms.size(), 0) {}

void FairShares::share(std::span<const Route* const> flows, std::vector<double>& rates) {
  constexpr double kNone = -1;
  rates.assign(flows.size(), kNone);
  used_.clear();
  for (const Route* flow : flows) {
    for (const ChannelId channel : flow->channels) {
      if (waiting_[channel]++ == 0) {
        used_.push_back(channel);
        left_[channel] = machine_.channel_bytes_per_ms[channel];
      }
    }
  }
  for (std::size_t open = flows.size(); open > 0;) {
    double least = std::numeric_limits<double>::infinity();
    ChannelId narrowest = 0;
    for (const ChannelId channel : used_) {
      if (waiting_[channel] > 0 && left_[channel] / waiting_[channel] < least) {
        least = left_[channel] / waiting_[channel];
        narrowest = channel;
      }
    }
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      if (rates[flow] != kNone) continue;
      bool passes = false;
      for (const ChannelId channel : flows[flow]->channels) passes |= channel == narrowest;
      if (!passes) continue;
      rates[flow] = least;
      --open;
      for (const ChannelId channel : flows[flow]->channels) {
        left_[channel] -= least;
        --waiting_[channel];
      }
    }
  }
}

}  // namespace rlflow::placement
