// What the engine is given by a reader of models and by a user: any sequence of GraphBuilder calls, then any sequence of
// steps, legal or not, undone or not, and searches. Everything a State predicts is compared with what comes true.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "checked_state.hpp"
#include "drafted_graph.hpp"
#include "features/features.hpp"
#include "verification/instance.hpp"

namespace rlflow::fuzz {
namespace {

constexpr int kMostActions = 8;
constexpr std::size_t kMostRewrites = 256;    // in a state that is stepped on: checking prices them all each time

// Some rules, and graphs that hold their sources.
struct Book {
  std::shared_ptr<const RuleBook> rules;
  std::vector<Graph> fragments;
};

Book make_book(const std::vector<Rule>& rules) {
  Book book{std::make_shared<const RuleBook>(rules), {}};
  for (const Rule& rule : rules) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      if (auto fragment = random_instance(rule, seed)) book.fragments.push_back(std::move(*fragment));
    }
  }
  return book;
}

// The rules of all files in a folder.
std::vector<Rule> read_rules(const std::filesystem::path& folder) {
  std::vector<Rule> rules;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".rules") continue;
    std::stringstream text;
    if (!(text << std::ifstream(entry.path()).rdbuf())) std::fprintf(stderr, "cannot read %s\n", entry.path().c_str()), std::exit(2);
    for (Rule& rule : parse_rules(text.str(), entry.path().string())) rules.push_back(std::move(rule));
  }
  std::sort(rules.begin(), rules.end(), [](const Rule& a, const Rule& b) { return a.name < b.name; });
  return rules;
}

// The default rules, first all, then every eighth: what a state learns about rules is most of the work of an execution.
std::vector<Book> make_books() {
  constexpr std::size_t kParts = 8;
  const std::filesystem::path folder = "taso_ext/rules";
  if (!std::filesystem::is_directory(folder)) std::fprintf(stderr, "run this from the root of the repository\n"), std::exit(2);
  const std::vector<Rule> rules = read_rules(folder);
  std::vector<Book> books = {make_book(rules)};
  for (std::size_t part = 0; part < kParts; ++part) {
    std::vector<Rule> some;
    for (std::size_t i = part; i < rules.size(); i += kParts) some.push_back(rules[i]);
    books.push_back(make_book(some));
  }
  return books;
}

const bool print = std::getenv("RLFLOW_FUZZ_PRINT") != nullptr;

class Play {
 public:
  Play(ByteSource& bytes, StatePtr start) : bytes_(bytes), state_(std::move(start)) {}

  void run() {
    for (int action = 0; action < kMostActions && (action < 2 || !bytes_.empty()); ++action) {
      if (state_->matches().size() > kMostRewrites) return;
      act();
    }
  }

 private:
  void act() {
    switch (bytes_.below(16)) {
      case 12: return undo();
      case 13: return absurd_step();
      case 14: return search();
      case 15: return (void)graph_features(*state_);
      default: return step();
    }
  }

  void step() {
    if (state_->matches().empty()) return;
    const Match& match = state_->matches()[bytes_.below(state_->matches().size())];
    const StatePtr before = state_;
    if (print) std::printf("state.step(%d, %d)\n", match.rule, match.location);
    state_ = checked_after(*before, match);
    past_.push_back(before);
  }

  void undo() {
    if (past_.empty()) return;
    state_ = past_.back();
    past_.pop_back();
    check_state(*state_);
  }

  void absurd_step() {
    const auto rule = bytes_.number<std::int32_t>(), location = bytes_.number<std::int32_t>();
    try {
      (void)checked_after(*state_, state_->match(rule, location));
    } catch (const InvalidInput&) {
    }
  }

  void search() {
    const SearchLimits limits{.budget = static_cast<std::int64_t>(bytes_.below(5)), .memory_bytes = 16ull << 20, .threads = bytes_.one_in(32) ? 2 : 1};
    const auto width = static_cast<std::int64_t>(bytes_.below(5));
    try {
      switch (bytes_.below(4)) {
        case 0: return check_search(state_, search_taso(*state_, 0.9 + 0.05 * static_cast<double>(width), limits, {}));
        case 1: return check_search(state_, search_beam(*state_, width, width % 2 == 0, limits, {}));
        case 2: return check_search(state_, search_restarts(*state_, width, 7, limits, {}));
        default: return check_search(state_, search_greedy(*state_, limits, {}));
      }
    } catch (const InvalidInput&) {    // a budget, alpha or width of nothing
    }
  }

  ByteSource& bytes_;
  StatePtr state_;
  std::vector<StatePtr> past_;
};

std::vector<Book> books;

void run(std::span<const std::uint8_t> data) {
  ByteSource bytes(data);
  const Book& book = books[bytes.byte() % 32 == 31 ? 0 : 1 + bytes.below(books.size() - 1)];
  const auto locations = static_cast<std::int32_t>(bytes.one_in(4) ? bytes.below(6) : 0);
  std::optional<Graph> graph = DraftedGraph(bytes, book.fragments, print).draft();
  if (!graph) return;
  const auto state = std::make_shared<const State>(State::start(std::move(*graph), book.rules, std::make_shared<const Roofline>(find_device("rtx2070")), locations));
  check_state(*state);
  Play(bytes, state).run();
}

}  // namespace
}  // namespace rlflow::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  rlflow::fuzz::books = rlflow::fuzz::make_books();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rlflow::fuzz::run({data, size});
  return 0;
}
