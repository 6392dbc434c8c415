// Tokens of the rule language.
#pragma once

#include "rules/rule.hpp"

namespace rlflow {

struct Token {
  enum class Kind : std::uint8_t { kName, kInteger, kReal, kText, kSymbol, kEllipsis, kProof, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;    // kText: what stands between the quotes; kProof: what follows the word, up to the next rule
  Place place;
  bool first_on_line = false;
};

// Returns the tokens of a text. Throws InvalidInput for what is no token of the language.
[[nodiscard]] std::vector<Token> tokenize(std::string_view text, std::string_view file_name);

[[noreturn]] void syntax_error(std::string_view file_name, Place place, const std::string& message);

}  // namespace rlflow
