// Mutates the words of a text rather than its bytes: most of what comes out is still a rule, or nearly.
#pragma once

#include <cctype>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace rlflow::fuzz {

inline std::vector<std::string> words_of(std::string_view text) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  std::vector<std::string> words;
  for (const char c : text) {
    if (!words.empty() && in_name(c) && in_name(words.back().back())) words.back().push_back(c);
    else words.emplace_back(1, c);
  }
  return words;
}

inline std::string mutate_text(std::string_view text, std::uint64_t seed) {
  constexpr const char* kNumbers[] = {"0", "1", "2", "-1", "3", "63", "64", "65", "1000000", "4611686018427", "999999999999999"};
  std::mt19937_64 random(seed);
  std::vector<std::string> words = words_of(text);
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  const auto place = [&](std::size_t at) { return words.begin() + static_cast<std::ptrdiff_t>(at); };
  for (std::size_t times = 1 + below(3); times > 0 && !words.empty(); --times) {
    const std::size_t at = below(words.size()), other = below(words.size()), length = 1 + below(std::min<std::size_t>(8, words.size() - at));
    switch (below(7)) {
      case 0: words[at] = words[other]; break;
      case 1: std::swap(words[at], words[other]); break;
      case 2: words.erase(place(at), place(at + length)); break;
      case 3: words.insert(place(at), words[other]); break;
      case 4: {
        const std::vector<std::string> copy(place(at), place(at + length));
        words.insert(place(other), copy.begin(), copy.end());
        break;
      }
      case 5: words[at] = kNumbers[below(std::size(kNumbers))]; break;
      default: {    // another name of the same kind
        const bool name = std::isalpha(static_cast<unsigned char>(words[at][0])) != 0;
        for (std::size_t i = other, seen = 0; seen < words.size(); i = (i + 1) % words.size(), ++seen) {
          if ((std::isalpha(static_cast<unsigned char>(words[i][0])) != 0) != name || words[i] == words[at]) continue;
          words[at] = words[i];
          break;
        }
      }
    }
  }
  std::string out;
  for (const std::string& word : words) out += word;
  return out;
}

}  // namespace rlflow::fuzz
