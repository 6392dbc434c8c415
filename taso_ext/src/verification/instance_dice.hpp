// Random numbers for random instances of rules.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>

#include "ir/types.hpp"

namespace rlflow {

class Dice {
 public:
  // `stretch` is added to extents other than 1.
  Dice(std::uint64_t seed, std::int64_t stretch) : random_(seed), stretch_(stretch) {}

  std::int64_t pick(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  // Decides whether all extents of tensors are from here on 1 or one common number, or differ at random. A rule that is
  // wrong only if two extents happen to be equal, or if a tensor is broadcast, hardly ever fails on extents that
  // differ.
  void make_alike(bool alike) {
    alike_ = alike;
    if (!alike) return;
    common_ = pick(0, 2) == 0 ? pick(3, 4) : 2;
    ones_ = 20 * static_cast<int>(pick(0, 2));
  }
  bool alike() const { return alike_; }
  // What is as large as in real networks. All else is then as small as possible, because evaluation takes long
  // otherwise.
  enum class Large : std::uint8_t { kNothing, kChannels, kWindows, kLists };
  void make_large(Large large) { large_ = large; }
  bool large(Large what) const { return large_ == what; }
  std::int64_t stretch() const { return stretch_; }
  // Returns an extent of a tensor.
  std::int64_t size_within(std::int64_t low, std::int64_t high) {
    if (large_ == Large::kLists && chance(20)) return pick(30, 40);    // which can be split into as many parts
    const std::int64_t most = large_ == Large::kNothing ? high : std::max<std::int64_t>(low, 2);
    const std::int64_t drawn = !alike_ ? pick(low, most) : chance(ones_) ? 1 : common_;
    return drawn == 1 ? 1 : drawn + stretch_;
  }
  // Tells how many windows in a row slide over one another's results. Only long axes hold several of each, with a rest.
  void expect_windows(int in_a_row) { windows_ = in_a_row; }
  bool windows_in_a_row() const { return windows_ > 1; }
  // Returns numbers for the axes along which a window slides; all are the same if extents are alike.
  Dims sides(std::size_t count, std::int64_t low, std::int64_t high) {
    return alike_ ? Dims(count, pick(low, high)) : list_of(count, low, high);
  }
  // Returns such numbers; if windows are large, they are mostly up to `most`.
  Dims sides(std::size_t count, std::int64_t low, std::int64_t high, std::int64_t most) {
    return sides(count, low, large_ == Large::kWindows && chance(70) ? most : high);
  }
  Dims list_of(std::size_t count, std::int64_t low, std::int64_t high) {
    Dims out(count);
    for (std::int64_t& item : out) item = pick(low, high);
    return out;
  }
  template <typename List>
  const auto& any_of(const List& list) {
    return list[static_cast<std::size_t>(pick(0, std::ssize(list) - 1))];
  }
  template <typename List>
  void shuffle(List& list) {
    std::shuffle(list.begin(), list.end(), random_);
  }
  std::int64_t any_divisor(std::int64_t number) {
    const Dims divisors = divisors_of(number);
    return divisors.empty() ? 1 : any_of(divisors);
  }
  // Returns a number with a special meaning, or one of any size from 10^-6 to 5000 and either sign. All are simple, so
  // that the exact test recognises their products and quotients although attributes are rounded.
  double any_real() {
    if (!literals_.empty() && chance(30)) return any_of(literals_);
    if (chance(10)) return 0;
    if (chance(50)) return any_of(kReals);
    if (chance(40)) return static_cast<double>(pick(2, 99));
    const double size = static_cast<double>(any_of(std::array{1, 2, 5})) * std::pow(10.0, static_cast<double>(pick(-6, 3)));
    return chance(35) ? -size : size;
  }
  // Makes any_real() return numbers around one that the rule mentions. Where products of larger ones overflow, only
  // their order decides.
  void add_real(double real) {
    if (std::abs(real) > kMostReal) return;
    for (const double each : {real, real, real * 1.25, real * 0.8, real + 0.125, real - 0.125}) literals_.insert(literals_.end(), {each, -each});
    if (real != 0) literals_.push_back(1 / real);
  }
  // Makes extents be near a number that the rule mentions.
  void add_extent(std::int64_t extent) {
    if (extent > 1 && extent <= kMostExtentDrawn) extents_.push_back(extent);
  }
  // Makes extents be such that the norm of as many ones, the square root of their number, is a little above a number that
  // the rule mentions: there a bound on normalised elements decides.
  void add_square(double real) {
    for (const double share : {1.0, 1.6}) add_extent(static_cast<std::int64_t>(std::min(real * real * share, 1e6)) + 1);
  }
  // Returns, now and then, an extent near one that the rule mentions, or a large one. There is at most one of them in a
  // graph.
  std::optional<std::int64_t> unusual_extent() {
    if (unusual_ || stretch_ > 0 || large_ != Large::kNothing) return std::nullopt;
    const bool near = !extents_.empty() && chance(15);
    if (!near && !chance(2)) return std::nullopt;
    unusual_ = true;
    return near ? std::max<std::int64_t>(1, any_of(extents_) + pick(-1, 1)) : any_of(std::array<std::int64_t, 4>{16, 16, 65, 257});
  }
  void begin_graph() { unusual_ = false; }

 private:
  // Returns the divisors in ascending order.
  static Dims divisors_of(std::int64_t number) {
    Dims low, high;
    for (std::int64_t d = 1; d * d <= number; ++d) {
      if (number % d != 0) continue;
      low.push_back(d);
      if (d * d != number) high.push_back(number / d);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
  }

  std::mt19937_64 random_;
  std::int64_t stretch_;
  int windows_ = 0;
  bool alike_ = false;
  Large large_ = Large::kNothing;
  std::int64_t common_ = 2;    // if extents are alike: the one that is not 1,
  int ones_ = 0;               // and how many in a hundred are 1
  bool unusual_ = false;       // whether the graph has an unusual extent
  // Corner values of attributes and constants: usual factors, slopes, exponents and epsilons.
  static constexpr std::array<double, 16> kReals = {0.25, 0.5, 1, 2, 3, -1, 1e-5, 0, 0.7, -2.5, 1.5, 3.5, 5, 10, -0.3, 1e-12};
  static constexpr std::int64_t kMostExtentDrawn = 260;
  static constexpr double kMostReal = 1e30;
  std::vector<double> literals_;        // of the rule, and numbers around them
  std::vector<std::int64_t> extents_;
};

}  // namespace rlflow
