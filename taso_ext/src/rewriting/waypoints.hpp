// Waypoints: graphs, found elsewhere, that compute what a start graph computes, and to which a step may go at once.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ir/graph.hpp"

namespace rlflow {

// The waypoints of one start graph, numbered in the order in which they came. Invariant: no two are equal. Several
// threads may use it. That a waypoint computes the same is what its finder says; no rule has proved it.
class Waypoints {
 public:
  // Returns the number of a graph; one that is there already keeps its number.
  std::int32_t add(Graph graph);
  // Returns a waypoint; nothing if no graph has this number.
  [[nodiscard]] std::optional<Graph> find(std::int32_t number) const;
  [[nodiscard]] std::int32_t size() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Graph> graphs_;
};

// Throws InvalidInput if two graphs differ in the number or the types of their inputs or outputs.
void require_same_interface(const Graph& one, const Graph& other);

}  // namespace rlflow
