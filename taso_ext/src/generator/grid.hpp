// What is enumerated: variables and constants with their shapes, and operators with their attributes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace rlflow::generator {

using Dims = std::vector<std::int32_t>;
using Shapes = std::vector<Dims>;    // one for each shape set

inline constexpr std::int32_t kMostElements = 256;    // most elements of a tensor, as in the papers
inline constexpr std::uint32_t kLeaf = 0xfff;         // the operator of variables and constants

// What operators compute. The comment of each builder in plan.cpp says how the attributes are laid out.
enum class Kind : std::uint8_t {
  kAdd, kSub, kMul, kScale, kDiv, kMax, kMatMul, kConv, kConcat, kSplit, kSlice, kTranspose, kMerge, kUnmerge, kInsert, kDrop, kPad,
  kReduceSum, kReduceMean, kReduceMax, kAveragePool, kMaxPool, kRelu, kNeg, kReciprocal, kFunction, kZeroFixing,
};

struct Operator {
  std::string name;                                  // unique
  Kind kind = Kind::kAdd;
  int operands = 1;
  bool symmetric = false;
  bool linear = false;                               // belongs to the subset that is enumerated further
  std::int32_t node = 0;                             // equal for the results of one operator: the ports of a Split
  std::vector<std::vector<std::int32_t>> attributes;    // for each shape set
};

struct Leaf {
  enum class Content : std::uint8_t { kVariable, kZero, kOne, kIdentity, kIdentityKernel, kAveragingKernel };
  std::string name;
  Content content = Content::kVariable;
  Shapes shapes;
};

struct Grid {
  std::vector<Leaf> leaves;
  std::vector<Operator> operators;
  int most_operators = 3;          // most operators of an expression
  int most_linear_operators = 3;   // most operators of one that has linear operators alone
  std::uint64_t seed = 0;
  int threads = 1;
};

}  // namespace rlflow::generator
