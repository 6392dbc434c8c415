#include "rule_lexer.hpp"

#include <cctype>

namespace rlflow {

void syntax_error(std::string_view file_name, std::int32_t line, const std::string& message) {
  constexpr std::size_t kMostText = 500;    // of a message, which may quote a name of any length
  throw InvalidInput(std::string(file_name) + ":" + std::to_string(line) + ": " +
                     (message.size() <= kMostText ? message : message.substr(0, kMostText) + " ..."));
}

std::vector<Token> tokenize(std::string_view text, std::string_view file_name) {
  std::vector<Token> tokens;
  std::int32_t line = 1;
  bool fresh_line = true;
  std::size_t at = 0;
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto emit = [&](Token::Kind kind, std::size_t size) {
    tokens.push_back({kind, text.substr(at, size), line, fresh_line});
    fresh_line = false;
    at += size;
  };
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\n') {
      ++line, ++at, fresh_line = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
    } else if (c == '#') {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (letter(c)) {
      std::size_t size = 1;
      while (at + size < text.size()) {
        const char d = text[at + size];
        // A dash belongs to a name only between letters or digits of a rule's name: `merge-two-convs`.
        const bool dash = d == '-' && tokens.size() && tokens.back().text == "rule" && at + size + 1 < text.size();
        if (!letter(d) && !digit(d) && !dash) break;
        ++size;
      }
      emit(Token::Kind::kName, size);
    } else if (digit(c)) {
      std::size_t size = 1;
      while (at + size < text.size() && digit(text[at + size])) ++size;
      if (size > 15) syntax_error(file_name, line, "expected an integer below 10^15, got '" + std::string(text.substr(at, size)) + "'");
      emit(Token::Kind::kInteger, size);
    } else if (text.substr(at, 3) == "...") {
      emit(Token::Kind::kEllipsis, 3);
    } else if (const auto two = text.substr(at, 2); two == "==" || two == "!=" || two == "<=" || two == ">=") {
      emit(Token::Kind::kSymbol, 2);
    } else if (std::string_view("=()[],;:@*+-/%<>|").find(c) != std::string_view::npos) {
      emit(Token::Kind::kSymbol, 1);
    } else {
      syntax_error(file_name, line, std::string("unexpected character '") + c + "'");
    }
  }
  tokens.push_back({Token::Kind::kEnd, "end of file", line, true});
  return tokens;
}

}  // namespace rlflow
