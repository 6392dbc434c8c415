#include "generator/plan.hpp"

#include <algorithm>
#include <numeric>

namespace rlflow::generator {
namespace {

using Attributes = std::vector<std::int32_t>;

constexpr std::size_t kMostRank = 6;
// The fewest elements of a comparison. Each of them has two outcomes, so that a few may agree by chance; 20 agree in
// both primes with probability 2^-40.
constexpr std::uint32_t kLeastCompared = 20;

// Returns row-major strides.
Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// Calls visit(index) for every index of a tensor, in order.
template <typename Visit>
void for_each_index(const Dims& dims, Visit visit) {
  Dims index(dims.size(), 0);
  for (std::int32_t left = elements_of(dims); left > 0; --left) {
    visit(index);
    for (std::size_t axis = dims.size(); axis-- > 0;) {
      if (++index[axis] < dims[axis]) break;
      index[axis] = 0;
    }
  }
}

std::int32_t offset_of(const Dims& index, const Dims& strides) {
  return std::inner_product(index.begin(), index.end(), strides.begin(), 0);
}

std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int32_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = std::max(x, y);
  }
  return out;
}

// Returns the strides by which an operand is read if it is broadcast to `rank` axes.
Dims broadcast_strides(const Dims& dims, std::size_t rank) {
  Dims strides(rank, 0);
  const Dims own = strides_of(dims);
  for (std::size_t i = 0; i < dims.size(); ++i) strides[rank - dims.size() + i] = dims[i] == 1 ? 0 : own[i];
  return strides;
}

// Builds the table of one operator, shape set by shape set.
class Builder {
 public:
  Builder(const Operator& op, Plan& plan) : op_(op), plan_(plan) {}

  bool add(const Dims& a, const Dims* b, const Attributes& attributes) {
    a_ = &a, b_ = b, attributes_ = &attributes;
    return build();
  }
  // Moves on to the operands of the next shape set.
  void advance() {
    a_begin_ += elements_of(*a_);
    if (b_) b_begin_ += elements_of(*b_);
  }
  const Dims& result() const { return out_; }

 private:
  bool build() {
    switch (op_.kind) {
      case Kind::kAdd: return elementwise(Kernel::kAdd);
      case Kind::kSub: return elementwise(Kernel::kSub);
      case Kind::kMul: return elementwise(Kernel::kMul);
      case Kind::kScale: return elements_of(*b_) == 1 && elements_of(*a_) > 1 && elementwise(Kernel::kMul);
      case Kind::kDiv: return elementwise(Kernel::kDiv);
      case Kind::kMax: return elementwise(Kernel::kMax);
      case Kind::kMatMul: return matmul();
      case Kind::kConv: return convolution();
      case Kind::kConcat: return concat();
      case Kind::kSplit: return split();
      case Kind::kSlice: return slice();
      case Kind::kTranspose: return transpose();
      case Kind::kMerge:
      case Kind::kUnmerge:
      case Kind::kInsert:
      case Kind::kDrop: return reshape();
      case Kind::kPad: return pad();
      case Kind::kReduceSum: return reduce(Kernel::kLinear, false);
      case Kind::kReduceMean: return reduce(Kernel::kLinear, true);
      case Kind::kReduceMax: return reduce(Kernel::kMaxOfRows, false);
      case Kind::kAveragePool: return pool(Kernel::kLinear);
      case Kind::kMaxPool: return pool(Kernel::kMaxOfRows);
      default: return pointwise();
    }
  }

  std::int32_t at(std::size_t i) const { return (*attributes_)[i]; }
  std::uint16_t left(std::int32_t offset) const { return static_cast<std::uint16_t>(a_begin_ + offset); }
  std::uint16_t right(std::int32_t offset) const { return static_cast<std::uint16_t>(b_begin_ + offset); }
  void end_row() {
    if (plan_.rows.empty()) plan_.rows.push_back(0);
    plan_.rows.push_back(static_cast<std::uint32_t>(plan_.left.size()));
  }
  bool small_enough() const { return elements_of(out_) <= kMostElements; }

  // There are no attributes.
  bool elementwise(Kernel kernel) {
    plan_.kernel = kernel;
    const auto dims = broadcast(*a_, *b_);
    if (!dims) return false;
    out_ = *dims;
    if (!small_enough()) return false;
    const Dims a = broadcast_strides(*a_, out_.size()), b = broadcast_strides(*b_, out_.size());
    for_each_index(out_, [&](const Dims& index) {
      plan_.left.push_back(left(offset_of(index, a)));
      plan_.right.push_back(right(offset_of(index, b)));
    });
    return true;
  }

  bool pointwise() {
    plan_.kernel = Kernel::kPointwise;
    out_ = *a_;
    return true;
  }

  // There are no attributes; leading dimensions are broadcast.
  bool matmul() {
    plan_.kernel = Kernel::kBilinear;
    const Dims &a = *a_, &b = *b_;
    if (a.size() < 2 || b.size() < 2 || a.back() != b[b.size() - 2]) return false;
    const auto batch = broadcast(Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - 2));
    if (!batch) return false;
    out_ = *batch;
    out_.insert(out_.end(), {a[a.size() - 2], b.back()});
    if (!small_enough()) return false;
    Dims sa = broadcast_strides(a, out_.size()), sb = broadcast_strides(b, out_.size());
    const std::int32_t step_a = sa.back(), step_b = sb[sb.size() - 2], depth = a.back();
    sa.back() = 0, sb[sb.size() - 2] = 0;
    for_each_index(out_, [&](const Dims& index) {
      for (std::int32_t i = 0; i < depth; ++i) {
        plan_.left.push_back(left(offset_of(index, sa) + i * step_a));
        plan_.right.push_back(right(offset_of(index, sb) + i * step_b));
      }
      end_row();
    });
    return true;
  }

  // Appends the number of windows along each spatial axis to the result's extents. Returns false if a window does not
  // fit or the result is too large.
  bool slide(const Dims& kernel, std::size_t first) {
    const std::size_t spatial = kernel.size();
    for (std::size_t i = 0; i < spatial; ++i) {
      const std::int32_t stride = at(first + i), begin = at(first + spatial + i), end = at(first + 2 * spatial + i);
      const std::int32_t reach = (kernel[i] - 1) * at(first + 3 * spatial + i) + 1;
      const std::int32_t room = (*a_)[i + 2] + begin + end - reach;
      if (room < 0) return false;
      out_.push_back(room / stride + 1);
    }
    return small_enough();
  }

  // Calls visit(offset in the window, offset in the input) for all places of the window at `index` that are not padding.
  template <typename Visit>
  void in_window(const Dims& index, const Dims& kernel, std::size_t first, Visit visit) {
    const Dims strides = strides_of(*a_), window = strides_of(kernel);
    const std::size_t spatial = kernel.size();
    for_each_index(kernel, [&](const Dims& place) {
      std::int32_t offset = 0;
      for (std::size_t i = 0; i < spatial; ++i) {
        const std::int32_t position = index[i + 2] * at(first + i) - at(first + spatial + i) + place[i] * at(first + 3 * spatial + i);
        if (position < 0 || position >= (*a_)[i + 2]) return;
        offset += position * strides[i + 2];
      }
      visit(offset_of(place, window), offset);
    });
  }

  // The attributes are: group, strides, pads at the begin, pads at the end, dilations.
  bool convolution() {
    plan_.kernel = Kernel::kBilinear;
    const Dims &x = *a_, &w = *b_;
    const std::int32_t group = at(0);
    if (x.size() < 3 || w.size() != x.size() || attributes_->size() != 1 + 4 * (x.size() - 2)) return false;
    if (x[1] != w[1] * group || w[0] % group != 0) return false;
    const Dims kernel(w.begin() + 2, w.end());
    out_ = {x[0], w[0]};
    if (!slide(kernel, 1)) return false;
    const Dims sx = strides_of(x), sw = strides_of(w);
    const std::int32_t filters = w[0] / group;
    bool touched = true;    // a window wholly inside the padding has no entries, which kernels do not expect
    for_each_index(out_, [&](const Dims& index) {
      const std::size_t before = plan_.left.size();
      for (std::int32_t c = 0; c < w[1]; ++c) {
        const std::int32_t from = index[0] * sx[0] + (index[1] / filters * w[1] + c) * sx[1];
        in_window(index, kernel, 1, [&](std::int32_t place, std::int32_t offset) {
          plan_.left.push_back(left(from + offset));
          plan_.right.push_back(right(index[1] * sw[0] + c * sw[1] + place));
        });
      }
      touched = touched && plan_.left.size() > before;
      end_row();
    });
    return touched;
  }

  // The attributes are: count_include_pad (averages only, else 0), kernel, strides, pads at the begin, pads at the end,
  // dilations.
  bool pool(Kernel how) {
    plan_.kernel = how;
    const Dims& x = *a_;
    const std::size_t spatial = x.size() < 3 ? 0 : x.size() - 2;
    if (spatial == 0 || attributes_->size() != 1 + 5 * spatial) return false;
    const Dims kernel(attributes_->begin() + 1, attributes_->begin() + 1 + static_cast<std::ptrdiff_t>(spatial));
    out_ = {x[0], x[1]};
    if (!slide(kernel, 1 + spatial)) return false;
    const Dims sx = strides_of(x);
    bool touched = true;
    for_each_index(out_, [&](const Dims& index) {
      const std::size_t before = plan_.left.size();
      in_window(index, kernel, 1 + spatial, [&](std::int32_t, std::int32_t offset) {
        plan_.left.push_back(left(index[0] * sx[0] + index[1] * sx[1] + offset));
      });
      touched = touched && plan_.left.size() > before;
      if (how == Kernel::kLinear) scale(at(0) ? elements_of(kernel) : static_cast<std::int32_t>(plan_.left.size() - before));
      end_row();
    });
    return touched;
  }

  void scale(std::int32_t divisor) {
    plan_.scales[0].push_back(First::inverse(static_cast<Element>(divisor)));
    plan_.scales[1].push_back(Second::inverse(static_cast<Element>(divisor)));
  }

  // The attributes are: keepdims, axes.
  bool reduce(Kernel how, bool mean) {
    plan_.kernel = how;
    const Dims& x = *a_;
    Dims inner, outer;
    std::vector<bool> reduced(x.size());
    for (std::size_t i = 1; i < attributes_->size(); ++i) {
      if (at(i) >= static_cast<std::int32_t>(x.size()) || x[at(i)] == 1) return false;
      reduced[at(i)] = true;
    }
    Dims inner_strides, outer_strides;
    const Dims strides = strides_of(x);
    out_.clear();
    for (std::size_t i = 0; i < x.size(); ++i) {
      (reduced[i] ? inner : outer).push_back(x[i]);
      (reduced[i] ? inner_strides : outer_strides).push_back(strides[i]);
      if (!reduced[i] || at(0)) out_.push_back(reduced[i] ? 1 : x[i]);
    }
    for_each_index(outer, [&](const Dims& index) {
      const std::int32_t from = offset_of(index, outer_strides);
      for_each_index(inner, [&](const Dims& within) { plan_.left.push_back(left(from + offset_of(within, inner_strides))); });
      if (mean) scale(elements_of(inner));
      end_row();
    });
    return true;
  }

  // The attribute is: axis.
  bool concat() {
    plan_.kernel = Kernel::kGather;
    const std::size_t axis = at(0);
    if (a_->size() != b_->size() || axis >= a_->size()) return false;
    for (std::size_t i = 0; i < a_->size(); ++i) {
      if (i != axis && (*a_)[i] != (*b_)[i]) return false;
    }
    out_ = *a_;
    out_[axis] += (*b_)[axis];
    if (!small_enough()) return false;
    const Dims sa = strides_of(*a_), sb = strides_of(*b_);
    for_each_index(out_, [&](const Dims& index) {
      Dims shifted = index;
      shifted[axis] -= (*a_)[axis];
      plan_.left.push_back(shifted[axis] < 0 ? left(offset_of(index, sa)) : right(offset_of(shifted, sb)) | Plan::kRight);
    });
    return true;
  }

  bool cut(std::size_t axis, std::int32_t begin, std::int32_t end) {
    plan_.kernel = Kernel::kGather;
    out_ = *a_;
    out_[axis] = end - begin;
    const Dims strides = strides_of(*a_);
    for_each_index(out_, [&](const Dims& index) { plan_.left.push_back(left(offset_of(index, strides) + begin * strides[axis])); });
    return true;
  }

  // The attributes are: axis, extent of the first part, port.
  bool split() {
    const std::int32_t axis = at(0), first = at(1);
    if (axis >= static_cast<std::int32_t>(a_->size()) || first >= (*a_)[axis]) return false;
    return at(2) == 0 ? cut(axis, 0, first) : cut(axis, first, (*a_)[axis]);
  }

  // The attributes are: axis, start, end.
  bool slice() {
    const std::int32_t axis = at(0);
    if (axis >= static_cast<std::int32_t>(a_->size()) || at(2) > (*a_)[axis] || at(2) - at(1) == (*a_)[axis]) return false;
    return cut(axis, at(1), at(2));
  }

  // The attributes are the permutation.
  bool transpose() {
    plan_.kernel = Kernel::kGather;
    if (attributes_->size() != a_->size()) return false;
    const Dims strides = strides_of(*a_);
    Dims permuted;
    out_.clear();
    for (const std::int32_t from : *attributes_) {
      out_.push_back((*a_)[from]);
      permuted.push_back(strides[from]);
    }
    for_each_index(out_, [&](const Dims& index) { plan_.left.push_back(left(offset_of(index, permuted))); });
    return true;
  }

  // The attributes are: axis and, if it is cut in two, the extent of the first part.
  bool reshape() {
    plan_.kernel = Kernel::kGather;
    const std::size_t axis = at(0), rank = a_->size();
    out_ = *a_;
    const auto place = out_.begin() + static_cast<std::ptrdiff_t>(axis);
    if (op_.kind == Kind::kMerge) {
      if (axis + 1 >= rank || out_[axis] == 1 || out_[axis + 1] == 1) return false;
      *place *= *(place + 1);
      out_.erase(place + 1);
    } else if (op_.kind == Kind::kUnmerge) {
      if (axis >= rank || rank == kMostRank || out_[axis] % at(1) != 0 || out_[axis] <= at(1)) return false;
      *place /= at(1);
      out_.insert(place, at(1));
    } else if (op_.kind == Kind::kInsert) {
      if (axis > rank || rank == kMostRank) return false;
      out_.insert(place, 1);
    } else {
      if (axis >= rank || out_[axis] != 1) return false;
      out_.erase(place);
    }
    for (std::int32_t i = 0; i < elements_of(out_); ++i) plan_.left.push_back(left(i));
    return true;
  }

  // The attributes are the extents added before all axes, then those added behind.
  bool pad() {
    plan_.kernel = Kernel::kGather;
    const std::size_t rank = a_->size();
    if (attributes_->size() != 2 * rank) return false;
    out_ = *a_;
    for (std::size_t i = 0; i < rank; ++i) out_[i] += at(i) + at(rank + i);
    if (!small_enough()) return false;
    const Dims strides = strides_of(*a_);
    for_each_index(out_, [&](const Dims& index) {
      std::int32_t offset = 0;
      for (std::size_t i = 0; i < rank && offset >= 0; ++i) {
        const std::int32_t position = index[i] - at(i);
        offset = position < 0 || position >= (*a_)[i] ? -1 : offset + position * strides[i];
      }
      plan_.left.push_back(offset < 0 ? Plan::kZero : left(offset));
    });
    return true;
  }

  const Operator& op_;
  Plan& plan_;
  const Dims *a_ = nullptr, *b_ = nullptr;
  const Attributes* attributes_ = nullptr;
  std::int32_t a_begin_ = 0, b_begin_ = 0;
  Dims out_;
};

// Returns whether a table is the identity, which costs time and says nothing.
bool counts_up(const std::vector<std::uint16_t>& table) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] != i) return false;
  }
  return true;
}

}  // namespace

std::int32_t elements_of(const Dims& dims) { return std::accumulate(dims.begin(), dims.end(), 1, std::multiplies<>()); }

std::uint64_t key_of(const Shapes& shapes) {
  std::uint64_t key = shapes.size();
  for (const Dims& dims : shapes) {
    key = mix(key ^ dims.size());
    for (const std::int32_t extent : dims) key = mix(key ^ static_cast<std::uint64_t>(extent));
  }
  return key;
}

std::optional<Plan> make_plan(const Operator& op, std::uint64_t key, const Shapes& a, const Shapes* b) {
  Plan plan;
  plan.kind = op.kind;
  plan.key = key;
  static const std::vector<std::int32_t> kNone;
  Builder builder(op, plan);
  for (std::size_t set = 0; set < a.size(); ++set) {
    if (!builder.add(a[set], b ? &(*b)[set] : nullptr, op.attributes.empty() ? kNone : op.attributes[set])) return std::nullopt;
    plan.elements += static_cast<std::uint32_t>(elements_of(builder.result()));
    plan.shapes.push_back(builder.result());
    builder.advance();
  }
  const bool compares = plan.kind == Kind::kRelu || plan.kernel == Kernel::kMax || plan.kernel == Kernel::kMaxOfRows;
  if (compares && plan.elements < kLeastCompared) return std::nullopt;
  plan.shape_key = key_of(plan.shapes);
  const bool paired = plan.kernel >= Kernel::kAdd && plan.kernel <= Kernel::kMax;
  if (paired && counts_up(plan.left) && counts_up(plan.right)) plan.left.clear(), plan.right.clear();
  return plan;
}

}  // namespace rlflow::generator
