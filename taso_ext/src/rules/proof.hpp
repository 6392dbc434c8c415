// The proof section of a rule, as `rlflow rules verify` writes it: clauses `name(content)`.
#pragma once

#include "rules/rule.hpp"

namespace rlflow {

struct ProofClause {
  std::string_view name, content;
  std::size_t begin = 0;    // of the content in the proof
};

// The clauses in their order; nothing where the text has another form.
[[nodiscard]] std::optional<std::vector<ProofClause>> proof_clauses(std::string_view proof);

// 16 hex digits of the rule together with the clauses of its proof but the one that records them: a proof that was made
// for another text of the rule, or edited, has others.
[[nodiscard]] std::string seal(const Rule& rule, const std::vector<ProofClause>& clauses);

// Throws InvalidInput where the proof is missing, malformed or does not bear the seal of the rule.
void require_proof(const Rule& rule);

}  // namespace rlflow
