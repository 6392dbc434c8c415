// The proof section of a rule, as `rlflow rules verify` writes it: clauses `name(content)`.
#pragma once

#include "rules/rule.hpp"

namespace rlflow {

struct ProofClause {
  std::string_view name, content;
};

// Returns the clauses of a proof in their order; nothing if the text has another form.
[[nodiscard]] std::optional<std::vector<ProofClause>> proof_clauses(std::string_view proof);

// Returns 16 hexadecimal digits of the rule and of all clauses of its proof except `digest`, which records them. They
// differ if the proof was edited, or made for another text of the rule.
[[nodiscard]] std::string seal(const Rule& rule, const std::vector<ProofClause>& clauses);

// Throws InvalidInput if the proof is missing, malformed or does not bear the seal of the rule.
void require_proof(const Rule& rule);

}  // namespace rlflow
