#include "rules/lexer.hpp"

#include <algorithm>
#include <cctype>

namespace rlflow {
namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::size_t digits(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; }) - text.begin());
}

// Returns the length of the part that makes the integer before it a real: `.5`, `e-3`, `.5e3`; 0 if it stays an
// integer.
std::size_t fraction_and_exponent(std::string_view text) {
  std::size_t size = 0;
  if (text.starts_with('.') && digits(text.substr(1)) > 0) size = 1 + digits(text.substr(1));
  std::string_view rest = text.substr(size);
  if (!rest.starts_with('e')) return size;
  const std::size_t sign = rest.substr(1).starts_with('-') || rest.substr(1).starts_with('+');
  const std::size_t exponent = digits(rest.substr(1 + sign));
  return exponent == 0 ? size : size + 1 + sign + exponent;
}

// Returns the first word of a line, up to white space.
std::string_view first_word(std::string_view line) {
  while (!line.empty() && blank(line.front())) line.remove_prefix(1);
  return line.substr(0, std::find_if(line.begin(), line.end(), blank) - line.begin());
}

// Returns the free text up to the next rule, without the blank lines and comments at its end, which belong to what
// follows.
std::string_view proof_text(std::string_view rest) {
  std::size_t at = 0, end = 0;
  while (at < rest.size()) {
    const std::size_t size = std::min(rest.find('\n', at), rest.size()) - at;
    const std::string_view word = first_word(rest.substr(at, size));
    if (at > 0 && word == "rule") break;
    if (!word.empty() && word.front() != '#') end = at + size;
    at += size + 1;
  }
  rest = rest.substr(0, end);
  while (!rest.empty() && blank(rest.front())) rest.remove_prefix(1);
  while (!rest.empty() && blank(rest.back())) rest.remove_suffix(1);
  return rest;
}

}  // namespace

void syntax_error(std::string_view file_name, Place place, const std::string& message) {
  constexpr std::size_t kMostText = 500;    // bytes of a message, which may quote a name of any length
  throw InvalidInput(std::string(file_name) + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " +
                     (message.size() <= kMostText ? message : message.substr(0, kMostText) + " ..."));
}

std::vector<Token> tokenize(std::string_view text, std::string_view file_name) {
  std::vector<Token> tokens;
  std::int32_t line = 1;
  bool fresh_line = true;
  std::size_t at = 0, line_begin = 0;
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto here = [&] { return Place{line, static_cast<std::int32_t>(at - line_begin) + 1}; };
  const auto emit = [&](Token::Kind kind, std::size_t size) {
    tokens.push_back({kind, text.substr(at, size), here(), fresh_line});
    fresh_line = false;
    at += size;
  };
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\n') {
      ++line, line_begin = ++at, fresh_line = true;
    } else if (blank(c)) {
      ++at;
    } else if (c == '#') {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (letter(c)) {
      std::size_t size = 1;
      while (at + size < text.size()) {
        const char d = text[at + size];
        // A dash belongs only to the name of a rule, which follows the word `rule`: `merge-two-convs`.
        const char after = at + size + 1 < text.size() ? text[at + size + 1] : ' ';
        const bool dash = d == '-' && tokens.size() && tokens.back().text == "rule" && (letter(after) || digit(after));
        const bool dot = d == '.' && letter(after);    // com.microsoft.Gelu
        if (!letter(d) && !digit(d) && !dash && !dot) break;
        ++size;
      }
      if (fresh_line && text.substr(at, size) == "proof") {
        const std::string_view proof = proof_text(text.substr(at + size));
        tokens.push_back({Token::Kind::kProof, proof, here(), true});
        line += static_cast<std::int32_t>(std::count(proof.begin(), proof.end(), '\n'));
        at = static_cast<std::size_t>(proof.data() - text.data()) + proof.size();
        line_begin = text.substr(0, at).rfind('\n') + 1;    // 0 on the first line
        fresh_line = false;
        continue;
      }
      emit(Token::Kind::kName, size);
    } else if (digit(c)) {
      std::size_t size = digits(text.substr(at));
      if (const std::size_t longer = size + fraction_and_exponent(text.substr(at + size)); longer > size) {
        emit(Token::Kind::kReal, longer);
        continue;
      }
      if (size > 15) syntax_error(file_name, here(), "expected an integer below 10^15, got '" + std::string(text.substr(at, size)) + "'");
      emit(Token::Kind::kInteger, size);
    } else if (c == '"') {
      const std::size_t end = text.find_first_of("\"\n", at + 1);
      if (end == std::string_view::npos || text[end] == '\n') syntax_error(file_name, here(), "expected a closing '\"' on the same line");
      tokens.push_back({Token::Kind::kText, text.substr(at + 1, end - at - 1), here(), std::exchange(fresh_line, false)});
      at = end + 1;
    } else if (text.substr(at, 3) == "...") {
      emit(Token::Kind::kEllipsis, 3);
    } else if (const auto two = text.substr(at, 2); two == "==" || two == "!=" || two == "<=" || two == ">=") {
      emit(Token::Kind::kSymbol, 2);
    } else if (std::string_view("=()[],;:@*+-/%<>|").find(c) != std::string_view::npos) {
      emit(Token::Kind::kSymbol, 1);
    } else {
      const auto continues = [](char d) { return (static_cast<unsigned char>(d) & 0xC0U) == 0x80U; };    // in UTF-8
      std::size_t size = 1;
      while (size < 4 && at + size < text.size() && continues(text[at + size])) ++size;
      syntax_error(file_name, here(), "unexpected character '" + std::string(text.substr(at, size)) + "'");
    }
  }
  tokens.push_back({Token::Kind::kEnd, "end of file", here(), true});
  return tokens;
}

}  // namespace rlflow
