// Rule files: any text is parsed or refused with InvalidInput; what parses is planned, instantiated and rewritten.
#include <cstdint>

#include "checked_state.hpp"
#include "verification/instance.hpp"
#include "mutate_text.hpp"
#include "rules/rule.hpp"

namespace rlflow::fuzz {
namespace {

constexpr std::size_t kMostRules = 3, kMostRewrites = 4;    // looked at in one execution
constexpr int kTries = 200;    // to build an instance; a rule that never applies would use all the thousands there are

void check_rule(const std::shared_ptr<const RuleBook>& book, const Rule& rule) {
  std::optional<Graph> instance = random_instance(rule, 1, 0, {}, kTries);
  if (!instance) return;
  const State state = State::start(std::move(*instance), book, std::make_shared<const Roofline>(find_device("rtx2070")), 0);
  check_state(state);
  const std::size_t count = std::min(kMostRewrites, state.matches().size());
  for (std::size_t i = 0; i < count; ++i) (void)checked_after(state, state.matches()[i]);
}

void run(std::string_view text) {
  try {
    const auto book = std::make_shared<const RuleBook>(parse_rules(text, "<text>"));
    for (std::size_t i = 0; i < std::min(kMostRules, book->rules.size()); ++i) {
      require(!parse_rules(book->rules[i].text, "<rule>").empty(), "the text of a rule is a rule");
      check_rule(book, book->rules[i]);
    }
  } catch (const InvalidInput&) {    // the one way to refuse
  }
}

}  // namespace
}  // namespace rlflow::fuzz

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned int seed) {
  if (seed % 4 == 0 || size == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string mutant = rlflow::fuzz::mutate_text({reinterpret_cast<const char*>(data), size}, seed).substr(0, max_size);
  std::copy(mutant.begin(), mutant.end(), data);
  return mutant.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rlflow::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
