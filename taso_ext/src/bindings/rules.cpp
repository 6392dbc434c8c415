#include "bindings/bindings.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "rules/lexer.hpp"
#include "rules/proof.hpp"
#include "verification/instance.hpp"

namespace rlflow {
namespace {

RuleSet rule_set(std::vector<Rule> rules) { return {std::make_shared<const RuleBook>(std::move(rules))}; }

std::vector<Rule> parse_file(const std::string& path, bool proven) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) throw InvalidInput("cannot read the rule file '" + path + "'; expected a text file of rewrite rules");
  std::vector<Rule> rules = parse_rules(text.str(), path);
  if (proven) std::for_each(rules.begin(), rules.end(), require_proof);
  return rules;
}

// Families that are shipped, but are no part of the default set: they apply to dilated convolutions and to batches, and
// everything that has learned from the default set would have to be made again with them.
constexpr auto kOptional = std::to_array<std::string_view>({"partial"});

bool is_optional(const std::string& family) { return std::ranges::find(kOptional, family) != kOptional.end(); }

// Returns the rules of the files in the folder `rules` beside the extension module, files in alphabetical order. Optional
// families are left out, but for those that are named.
RuleSet shipped_rules(const std::vector<std::string>& optional) {
  for (const std::string& family : optional) {
    if (is_optional(family)) continue;
    std::string known;
    for (const std::string_view each : kOptional) known += (known.empty() ? "" : ", ") + std::string(each);
    throw InvalidInput("no optional family of rules is called '" + family + "'; there is " + known);
  }
  const auto module_file = py::module_::import("taso_ext._core").attr("__file__").cast<std::string>();
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(module_file).parent_path() / "rules")) {
    const std::string family = entry.path().stem().string();
    const bool left_out = is_optional(family) && std::ranges::find(optional, family) == optional.end();
    if (entry.path().extension() == ".rules" && !left_out) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Rule> all;
  for (const auto& file : files) {
    for (Rule& rule : parse_file(file.string(), true)) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const Rule& other) { return other.name == rule.name; });
      if (same != all.end()) syntax_error(rule.file, rule.place, "a second rule named '" + rule.name + "'; the first one stands in " + same->file);
      all.push_back(std::move(rule));
    }
  }
  return rule_set(std::move(all));
}

const Rule& rule_at(const RuleSet& set, std::int64_t index) {
  const std::vector<Rule>& rules = set.book->rules;
  if (index < 0 || index >= std::ssize(rules)) {
    throw py::index_error("rule " + std::to_string(index) + " is out of range: there are " + std::to_string(rules.size()) + " rules");
  }
  return rules[static_cast<std::size_t>(index)];
}

// Returns the operators of the target that the source does not have.
std::vector<const OperatorInfo*> added_operators(const Rule& rule) {
  std::vector<const OperatorInfo*> found;
  for (const Statement& made : rule.target) {
    const auto same = [&](const Statement& statement) { return statement.op == made.op; };
    if (made.op && std::none_of(rule.source.begin(), rule.source.end(), same)) found.push_back(&operator_info(*made.op));
  }
  return found;
}

// Returns the first opset that has the operators which the target adds to those of the source.
int needed_opset(const Rule& rule) {
  int newest = 1;
  for (const OperatorInfo* info : added_operators(rule)) newest = std::max(newest, info->domain.empty() ? info->since : 1);
  return newest;
}

std::set<std::string> needed_domains(const Rule& rule) {
  std::set<std::string> found;
  for (const OperatorInfo* info : added_operators(rule)) found.emplace(info->domain);
  return found;
}

// Returns only the rules that have one of the names, and whose targets need no newer opset and no other domain.
RuleSet restricted(const RuleSet& set, std::optional<int> max_opset, const std::optional<std::vector<std::string>>& allowed, const std::optional<std::set<std::string>>& names) {
  const auto is_allowed = [&](const std::string& domain) {
    return std::any_of(allowed->begin(), allowed->end(), [&](const std::string& each) { return each == domain || (domain.empty() && each == "ai.onnx"); });
  };
  std::vector<Rule> kept;
  for (const Rule& rule : set.book->rules) {
    if (names && !names->contains(rule.name)) continue;
    const std::set<std::string> domains = needed_domains(rule);
    const bool known = !allowed || std::all_of(domains.begin(), domains.end(), is_allowed);
    if (known && (!max_opset || needed_opset(rule) <= *max_opset)) kept.push_back(rule);
  }
  if (kept.empty()) throw InvalidInput("no rule is left: all others are not named, need a newer opset or need another domain");
  return rule_set(std::move(kept));
}

// Returns the digest of all rules in their order: it is equal for sets that offer the same actions.
Hash128 fingerprint(const RuleSet& set) {
  Hash128 hash{31, 32};
  for (const Rule& rule : set.book->rules) hash = fold(hash, rule.digest);
  return hash;
}

py::tuple place_in(const std::string& file, Place place) { return py::make_tuple(file, place.line, place.column); }

}  // namespace

void bind_rules(py::module_& module) {
  py::class_<RuleSet>(module, "RuleSet")
      .def_static("load", [](const std::string& path, bool proven) { return rule_set(parse_file(path, proven)); }, py::arg("path"), py::arg("proven") = true)
      .def_static("default", &shipped_rules, py::arg("optional") = std::vector<std::string>{})
      .def_static("parse", [](const std::string& text, const std::string& file) { return rule_set(parse_rules(text, file)); },
                  py::arg("text"), py::arg("file") = "<text>")
      .def_property_readonly("names", [](const RuleSet& set) {
        std::vector<std::string> names;
        for (const Rule& rule : set.book->rules) names.push_back(rule.name);
        return names;
      })
      .def_property_readonly("fingerprint", [](const RuleSet& set) { return hex(fingerprint(set)); })
      .def("__len__", [](const RuleSet& set) { return set.book->rules.size(); })
      .def("text", [](const RuleSet& set, std::int64_t rule) { return rule_at(set, rule).text; }, py::arg("rule"))
      .def("place", [](const RuleSet& set, std::int64_t rule) { return place_in(rule_at(set, rule).file, rule_at(set, rule).place); }, py::arg("rule"))
      .def("proof", [](const RuleSet& set, std::int64_t rule) { return rule_at(set, rule).proof; }, py::arg("rule"))
      .def("proof_place", [](const RuleSet& set, std::int64_t rule) { return place_in(rule_at(set, rule).file, rule_at(set, rule).proof_place); }, py::arg("rule"))
      .def("opset", [](const RuleSet& set, std::int64_t rule) { return needed_opset(rule_at(set, rule)); }, py::arg("rule"))
      .def("domains", [](const RuleSet& set, std::int64_t rule) { return needed_domains(rule_at(set, rule)); }, py::arg("rule"))
      .def("restricted", &restricted, py::kw_only(), py::arg("max_opset") = py::none(), py::arg("domains") = py::none(), py::arg("names") = py::none())
      .def("digest", [](const RuleSet& set, std::int64_t rule) { return hex(rule_at(set, rule).digest).substr(0, 16); }, py::arg("rule"))
      .def("clauses", [](const RuleSet& set, std::int64_t rule) {
        py::dict found;
        const auto clauses = proof_clauses(rule_at(set, rule).proof);
        if (!clauses) throw InvalidInput("the proof of rule '" + rule_at(set, rule).name + "' is not made of clauses");
        for (const ProofClause& clause : *clauses) found[py::str(clause.name.data(), clause.name.size())] = py::str(clause.content.data(), clause.content.size());
        return found;
      }, py::arg("rule"))
      .def("require_proof", [](const RuleSet& set, std::int64_t rule) { require_proof(rule_at(set, rule)); }, py::arg("rule"))
      .def("seal", [](const RuleSet& set, std::int64_t rule, const std::string& evidence) {
        const auto clauses = proof_clauses(evidence);
        if (!clauses) throw InvalidInput("expected clauses of a proof, got '" + evidence + "'");
        return seal(rule_at(set, rule), *clauses);
      }, py::arg("rule"), py::arg("evidence"))
      .def("instance", [](const RuleSet& set, std::int64_t rule, std::uint64_t seed, std::int64_t stretch, const Dtypes& dtypes) {
             if (stretch < 0 || stretch > 1000) throw InvalidInput("stretch must lie in [0, 1000], got " + std::to_string(stretch));
             // A floating type that an operator does not have fits no try, so it is not worth as many.
             constexpr int kTries = 50'000, kTriesInOtherTypes = 2'000;
             const bool usual = std::none_of(dtypes.begin(), dtypes.end(), [](const auto& entry) { return entry.second != 1 && is_floating(entry.second); });
             return random_instance(rule_at(set, rule), seed, stretch, dtypes, usual ? kTries : kTriesInOtherTypes);
           },
           py::arg("rule"), py::arg("seed"), py::arg("stretch") = 0, py::arg("dtypes") = Dtypes{})
      .def("misfit", [](const RuleSet& set, std::int64_t rule) -> std::optional<py::tuple> {
             const auto place = misfit(rule_at(set, rule));
             return place ? std::optional(place_in(rule_at(set, rule).file, *place)) : std::nullopt;
           }, py::arg("rule"));
}

}  // namespace rlflow
