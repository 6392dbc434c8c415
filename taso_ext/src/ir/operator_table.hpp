// The table of known operators and their positions in it, which the files about operators share.
#pragma once

#include "ir/operators.hpp"

namespace rlflow::operators {

using enum Execution;

inline constexpr std::string_view kMicrosoft = "com.microsoft";

// The order is part of the observation, because operator ids are rows of an embedding: append, never reorder.
inline constexpr auto kOperators = std::to_array<OperatorInfo>({
    {"Conv", kKernel}, {"MatMul", kKernel}, {"Gemm", kKernel}, {"Add", kElementwise, true},
    {"Sub", kElementwise}, {"Mul", kElementwise, true}, {"Div", kElementwise}, {"Pow", kElementwise},
    {"Sum", kElementwise, true}, {"Max", kElementwise, true}, {"Min", kElementwise, true}, {"Relu", kElementwise},
    {"LeakyRelu", kElementwise}, {"PRelu", kElementwise}, {"Elu", kElementwise}, {"Selu", kElementwise},
    {"Celu", kElementwise, false, 12}, {"Sigmoid", kElementwise}, {"HardSigmoid", kElementwise}, {"HardSwish", kElementwise, false, 14},
    {"Mish", kElementwise, false, 18}, {"Softplus", kElementwise}, {"Softsign", kElementwise}, {"Tanh", kElementwise},
    {"Erf", kElementwise, false, 9}, {"Gelu", kElementwise, false, 20}, {"Exp", kElementwise}, {"Log", kElementwise},
    {"Sqrt", kElementwise}, {"Reciprocal", kElementwise}, {"Neg", kElementwise}, {"Abs", kElementwise},
    {"Floor", kElementwise}, {"Ceil", kElementwise}, {"Round", kElementwise, false, 11}, {"Sign", kElementwise, false, 9},
    {"Sin", kElementwise}, {"Cos", kElementwise}, {"Clip", kElementwise}, {"Cast", kElementwise},
    {"Not", kElementwise}, {"And", kElementwise, true}, {"Or", kElementwise, true}, {"Equal", kElementwise, true},
    {"Greater", kElementwise}, {"Less", kElementwise}, {"Where", kElementwise, false, 9}, {"BatchNormalization", kElementwise},
    {"Softmax", kKernel}, {"LogSoftmax", kKernel}, {"LayerNormalization", kKernel, false, 17}, {"InstanceNormalization", kKernel},
    {"GroupNormalization", kKernel, false, 18}, {"LRN", kKernel}, {"MaxPool", kKernel}, {"AveragePool", kKernel},
    {"GlobalAveragePool", kKernel}, {"GlobalMaxPool", kKernel}, {"ReduceSum", kKernel}, {"ReduceMean", kKernel},
    {"ReduceMax", kKernel}, {"ReduceMin", kKernel}, {"ReduceProd", kKernel}, {"ReduceL2", kKernel},
    {"ConvTranspose", kKernel}, {"Einsum", kKernel, false, 12}, {"ArgMax", kKernel}, {"TopK", kOpaque}, {"Concat", kMovement},
    {"Split", kSplit}, {"Slice", kMovement}, {"Transpose", kMovement}, {"Pad", kMovement}, {"Gather", kMovement},
    {"Expand", kMovement, false, 8}, {"Tile", kMovement}, {"Resize", kMovement, false, 10}, {"Upsample", kMovement},
    {"DepthToSpace", kMovement}, {"SpaceToDepth", kMovement}, {"Reshape", kView}, {"Flatten", kView},
    {"Squeeze", kView}, {"Unsqueeze", kView}, {"Identity", kView}, {"Dropout", kView}, {"Shape", kView},
    {"ConstantOfShape", kMovement}, {"Range", kMovement, false, 11}, {"LSTM", kKernel}, {"GRU", kKernel}, {"RNN", kKernel},
    {"Attention", kKernel, false, 23}, {"RMSNormalization", kKernel, false, 23}, {"RotaryEmbedding", kKernel, false, 23}, {"If", kOpaque},
    {"Loop", kOpaque}, {"Scan", kOpaque, false, 8}, {"Constant", kOpaque}, {"EyeLike", kOpaque},
    // The operators of ONNX Runtime. Pointwise ones are fused into the kernel that produces their operand.
    {"FusedMatMul", kKernel, false, 1, kMicrosoft}, {"FusedGemm", kKernel, false, 1, kMicrosoft},
    {"FusedConv", kKernel, false, 1, kMicrosoft}, {"BiasGelu", kElementwise, false, 1, kMicrosoft},
    {"FastGelu", kElementwise, false, 1, kMicrosoft}, {"QuickGelu", kElementwise, false, 1, kMicrosoft},
    {"SkipLayerNormalization", kKernel, false, 1, kMicrosoft},
    {"SkipSimplifiedLayerNormalization", kKernel, false, 1, kMicrosoft},
    {"MultiHeadAttention", kKernel, false, 1, kMicrosoft},
});

constexpr OperatorId index_of(std::string_view name) {
  for (std::size_t i = 0; i < kOperators.size(); ++i) {
    if (kOperators[i].name == name) return static_cast<OperatorId>(i);
  }
  throw "operator missing from the table";
}

inline constexpr OperatorId kConv = index_of("Conv"), kMatMul = index_of("MatMul"), kGemm = index_of("Gemm"),
                     kCast = index_of("Cast"), kBatchNorm = index_of("BatchNormalization"), kConcat = index_of("Concat"),
                     kSplitOp = index_of("Split"), kSlice = index_of("Slice"), kTranspose = index_of("Transpose"),
                     kPad = index_of("Pad"), kReshape = index_of("Reshape"), kReduceSum = index_of("ReduceSum"),
                     kReduceL2 = index_of("ReduceL2"), kGather = index_of("Gather"), kSoftmax = index_of("Softmax"),
                     kLogSoftmax = index_of("LogSoftmax"), kLayerNorm = index_of("LayerNormalization"),
                     kMaxPool = index_of("MaxPool"), kAveragePool = index_of("AveragePool"),
                     kFirstUnary = index_of("Relu"), kClip = index_of("Clip"), kAdd = index_of("Add"),
                     kMin = index_of("Min"), kConvTranspose = index_of("ConvTranspose"), kAttention = index_of("Attention"),
                     kArgMax = index_of("ArgMax"), kEinsum = index_of("Einsum"), kDropout = index_of("Dropout"), kLrn = index_of("LRN"), kDepthToSpace = index_of("DepthToSpace"), kSpaceToDepth = index_of("SpaceToDepth"),
                     kConstant = index_of("Constant"), kConstantOfShape = index_of("ConstantOfShape"), kEyeLike = index_of("EyeLike"),
                     kExpand = index_of("Expand"), kWhere = index_of("Where"),
                     kEqual = index_of("Equal"), kLess = index_of("Less"), kNot = index_of("Not"), kOr = index_of("Or"),
                     kInstanceNorm = index_of("InstanceNormalization"), kGroupNorm = index_of("GroupNormalization"),
                     kGlobalAveragePool = index_of("GlobalAveragePool"), kGlobalMaxPool = index_of("GlobalMaxPool"),
                     kRmsNorm = index_of("RMSNormalization"), kRotary = index_of("RotaryEmbedding"), kPRelu = index_of("PRelu"),
                     kFusedMatMul = index_of("FusedMatMul"), kFusedGemm = index_of("FusedGemm"), kFusedConv = index_of("FusedConv"),
                     kBiasGelu = index_of("BiasGelu"), kFastGelu = index_of("FastGelu"), kQuickGelu = index_of("QuickGelu"),
                     kSkipNorm = index_of("SkipLayerNormalization"), kSkipRmsNorm = index_of("SkipSimplifiedLayerNormalization"),
                     kMultiHead = index_of("MultiHeadAttention");

static_assert(kOperators.size() <= OperatorSet::kMost, "give OperatorSet another word");

}  // namespace rlflow::operators
