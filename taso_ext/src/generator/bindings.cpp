// The Python interface of the generator: one function, which returns laws as nested tuples.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <stdexcept>

#include "generator/basis.hpp"

namespace py = pybind11;

namespace rlflow::generator {
namespace {

const std::map<std::string, Kind> kKinds = {
    {"Add", Kind::kAdd}, {"Sub", Kind::kSub}, {"Mul", Kind::kMul}, {"Scale", Kind::kScale}, {"Div", Kind::kDiv}, {"Max", Kind::kMax},
    {"MatMul", Kind::kMatMul}, {"Conv", Kind::kConv}, {"Concat", Kind::kConcat}, {"Split", Kind::kSplit},
    {"Slice", Kind::kSlice}, {"Transpose", Kind::kTranspose}, {"Merge", Kind::kMerge}, {"Unmerge", Kind::kUnmerge},
    {"Insert", Kind::kInsert}, {"Drop", Kind::kDrop}, {"Pad", Kind::kPad}, {"ReduceSum", Kind::kReduceSum},
    {"ReduceMean", Kind::kReduceMean}, {"ReduceMax", Kind::kReduceMax}, {"AveragePool", Kind::kAveragePool},
    {"MaxPool", Kind::kMaxPool}, {"Relu", Kind::kRelu}, {"Neg", Kind::kNeg}, {"Reciprocal", Kind::kReciprocal},
    {"Function", Kind::kFunction}, {"ZeroFixing", Kind::kZeroFixing}};
const std::map<std::string, Leaf::Content> kContents = {
    {"variable", Leaf::Content::kVariable}, {"zero", Leaf::Content::kZero}, {"one", Leaf::Content::kOne},
    {"identity", Leaf::Content::kIdentity}, {"identity kernel", Leaf::Content::kIdentityKernel},
    {"averaging kernel", Leaf::Content::kAveragingKernel}};

template <typename T>
T look_up(const std::map<std::string, T>& table, const std::string& name, const char* what) {
  const auto at = table.find(name);
  if (at == table.end()) throw std::invalid_argument("'" + name + "' is no " + what + " that the generator knows");
  return at->second;
}

std::string content_name(Leaf::Content content) {
  for (const auto& [name, each] : kContents) {
    if (each == content) return name;
  }
  return {};
}

Grid read_grid(const py::dict& text) {
  Grid grid;
  for (const py::handle item : text["leaves"].cast<py::list>()) {
    const auto [name, content, shapes] = item.cast<std::tuple<std::string, std::string, Shapes>>();
    grid.leaves.push_back({name, look_up(kContents, content, "content"), shapes});
  }
  for (const py::handle item : text["operators"].cast<py::list>()) {
    const auto each = item.cast<py::dict>();
    Operator op;
    op.name = each["name"].cast<std::string>();
    op.kind = look_up(kKinds, each["kind"].cast<std::string>(), "kind of operator");
    op.operands = each["operands"].cast<int>();
    op.symmetric = each["symmetric"].cast<bool>();
    op.linear = each["linear"].cast<bool>();
    op.node = each["node"].cast<std::int32_t>();
    op.attributes = each["attributes"].cast<std::vector<std::vector<std::int32_t>>>();
    grid.operators.push_back(std::move(op));
  }
  grid.most_operators = text["most_operators"].cast<int>();
  grid.most_linear_operators = text["most_linear_operators"].cast<int>();
  if (std::max(grid.most_operators, grid.most_linear_operators) > kMostLevels) throw std::invalid_argument("at most 4 operators can be enumerated");
  if (grid.operators.size() >= 0xff0) throw std::invalid_argument("at most 4079 operators with their attributes fit a grid");
  grid.seed = text["seed"].cast<std::uint64_t>();
  grid.threads = text["threads"].cast<int>();
  return grid;
}

// Returns nested tuples: (operator, shapes, operand, ...); ("$", number, shapes) for a variable; ("#", content, shapes)
// for a constant.
py::tuple write_tree(const Tree& tree, std::size_t at, const TermStore& store) {
  const Tree::Node& node = tree.nodes[at];
  const Shapes& shapes = store.shapes(node.type);
  if (node.op == kLeaf) {
    if (node.a >= 0) return py::make_tuple("$", node.a, shapes);
    return py::make_tuple("#", content_name(static_cast<Leaf::Content>(-1 - node.a)), shapes);
  }
  const std::string& name = store.grid().operators[node.op].name;
  const py::tuple a = write_tree(tree, static_cast<std::size_t>(node.a), store);
  if (node.b < 0) return py::make_tuple(name, shapes, a);
  return py::make_tuple(name, shapes, a, write_tree(tree, static_cast<std::size_t>(node.b), store));
}

// Reads a tree from nested tuples. Returns false if the grid lacks one of its operators.
bool read_tree(const py::tuple& text, const std::map<std::string, std::uint32_t>& operators, Tree& tree, int& variables) {
  const auto name = text[0].cast<std::string>();
  if (name == "$") {
    tree.nodes.push_back({.op = kLeaf, .a = text[1].cast<std::int32_t>(), .b = -1, .type = 0});
    variables = std::max(variables, tree.nodes.back().a + 1);
    return true;
  }
  if (name == "#") {
    tree.nodes.push_back({.op = kLeaf, .a = -1 - static_cast<std::int32_t>(look_up(kContents, text[1].cast<std::string>(), "content")), .b = -1, .type = 0});
    return true;
  }
  const auto op = operators.find(name);
  if (op == operators.end()) return false;
  std::int32_t operands[2] = {-1, -1};
  for (std::size_t i = 2; i < text.size(); ++i) {
    if (!read_tree(text[i].cast<py::tuple>(), operators, tree, variables)) return false;
    operands[i - 2] = static_cast<std::int32_t>(tree.nodes.size()) - 1;
  }
  tree.nodes.push_back({.op = op->second, .a = operands[0], .b = operands[1], .type = 0});
  return true;
}

py::dict write_level(const LevelCounts& counts) {
  py::dict row;
  row["operators"] = counts.operators;
  row["linear"] = counts.linear;
  row["enumerated"] = counts.enumerated;
  row["evaluated"] = counts.evaluated;
  row["constant"] = counts.constant;
  row["classes"] = counts.classes;
  row["pairs"] = counts.pairs;
  row["cpu_seconds"] = counts.cpu_seconds;
  return row;
}

py::dict enumerate(const py::dict& text, const py::list& brought, const std::function<void(int, double)>& progress) {
  const Grid grid = read_grid(text);
  Enumeration enumeration(grid);
  Basis basis(enumeration.store());
  std::map<std::string, std::uint32_t> operators;
  for (std::uint32_t i = 0; i < grid.operators.size(); ++i) operators[grid.operators[i].name] = i;
  for (const py::handle item : brought) {
    const auto pair = item.cast<py::tuple>();
    Law law;
    const bool known = read_tree(pair[0].cast<py::tuple>(), operators, law.left, law.variables) &&
                       read_tree(pair[1].cast<py::tuple>(), operators, law.right, law.variables);
    if (known) basis.bring(std::move(law));
  }
  std::vector<LevelCounts> levels;
  {
    const py::gil_scoped_release release;
    const auto report = [&](int level, double share) {
      const py::gil_scoped_acquire acquire;
      progress(level, share);
    };
    for (int level = 1; level <= enumeration.levels(); ++level) {
      levels.push_back(enumeration.run_level(level, report, [&](const Equation& equation) { basis.note(equation); }));
    }
    basis.settle();
  }
  py::list laws, rows;
  for (const Law& law : basis.laws()) {
    if (!law.own) continue;
    laws.append(py::make_tuple(write_tree(law.left, law.left.nodes.size() - 1, enumeration.store()),
                               write_tree(law.right, law.right.nodes.size() - 1, enumeration.store())));
  }
  for (const LevelCounts& level : levels) rows.append(write_level(level));
  py::dict result;
  result["levels"] = rows;
  result["laws"] = laws;
  result["after_renaming"] = basis.counts().after_renaming;
  result["after_degenerate"] = basis.counts().after_degenerate;
  result["after_implied"] = basis.counts().after_implied;
  result["after_common"] = basis.counts().after_common;
  result["memory_bytes"] = enumeration.store().bytes();
  return result;
}

}  // namespace
}  // namespace rlflow::generator

PYBIND11_MODULE(_generator, module) {
  module.doc() = "Enumerates tensor expressions and finds which are equal (source: taso_ext/src/generator).";
  module.def("enumerate", &rlflow::generator::enumerate, py::arg("grid"), py::arg("laws"), py::arg("progress"));
}
