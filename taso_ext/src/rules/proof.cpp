#include "rules/proof.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "rules/lexer.hpp"

namespace rlflow {
namespace {

// The clauses that every proof has; it also has `axioms` or `domain`.
constexpr std::array<std::string_view, 3> kEvidence = {"finite-field", "onnxruntime", "digest"};
constexpr std::array<std::string_view, 8> kClauses = {"finite-field", "reals", "axioms", "onnxruntime", "rounding", "spreads", "domain", "digest"};

bool blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

[[noreturn]] void refuse(const Rule& rule, const std::string& what) {
  syntax_error(rule.file, rule.proof_place, "rule '" + rule.name + "': " + what + "; run: rlflow rules verify " + rule.file + " --write");
}

const ProofClause* find(const std::vector<ProofClause>& clauses, std::string_view name) {
  const auto at = std::find_if(clauses.begin(), clauses.end(), [&](const ProofClause& clause) { return clause.name == name; });
  return at == clauses.end() ? nullptr : &*at;
}

}  // namespace

std::optional<std::vector<ProofClause>> proof_clauses(std::string_view proof) {
  std::vector<ProofClause> clauses;
  for (std::size_t at = 0; at < proof.size();) {
    if (blank(proof[at])) {
      ++at;
      continue;
    }
    const std::size_t open = proof.find('(', at);
    if (open == std::string_view::npos || open == at) return std::nullopt;
    std::size_t end = open + 1;
    for (int depth = 1; depth > 0; ++end) {
      if (end == proof.size()) return std::nullopt;
      depth += (proof[end] == '(') - (proof[end] == ')');
    }
    const std::string_view name = proof.substr(at, open - at);
    if (std::any_of(name.begin(), name.end(), blank)) return std::nullopt;
    clauses.push_back({name, proof.substr(open + 1, end - open - 2)});
    at = end;
  }
  return clauses;
}

std::string seal(const Rule& rule, const std::vector<ProofClause>& clauses) {
  Hash128 hash = rule.digest;
  for (const ProofClause& clause : clauses) {
    if (clause.name == "digest") continue;
    std::string content(clause.content);    // white space does not matter
    std::erase_if(content, blank);
    hash = fold(fold(hash, hash_bytes(clause.name, 37)), hash_bytes(content, 38));
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.high));
  return text;
}

void require_proof(const Rule& rule) {
  if (rule.proof.empty()) refuse(rule, "expected a proof, but there is none");
  const auto clauses = proof_clauses(rule.proof);
  if (!clauses) refuse(rule, "expected a proof made of clauses such as digest(...), but this one cannot be read");
  for (const ProofClause& clause : *clauses) {
    if (std::find(kClauses.begin(), kClauses.end(), clause.name) == kClauses.end()) refuse(rule, "the proof has an unknown clause '" + std::string(clause.name) + "'");
    if (find(*clauses, clause.name) != &clause) refuse(rule, "the proof has two clauses '" + std::string(clause.name) + "'");
  }
  for (const std::string_view name : kEvidence) {
    if (!find(*clauses, name)) refuse(rule, "the proof lacks the clause '" + std::string(name) + "'");
  }
  if (!find(*clauses, "axioms") && !find(*clauses, "domain")) refuse(rule, "the proof has neither the clause 'axioms' nor 'domain'");
  const std::string digest = seal(rule, *clauses), recorded(find(*clauses, "digest")->content);
  if (recorded != digest) refuse(rule, "the proof is stale: it records the digest " + recorded + ", and rule and proof have " + digest);
}

}  // namespace rlflow
