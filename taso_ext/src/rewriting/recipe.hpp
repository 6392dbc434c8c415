// Recipes: what a rule makes of a match, as far as signatures decide it. A recipe is computed once and then only filled
// in with ids.
#pragma once

#include <memory>
#include <mutex>

#include "rewriting/reading.hpp"

namespace rlflow {

// A reference to the k-th tensor of a match (the number k) or to the k-th value that the rewrite creates (-2 - k).
using ValueRef = std::int32_t;
[[nodiscard]] constexpr ValueRef new_value(std::size_t index) { return -2 - static_cast<ValueRef>(index); }
[[nodiscard]] constexpr bool is_new(ValueRef ref) { return ref <= -2; }
[[nodiscard]] constexpr std::size_t new_index(ValueRef ref) { return static_cast<std::size_t>(-2 - ref); }

struct NewNode {
  SignatureId signature = 0;
  std::uint32_t operand_begin = 0, operand_count = 0;    // range of Recipe::operands
  std::uint32_t first_value = 0, value_count = 0;        // range of Recipe::values, which it creates
  std::uint32_t site_of = 0;                             // the matched node whose site it takes
  bool weight_only = false;
};

struct NewValue {
  TypeId type = 0;
  std::uint32_t producer = 0;    // index into Recipe::nodes
};

// What a rule makes of all matches of one key. A match is laid out flat: its nodes by source statement, then its
// tensors by value slot, lists element by element. Invariant of a legal recipe: filled in with any such match, it gives
// a valid graph unless it closes a cycle.
struct Recipe {
  std::vector<std::uint32_t> key;    // see RecipeBook
  bool legal = false;
  std::uint32_t node_count = 0, value_count = 0;
  std::vector<char> kept;            // by matched node: whether it stays as it is
  std::uint32_t root = 0;            // position of the matched node that gives the match its site
  std::vector<NewNode> nodes;
  std::vector<NewValue> values;
  std::vector<ValueRef> operands;
  std::vector<std::pair<std::uint32_t, ValueRef>> replaced;    // tensor of the match, what its readers read instead
};

// All recipes met so far, shared by all threads. The key of a recipe is its rule, the roles of the matched operators by
// source statement (preceded by their number if the statement is mapped), and a bit for each tensor of a variable, in
// slot order, that says whether it is a weight.
class RecipeBook {
 public:
  explicit RecipeBook(std::shared_ptr<Context> context, const std::vector<Rule>& rules) : context_(std::move(context)), rules_(rules) {}
  [[nodiscard]] const Recipe& find(std::span<const std::uint32_t> key);

 private:
  std::shared_ptr<Context> context_;
  const std::vector<Rule>& rules_;
  std::mutex mutex_;
  std::unordered_map<std::u32string, std::unique_ptr<const Recipe>> known_;
};

}  // namespace rlflow
