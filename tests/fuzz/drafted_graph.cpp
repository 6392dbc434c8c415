#include "drafted_graph.hpp"

#include <algorithm>
#include <set>

namespace rlflow::fuzz {
namespace {

constexpr int kMostCalls = 12;

// Operators that rules speak of come up as often as all others together.
constexpr const char* kCommon[] = {"MatMul", "Conv", "Add", "Mul", "Relu", "Concat", "Split", "Transpose", "Reshape", "Slice", "Pad", "ReduceSum", "Gemm", "Softmax", "Sub", "MaxPool"};

// The attributes of an operator's normal form.
const std::pair<std::string_view, std::vector<const char*>> kAttributes[] = {
    {"Conv", {"dilations", "group", "kernel_shape", "pads", "strides"}},
    {"ConvTranspose", {"dilations", "group", "kernel_shape", "pads", "strides"}},
    {"MaxPool", {"dilations", "kernel_shape", "pads", "strides"}},
    {"AveragePool", {"kernel_shape", "pads", "strides"}},
    {"Gemm", {"alpha", "beta", "transA", "transB"}},
    {"Concat", {"axis"}},
    {"Softmax", {"axis"}},
    {"LogSoftmax", {"axis"}},
    {"Split", {"axis", "split"}},
    {"Slice", {"axes", "ends", "starts", "steps"}},
    {"Transpose", {"perm"}},
    {"Pad", {"mode", "pads", "value"}},
    {"Reshape", {"shape"}},
    {"ReduceSum", {"axes", "keepdims"}},
    {"ReduceMean", {"axes", "keepdims"}},
    {"ReduceMax", {"axes", "keepdims"}},
};

std::string text(const std::optional<Dims>& dims) {
  if (!dims) return "None";
  std::string out = "[";
  for (const std::int64_t extent : *dims) out += std::to_string(extent) + ", ";
  return out + "]";
}

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    char two[5];
    std::snprintf(two, sizeof two, "\\x%02x", static_cast<unsigned char>(c));
    out += two;
  }
  return out;
}

std::string text(const Attribute& attribute) {
  if (const auto* integer = std::get_if<std::int64_t>(&attribute)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&attribute)) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "float('%.17g')", *real);
    return digits;
  }
  if (const auto* string = std::get_if<std::string>(&attribute)) return "'" + hex(*string) + "'";
  if (const auto* integers = std::get_if<Dims>(&attribute)) return text(std::optional(*integers));
  if (const auto* opaque = std::get_if<OpaqueAttribute>(&attribute)) return "b'" + hex(opaque->digest) + "'";
  std::string out = "[";
  if (const auto* reals = std::get_if<std::vector<double>>(&attribute)) {
    for (const double real : *reals) out += text(Attribute(real)) + ", ";
  } else {
    for (const std::string& string : std::get<std::vector<std::string>>(attribute)) out += text(Attribute(string)) + ", ";
  }
  return out + "]";
}

}  // namespace

std::optional<Graph> DraftedGraph::draft() {
  for (int call = 0; call < kMostCalls && !bytes_.empty(); ++call) {
    try {
      add_something();
    } catch (const InvalidInput&) {    // refused, and the builder as it was before
    }
  }
  try {
    for (ValueId value = 0; value < static_cast<ValueId>(types_.size()); ++value) {
      if (reads_[value] == 0 && (value > 0 || outputs_ == 0)) output(value);
    }
    return builder_.build();
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

void DraftedGraph::add_something() {
  switch (bytes_.below(16)) {
    case 0: return add_input();
    case 1: return add_weight();
    case 2: return add_output();
    case 3:
    case 4:
    case 5:
    case 6: return add_fragment();
    default: return add_operator();
  }
}

int DraftedGraph::dtype() {
  const std::uint8_t choice = bytes_.byte();
  return choice < 224 ? 1 : choice < 252 ? choice % 32 : bytes_.number<std::int32_t>();
}

std::int64_t DraftedGraph::absurd_integer() {
  const std::uint8_t choice = bytes_.byte();
  if (choice < 64) return std::int64_t{1} << (choice % 63);
  if (choice < 128) return (std::int64_t{1} << (choice % 63)) - 1;
  if (choice < 192) return -(std::int64_t{1} << (choice % 63)) - 1;
  return bytes_.number<std::int64_t>();
}

// Mostly small; nothing where the rank is unknown.
std::optional<Dims> DraftedGraph::shape() {
  const std::uint8_t kind = bytes_.byte();
  if (kind >= 252) return std::nullopt;
  if (kind >= 192 && !types_.empty()) return types_[bytes_.below(types_.size())].dims;
  Dims dims(kind % 5);
  for (std::int64_t& extent : dims) extent = kind >= 184 ? absurd_integer() : static_cast<std::int64_t>(bytes_.below(9));
  return dims;
}

void DraftedGraph::add_input() {
  const auto dims = shape();
  input({dtype(), dims.has_value(), dims.value_or(Dims{})}, dims);
}

void DraftedGraph::add_weight() { weight({dtype(), true, shape().value_or(Dims{})}); }

void DraftedGraph::add_output() {
  const ValueId value = operand();
  for (std::uint32_t times = 1 + (bytes_.one_in(8) ? bytes_.number<std::uint16_t>() % 600 : 0); times > 0; --times) output(value);
}

// One of the last values, any, an absent one or one that does not exist.
ValueId DraftedGraph::operand() {
  const std::uint8_t choice = bytes_.byte();
  if (choice == 255) return bytes_.number<std::int32_t>();
  if (choice >= 252 || types_.empty()) return kNoValue;
  if (choice < 192) return static_cast<ValueId>(types_.size() - 1 - choice % std::min<std::size_t>(types_.size(), 6));
  return static_cast<ValueId>(bytes_.below(types_.size()));
}

void DraftedGraph::add_operator() {
  const std::uint8_t choice = bytes_.byte();
  const std::string op_type = choice < 128 ? kCommon[choice % std::size(kCommon)] : dotted_name(operator_info(choice % known_operator_count()));
  std::vector<ValueId> inputs(bytes_.one_in(4) ? bytes_.below(6) : op_type == "MatMul" || op_type == "Conv" || op_type == "Add" || op_type == "Mul" || op_type == "Concat" ? 2 : 1);
  std::vector<const TensorType*> types;
  for (ValueId& input : inputs) {
    input = operand();
    const bool exists = input >= 0 && input < static_cast<ValueId>(types_.size());
    types.push_back(exists ? &types_[input] : nullptr);
  }
  const AttributeMap map = attributes(op_type, types);
  const std::uint8_t kind = bytes_.byte();
  node(kind >= 250 ? "com.example" : kind >= 240 ? "ai.onnx" : "", op_type, map, inputs, output_types(op_type, map, types), kind == 239);
}

std::vector<GraphBuilder::Output> DraftedGraph::output_types(const std::string& op_type, const AttributeMap& attributes,
                                                             std::span<const TensorType* const> inputs) {
  std::vector<GraphBuilder::Output> outputs;
  const bool complete = std::none_of(inputs.begin(), inputs.end(), [](const TensorType* type) { return type == nullptr; });
  const std::uint8_t kind = bytes_.byte();
  if (const auto inferred = complete && kind < 240 ? infer_outputs(*known_operator(op_type), attributes, inputs) : std::nullopt) {
    for (const TensorType& type : *inferred) outputs.emplace_back("", type.dtype, type.dims);
    return outputs;
  }
  outputs.resize(kind < 220 ? 1 : kind % 4);
  for (auto& [name, dtype, dims] : outputs) {
    const bool alike = kind % 2 == 0 && !inputs.empty() && inputs[0];
    dtype = alike ? inputs[0]->dtype : this->dtype();
    dims = alike ? inputs[0]->dims : shape();
  }
  return outputs;
}

AttributeMap DraftedGraph::attributes(std::string_view op_type, std::span<const TensorType* const> inputs) {
  AttributeMap map;
  for (const auto& [op, names] : kAttributes) {
    if (op != op_type) continue;
    for (const char* name : names) {
      const bool absurd = bytes_.one_in(16);
      map.emplace_back(name, absurd ? absurd_attribute() : fitting_attribute(name, inputs));
    }
  }
  if (bytes_.one_in(16)) map.emplace_back("zeta", absurd_attribute());
  return map;
}

Attribute DraftedGraph::absurd_attribute() {
  const auto list = [&](auto each) {
    std::vector<decltype(each())> items(bytes_.below(6));
    for (auto& item : items) item = each();
    return items;
  };
  const auto string = [&] { return std::string(bytes_.below(4), static_cast<char>('a' + bytes_.below(26))); };
  switch (bytes_.below(8)) {
    case 0: return bytes_.number<double>();
    case 1: return string();
    case 2: return OpaqueAttribute{string()};
    case 3: return list([&] { return bytes_.number<double>(); });
    case 4: return list(string);
    case 5: return absurd_integer();
    default: return list([&] { return absurd_integer(); });
  }
}

// A value that makes sense for the operands, or nearly.
Attribute DraftedGraph::fitting_attribute(std::string_view name, std::span<const TensorType* const> inputs) {
  const Dims x = inputs.empty() || !inputs[0] ? Dims{} : inputs[0]->dims;
  const Dims w = inputs.size() < 2 || !inputs[1] ? Dims{} : inputs[1]->dims;
  const std::size_t spatial = x.size() > 2 ? x.size() - 2 : 0;
  const std::uint8_t choice = bytes_.byte();
  const std::size_t axis = x.empty() ? 0 : choice % x.size();
  if (name == "perm") {
    Dims perm(x.size());
    for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>((i + choice) % perm.size());
    if (choice >= 128 && perm.size() > 1) std::swap(perm[0], perm[1]);
    return perm;
  }
  if (name == "split") {    // the extent in two; `axis` was drawn just before and is most often 0
    const std::int64_t whole = x.empty() ? 0 : x[0], part = whole > 0 ? choice % whole : 0;
    return Dims{part, whole - part};
  }
  if (name == "shape") {
    if (choice < 64 || x.empty()) return x;
    Dims shape = x;
    if (choice < 128) shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    else if (axis + 1 < shape.size() && (shape[axis] < 1 << 20) && (shape[axis + 1] < 1 << 20)) {
      shape[axis] *= shape[axis + 1];
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
    }
    return shape;
  }
  if (name == "kernel_shape") return w.size() > 2 ? Dims(w.begin() + 2, w.end()) : Dims(spatial, 1 + choice % 3);
  if (name == "strides" || name == "dilations") return Dims(spatial, choice < 192 ? 1 : 2);
  if (name == "pads") return Dims(2 * (inputs.size() > 1 ? spatial : x.size()), choice < 128 ? 0 : choice % 3);
  if (name == "group") return std::int64_t{choice < 192 ? 1 : choice % 4};
  if (name == "axes") return Dims{static_cast<std::int64_t>(axis)};
  if (name == "starts") return Dims{0};
  if (name == "ends") return Dims{x.empty() ? 0 : x[axis]};
  if (name == "steps") return Dims{1 + choice % 2};
  if (name == "mode") return std::string(choice < 224 ? "constant" : "edge");
  if (name == "value" || name == "alpha" || name == "beta") return choice < 128 ? 0.0 : 1.0;
  if (name == "axis") return static_cast<std::int64_t>(choice < 128 ? 0 : axis);
  return std::int64_t{choice % 2};
}

// Copies the source of a rule, reading what is there already where the types fit.
void DraftedGraph::add_fragment() {
  if (fragments_.empty()) return;
  const Graph& fragment = fragments_[bytes_.below(fragments_.size())];
  const std::uint8_t joints = bytes_.byte();
  std::map<ValueId, ValueId> copies;
  const auto copy_of = [&](ValueId id) {
    const auto known = copies.find(id);
    if (known != copies.end()) return known->second;
    const TensorType& type = fragment.type(id);
    if (fragment.value(id).weight_only) return copies[id] = weight(type);
    if ((joints >> (copies.size() % 8)) & 1U) {
      const auto at = std::find(types_.rbegin(), types_.rend(), type);
      if (at != types_.rend()) return copies[id] = static_cast<ValueId>(types_.rend() - at - 1);
    }
    return copies[id] = input(type, type.dims);
  };
  for (const NodeId id : fragment.order()) {
    std::vector<ValueId> inputs;
    for (const ValueId operand : fragment.operands(id)) inputs.push_back(copy_of(operand));
    const Signature& signature = fragment.signature(id);
    std::vector<GraphBuilder::Output> outputs;
    for (const TypeId type : signature.outputs) outputs.emplace_back("", fragment.context().type(type).dtype, fragment.context().type(type).dims);
    const auto [domain, op_type] = fragment.context().op_name(signature.op);
    const auto made = node(std::string(domain), std::string(op_type), fragment.context().attributes(signature.attributes), inputs, outputs, false);
    for (std::size_t i = 0; i < made.size(); ++i) copies[fragment.node(id).output_begin + static_cast<ValueId>(i)] = made[i];
  }
}

ValueId DraftedGraph::input(const TensorType& type, const std::optional<Dims>& dims) {
  const std::string name = "v" + std::to_string(types_.size());
  const ValueId value = builder_.input(name, type.dtype, dims);
  if (print_) std::printf("builder.input('%s', %d, %s)\n", name.c_str(), type.dtype, text(dims).c_str());
  types_.push_back(type);
  reads_.push_back(0);
  return value;
}

ValueId DraftedGraph::weight(const TensorType& type) {
  const std::string name = "v" + std::to_string(types_.size()), handle = "w" + std::to_string(bytes_.one_in(8) ? 0 : types_.size());
  const ValueId value = builder_.weight(name, handle, type.dtype, type.dims);
  if (print_) std::printf("builder.weight('%s', '%s', %d, %s)\n", name.c_str(), handle.c_str(), type.dtype, text(std::optional(type.dims)).c_str());
  types_.push_back(type);
  reads_.push_back(0);
  return value;
}

std::vector<ValueId> DraftedGraph::node(const std::string& domain, const std::string& op_type, const AttributeMap& attributes,
                                        const std::vector<ValueId>& inputs, const std::vector<GraphBuilder::Output>& outputs, bool stateful) {
  const std::vector<ValueId> made = builder_.node(domain, op_type, attributes, inputs, outputs, "", stateful);
  if (print_) {
    std::string map, list;
    for (const auto& [name, value] : attributes) map += "'" + name + "': " + text(value) + ", ";
    for (const auto& [name, dtype, dims] : outputs) list += "('', " + std::to_string(dtype) + ", " + text(dims) + "), ";
    std::printf("builder.node('%s', '%s', {%s}, %s, [%s], stateful=%s)\n", domain.c_str(), op_type.c_str(), map.c_str(),
                text(std::optional(Dims(inputs.begin(), inputs.end()))).c_str(), list.c_str(), stateful ? "True" : "False");
  }
  for (const ValueId input : inputs) {
    if (input != kNoValue) ++reads_[input];
  }
  for (const auto& [name, dtype, dims] : outputs) {
    types_.push_back({dtype, dims.has_value(), dims.value_or(Dims{})});
    reads_.push_back(0);
  }
  return made;
}

void DraftedGraph::output(ValueId value) {
  builder_.output(value);
  if (print_) std::printf("builder.output(%d)\n", value);
  ++reads_[value];
  ++outputs_;
}

}  // namespace rlflow::fuzz
