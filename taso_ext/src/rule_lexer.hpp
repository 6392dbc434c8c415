// Tokens of the rule language.
#pragma once

#include "types.hpp"

namespace rlflow {

struct Token {
  enum class Kind : std::uint8_t { kName, kInteger, kSymbol, kEllipsis, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;
  std::int32_t line = 0;
  bool first_on_line = false;
};

// Throws InvalidInput for a character the language does not have.
[[nodiscard]] std::vector<Token> tokenize(std::string_view text, std::string_view file_name);

[[noreturn]] void syntax_error(std::string_view file_name, std::int32_t line, const std::string& message);

}  // namespace rlflow
