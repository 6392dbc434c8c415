#include "verification/instance_attributes.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>

namespace rlflow {
namespace {

constexpr int kFloat = 1;    // TensorProto.FLOAT

const Attribute* find_unsorted(const AttributeMap& map, std::string_view name) {
  const auto at = std::find_if(map.begin(), map.end(), [&](const auto& entry) { return entry.first == name; });
  return at == map.end() ? nullptr : &at->second;
}

// Returns the names of the attributes in the normal form of an operator, in ascending order; none for operators not
// listed here.
std::vector<std::string> attribute_names(std::string_view op) {
  static const std::unordered_map<std::string_view, std::vector<std::string>> names = {
      {"ArgMax", {"axis", "keepdims", "select_last_index"}},
      {"AveragePool", {"ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"}},
      {"Attention", {"is_causal", "scale", "softcap"}},
      {"BatchNormalization", {"epsilon"}},
      {"Celu", {"alpha"}},
      {"Concat", {"axis"}},
      {"Conv", {"dilations", "group", "kernel_shape", "pads", "strides"}},
      {"ConvTranspose", {"dilations", "group", "kernel_shape", "output_padding", "pads", "strides"}},
      {"DepthToSpace", {"blocksize", "mode"}},
      {"Dropout", {"seed"}},
      {"Elu", {"alpha"}},
      {"Expand", {"shape"}},
      {"Gemm", {"alpha", "beta", "transA", "transB"}},
      {"Gelu", {"approximate"}},
      {"Gather", {"axis"}},
      {"GroupNormalization", {"epsilon", "num_groups"}},
      {"HardSigmoid", {"alpha", "beta"}},
      {"InstanceNormalization", {"epsilon"}},
      {"LRN", {"alpha", "beta", "bias", "size"}},
      {"LayerNormalization", {"axis", "epsilon"}},
      {"LeakyRelu", {"alpha"}},
      {"LogSoftmax", {"axis"}},
      {"MaxPool", {"ceil_mode", "dilations", "kernel_shape", "pads", "strides"}},
      {"Pad", {"mode", "pads", "value"}},
      {"QuickGelu", {"alpha"}},
      {"Resize", {"coordinate_transformation_mode", "mode", "nearest_mode"}},
      {"RMSNormalization", {"axis", "epsilon"}},
      {"Reshape", {"shape"}},
      {"RotaryEmbedding", {"interleaved", "num_heads", "rotary_embedding_dim"}},
      {"Selu", {"alpha", "gamma"}},
      {"SkipLayerNormalization", {"epsilon"}},
      {"SkipSimplifiedLayerNormalization", {"epsilon"}},
      {"Slice", {"axes", "ends", "starts", "steps"}},
      {"Softmax", {"axis"}},
      {"SpaceToDepth", {"blocksize"}},
      {"Split", {"axis", "split"}},
      {"Transpose", {"perm"}},
  };
  if (op.starts_with("Reduce")) return {"axes", "keepdims"};
  const auto at = names.find(op);
  return at == names.end() ? std::vector<std::string>{} : at->second;
}

std::int64_t product(std::span<const std::int64_t> dims) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : dims) elements *= extent;
  return elements;
}

// Returns whether an attribute of another operator may stand in an operator that reads `x`. If lengths do not tell,
// inference decides later.
bool fits(const std::string& attribute, const Quantity& value, const Dims& x) {
  const auto rank = std::ssize(x);
  if (attribute == "axis") return std::get<std::int64_t>(value) < rank;
  if (attribute == "axes") return std::get<Dims>(value).back() < rank;
  if (attribute == "perm") return std::ssize(std::get<Dims>(value)) == rank;
  if (attribute == "shape") return product(std::get<Dims>(value)) == product(x);
  return attribute == "keepdims";
}

}  // namespace

// Repeats some values of the graph: attention heads are separated in the same way for all operands, and if extents are
// alike, other attributes often are too.
std::optional<Quantity> AttributeDraw::one(std::string_view op, const std::string& attribute, std::span<const Dims> operands, std::size_t results,
                                           const AttributeMap& so_far) {
  if ((dice_.alike() || attribute == "shape") && dice_.chance(33)) {
    for (const auto& [name, value] : seen_) {
      if (name == attribute && fits(attribute, value, operands[0])) return value;
    }
  }
  auto drawn = fresh(op, attribute, operands, results, so_far);
  if (drawn) seen_.emplace_back(attribute, *drawn);
  return drawn;
}

std::optional<Quantity> AttributeDraw::fresh(std::string_view op, const std::string& attribute, std::span<const Dims> operands, std::size_t results,
                                             const AttributeMap& so_far) {
  const Dims& x = operands[0];
  const auto rank = static_cast<std::int64_t>(x.size());
  if (attribute == "perm") {
    Dims perm(x.size());
    for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
    dice_.shuffle(perm);
    return perm;
  }
  const bool norm = op == "LayerNormalization" || op == "RMSNormalization";
  if (attribute == "axis" && norm && dice_.chance(60)) return rank == 0 ? std::nullopt : std::optional<Quantity>(rank - 1);
  if (attribute == "axis") return rank == 0 ? std::nullopt : std::optional<Quantity>(dice_.pick(0, rank - 1));
  if (attribute == "shape" && op == "Expand") {
    Dims shape = x;
    for (std::int64_t& extent : shape) extent = extent == 1 ? dice_.size_within(1, 4) : extent;
    return shape;
  }
  if (attribute == "shape") return another_shape(x);
  if (attribute == "kernel_shape" && operands.size() > 1) {
    const Dims& w = operands[1];
    return w.size() < 3 ? std::nullopt : std::optional<Quantity>(Dims(w.begin() + 2, w.end()));
  }
  if (attribute == "split") return split(x, so_far, results);
  if (op == "Slice") return cut(x, attribute, so_far);
  const std::size_t spatial = x.size() > 2 ? x.size() - 2 : 0;
  if (attribute == "kernel_shape") return dice_.sides(spatial, dice_.windows_in_a_row() && dice_.chance(60) ? 2 : 1, 3, 14);
  if (attribute == "ceil_mode") return Quantity(std::int64_t{dice_.chance(dice_.windows_in_a_row() ? 60 : 30)});
  if (attribute == "count_include_pad" || attribute == "transA" || attribute == "transB") return Quantity(dice_.pick(0, 1));
  if (attribute == "strides") return dice_.sides(spatial, 1, dice_.chance(30) ? 3 : 2, 16);
  if (attribute == "dilations") return dice_.sides(spatial, 1, dice_.chance(30) ? dice_.chance(30) ? 3 : 2 : 1, 6);
  if (attribute == "group" && op == "ConvTranspose") return x.size() < 3 ? std::nullopt : std::optional<Quantity>(dice_.any_divisor(x[1]));
  if (attribute == "group") {
    const Dims& w = operands.size() > 1 ? operands[1] : x;
    return x.size() < 3 || w.size() < 3 || w[1] == 0 || x[1] % w[1] != 0 ? std::nullopt : std::optional<Quantity>(x[1] / w[1]);
  }
  if (attribute == "pads" && op.ends_with("Pool")) return pool_pads(so_far);
  if (op == "Pad" && rank == 0) return std::nullopt;    // ONNX Runtime has no Pad of scalars
  if (attribute == "pads") return op == "Pad" ? dice_.list_of(2 * x.size(), 0, dice_.large(Dice::Large::kWindows) ? 7 : 2) : dice_.sides(2 * spatial, 0, 3, 7);
  if (attribute == "keepdims") return Quantity(dice_.pick(0, 1));
  if (attribute == "axes") return axes(rank);
  if (attribute == "to") {
    constexpr std::int64_t kFloatingTypes[] = {1, 10, 11};    // TensorProto.FLOAT, FLOAT16, DOUBLE
    return Quantity(kFloatingTypes[dice_.pick(0, 2)]);
  }
  if (op == "Resize") return resizing(attribute);
  if (attribute == "seed") return Quantity(dice_.any_of(std::array<std::int64_t, 4>{0, 1, 42, (std::int64_t{1} << 31) - 1}));
  if (attribute == "mode" && op == "DepthToSpace") return Quantity(std::string(dice_.chance(50) ? "DCR" : "CRD"));
  if (attribute == "mode") return Quantity(std::string("constant"));
  if (attribute == "blocksize") return Quantity(dice_.pick(1, 3));
  if (attribute == "size") return Quantity(2 * dice_.pick(0, 3) + 1);    // ONNX Runtime has no LRN of even size
  if (attribute == "output_padding") return dice_.list_of(spatial, 0, dice_.chance(30));
  if (attribute == "value") return Quantity(dice_.chance(40) ? 0.0 : dice_.chance(40) ? -1.0 : dice_.any_real());
  constexpr std::string_view kFlags[] = {"select_last_index", "is_causal", "interleaved", "unidirectional"};
  if (std::find(std::begin(kFlags), std::end(kFlags), attribute) != std::end(kFlags)) return Quantity(dice_.pick(0, 1));
  if (attribute == "num_heads" && op == "RotaryEmbedding") return Quantity(std::int64_t{rank == 4 ? 0 : dice_.pick(1, 2)});
  if (attribute == "rotary_embedding_dim") return rotary_part(x, so_far);
  if (attribute == "num_groups") return x.size() < 2 || x[1] == 0 ? std::nullopt : std::optional<Quantity>(dice_.any_divisor(x[1]));
  if (attribute == "softcap") return Quantity(dice_.chance(60) ? 0.0 : 2.0);
  if (attribute == "epsilon") return Quantity(static_cast<double>(static_cast<float>(dice_.any_of(std::array{1e-3, 1e-5, 1e-12, 1e-6, 0.1, 1.0}))));
  if (attribute.ends_with("num_heads")) return Quantity(dice_.pick(1, 3));
  if (attribute == "approximate") return Quantity(std::string(dice_.chance(50) ? "none" : "tanh"));
  constexpr std::string_view kReals[] = {"alpha", "beta", "bias", "gamma", "scale"};
  if (std::find(std::begin(kReals), std::end(kReals), attribute) != std::end(kReals)) return Quantity(static_cast<double>(static_cast<float>(dice_.any_real())));
  return std::nullopt;
}

// Returns a text that says how Resize finds the points that it reads.
std::optional<Quantity> AttributeDraw::resizing(const std::string& attribute) {
  constexpr std::array kCoordinates = {"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"};
  constexpr std::array kRoundings = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
  if (attribute == "mode") return Quantity(std::string(dice_.chance(50) ? "nearest" : "linear"));
  if (attribute == "coordinate_transformation_mode") return Quantity(std::string(dice_.any_of(kCoordinates)));
  return attribute == "nearest_mode" ? std::optional<Quantity>(std::string(dice_.any_of(kRoundings))) : std::nullopt;
}

// Returns an even part of a head; 0 is the whole head.
std::optional<Quantity> AttributeDraw::rotary_part(const Dims& x, const AttributeMap& so_far) {
  const auto* heads = find_unsorted(so_far, "num_heads");
  const auto* count = heads ? std::get_if<std::int64_t>(heads) : nullptr;
  const std::int64_t pairs = x.empty() ? 0 : x.back() / (count ? std::max<std::int64_t>(*count, 1) : 1) / 2;
  return Quantity(dice_.chance(70) || pairs < 1 ? 0 : 2 * dice_.pick(1, pairs));
}

// Returns some axes in ascending order.
std::optional<Quantity> AttributeDraw::axes(std::int64_t rank) {
  if (rank == 0) return std::nullopt;
  Dims axes;
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (dice_.chance(40)) axes.push_back(axis);
  }
  if (axes.empty()) axes.push_back(dice_.pick(0, rank - 1));
  return axes;
}

// Returns the sizes of the parts of the axis that is drawn already.
std::optional<Quantity> AttributeDraw::split(const Dims& x, const AttributeMap& so_far, std::size_t parts) {
  const auto* axis = find_unsorted(so_far, "axis");
  const auto* at = axis ? std::get_if<std::int64_t>(axis) : nullptr;
  if (!at || *at < 0 || *at >= static_cast<std::int64_t>(x.size())) return std::nullopt;
  const auto least = static_cast<std::int64_t>(parts);
  if (x[*at] < least) return std::nullopt;
  if (x[*at] % least == 0 && dice_.chance(40)) return Dims(parts, x[*at] / least);
  Dims sizes(parts, 1);
  for (std::int64_t rest = x[*at] - least; rest > 0; --rest) ++sizes[dice_.pick(0, least - 1)];
  return sizes;
}

// Returns one list of a Slice; axes are drawn first, then ends, starts and steps.
std::optional<Quantity> AttributeDraw::cut(const Dims& x, const std::string& attribute, const AttributeMap& so_far) {
  if (attribute == "axes") return axes(static_cast<std::int64_t>(x.size()));
  const auto *axes = find_unsorted(so_far, "axes"), *ends = find_unsorted(so_far, "ends");
  if (!axes || (attribute == "starts" && !ends)) return std::nullopt;
  Dims list;
  for (const std::int64_t axis : std::get<Dims>(*axes)) {
    if (attribute == "ends") list.push_back(dice_.pick(1, x[axis]));
    else if (attribute == "starts") list.push_back(dice_.pick(0, std::get<Dims>(*ends)[list.size()] - 1));
    else list.push_back(dice_.chance(50) ? 1 : dice_.pick(2, 3));
  }
  return list;
}

// Returns pads smaller than the kernel, so that no window lies in the padding alone.
std::optional<Quantity> AttributeDraw::pool_pads(const AttributeMap& so_far) {
  const auto* kernel = find_unsorted(so_far, "kernel_shape");
  if (!kernel) return std::nullopt;
  Dims pads;
  for (int side = 0; side < 2; ++side) {
    for (const std::int64_t width : std::get<Dims>(*kernel)) pads.push_back(dice_.pick(0, std::max<std::int64_t>(0, width - 1)));
  }
  return pads;
}

// Returns a shape with one extent split into two factors, as when channels are shuffled or attention heads separated.
// Proper factors are tried twice, because 1 and the extent itself tell little.
Dims AttributeDraw::factored(Dims dims) {
  const auto at = static_cast<std::size_t>(dice_.pick(0, std::ssize(dims) - 1));
  std::int64_t factor = 1;
  for (int tries = 0; tries < 2 && (factor == 1 || factor == dims[at]); ++tries) factor = dice_.any_divisor(dims[at]);
  dims[at] /= factor;
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at), factor);
  return dims;
}

// Returns a shape that regroups all extents, or half of the time only the last one.
Dims AttributeDraw::reshape(const Dims& dims) {
  if (!dims.empty() && product(dims) > 0 && dice_.chance(25)) return factored(dims);
  const bool last_only = !dims.empty() && dice_.chance(50);
  Dims shape = last_only ? Dims(dims.begin(), dims.end() - 1) : Dims{};
  std::int64_t elements = product(std::span(dims).subspan(shape.size()));
  const std::size_t longest = shape.size() + static_cast<std::size_t>(dice_.pick(0, 3));
  while (elements > 1 && shape.size() < longest) {
    shape.push_back(dice_.any_divisor(elements));
    elements /= shape.back();
  }
  if (elements > 1 || shape.empty()) shape.push_back(elements);
  return shape;
}

// Returns the shape for a Reshape. One that equals `dims` tests little; a few tries find another one if there is any.
Dims AttributeDraw::another_shape(const Dims& dims) {
  Dims shape = dims;
  for (int tries = 0; tries < 4 && shape == dims; ++tries) shape = dice_.alike() && dice_.chance(70) ? rearranged(dims) : reshape(dims);
  return shape;
}

// Returns the extents in another order or joined, with ones at other places, so that other tensors broadcast with the
// result.
Dims AttributeDraw::rearranged(const Dims& dims) {
  Dims shape;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(shape), [](std::int64_t extent) { return extent != 1; });
  if (dice_.chance(30)) dice_.shuffle(shape);
  if (shape.size() > 1 && dice_.chance(30)) {
    shape[shape.size() - 2] *= shape.back();
    shape.pop_back();
  }
  const std::int64_t longer = dice_.chance(60) ? 0 : dice_.chance(50) ? 1 : -1;
  for (std::int64_t ones = std::ssize(dims) - std::ssize(shape) + longer; ones > 0; --ones) shape.insert(shape.begin() + dice_.pick(0, std::ssize(shape)), 1);
  return shape;
}

std::optional<AttributeMap> AttributeDraw::all(std::string_view op, std::span<const Dims> operands, std::size_t results, const std::vector<std::string>& except) {
  AttributeMap map;
  for (const std::string& name : attribute_names(op)) {
    if (std::find(except.begin(), except.end(), name) != except.end()) continue;
    const auto value = one(op, name, operands, results, map);
    if (!value) return std::nullopt;
    map.emplace_back(name, to_attribute(name, *value, kFloat));
  }
  return map;
}

}  // namespace rlflow
