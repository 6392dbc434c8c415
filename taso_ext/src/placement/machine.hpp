// Machines for the simulation of placements: devices, and the channels that copies between devices share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rlflow::placement {

using DeviceId = std::int32_t;
using ChannelId = std::int32_t;

// The way of copies from one device to another: the channels that they occupy at once, and the time before the first byte.
struct Route {
  std::vector<ChannelId> channels;
  double latency_ms = 0;
};

// Invariant: `routes` has a row of `device_count()` routes for each device, and each route between two different devices
// has at least one channel.
struct Machine {
  std::vector<double> memory_bytes;           // by device
  std::vector<double> channel_bytes_per_ms;   // by channel; one direction of a link
  std::vector<Route> routes;                  // by source, then by destination

  [[nodiscard]] DeviceId device_count() const { return static_cast<DeviceId>(memory_bytes.size()); }
  [[nodiscard]] const Route& route(DeviceId from, DeviceId to) const {
    return routes[static_cast<std::size_t>(from) * memory_bytes.size() + static_cast<std::size_t>(to)];
  }
};

// Throws InvalidInput if the invariant does not hold or a number is out of range.
void check(const Machine& machine);

// Sets the rate of each flow by max-min fairness: all flows get equal shares of each channel, and what a flow cannot use
// because of another channel is shared by the others (progressive filling, Bertsekas and Gallager 1992, section 6.5.2).
class FairShares {
 public:
  explicit FairShares(const Machine& machine);
  // `flows` are the routes that are in use; `rates` gets the bytes per ms of each.
  void share(std::span<const Route* const> flows, std::vector<double>& rates);

 private:
  const Machine& machine_;
  std::vector<double> left_;              // bytes per ms of each channel that are not yet given away
  std::vector<std::int32_t> waiting_;     // flows of each channel that have no rate yet
  std::vector<ChannelId> used_;
};

}  // namespace rlflow::placement
