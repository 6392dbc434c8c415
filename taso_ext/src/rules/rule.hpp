// A rewrite rule as data: the contents of its text (format: taso_ext/rules/README.md), with names resolved to slots.
#pragma once

#include <memory>

#include "ir/context.hpp"
#include "ir/types.hpp"

namespace rlflow {

// A place in the text of a rule file. Lines and columns count from 1; columns count bytes.
struct Place {
  std::int32_t line = 1, column = 1;
};

// An expression over the symbols of a rule: the value of an attribute, or a condition.
struct Expression {
  enum class Kind : std::uint8_t { kInteger, kReal, kText, kSymbol, kList, kSplice, kUnary, kBinary, kIndex, kCall, kCount, kAttribute, kOnly };
  Kind kind = Kind::kInteger;
  std::int64_t integer = 0;      // kInteger
  double real = 0;               // kReal
  std::int32_t slot = -1;        // kSymbol: symbol slot; kCall on a tensor, kCount: value slot of the first argument; kAttribute, kOnly: slot of `@name` or of an operator variable
  std::string op{};              // kUnary, kBinary: the operator; kCall: the function; kText: the text; kAttribute: its name
  std::vector<Expression> arguments{};    // kAttribute: perhaps its value if it is absent; kOnly: the names as texts
  bool of_operator = false;               // kAttribute, kOnly: the slot is that of an operator variable
};

// One extent of a declared shape. A starred extent differs between the elements of a starred variable.
struct Extent {
  enum class Kind : std::uint8_t { kInteger, kSymbol, kStarred, kEllipsis };
  Kind kind = Kind::kInteger;
  std::int64_t integer = 0;
  std::int32_t slot = -1;    // symbol slot; -1 for the anonymous ellipsis
};

struct Variable {
  std::int32_t slot = -1;
  bool starred = false;
  bool weight_only = false;
  bool computed = false;    // `runtime`: not a weight
  bool floating = false;
  std::optional<std::vector<Extent>> shape;
};

struct Term {
  std::int32_t slot = -1;
  bool starred = false;
};

struct AttributePattern {
  std::string name;
  Expression value;    // in a source, a lone unbound symbol is bound to the attribute; anything else must equal it
};

struct Statement {
  Place place;
  std::optional<OperatorId> op;       // a known operator, or
  std::int32_t op_variable = -1;      // an operator variable; an alias `y = x` has neither
  std::vector<Term> arguments, results;
  std::vector<AttributePattern> attributes;    // sorted by name
  std::vector<std::string> listed;             // names of `attributes`
  std::int32_t rest = -1;                      // slot of `@name`: all attributes that are not listed
  // `*y = F(x, *w)`: one operator per element. `y = Concat(*xs)` and `*y = Split(x)` are single operators.
  bool mapped = false;
  bool kept = false;    // under `given`: must be there and stays as it is
  std::uint8_t stars = 0;    // starred arguments of a single operator
};

// What matching needs to know about a tensor name, computed once (plan.cpp).
struct Slot {
  std::int32_t variable = -1;    // index among the variables; -1: a result of the source
  bool starred = false;
  bool kept = false;             // a result of a `given` operator: the target may read it
  bool weight_only = false;      // must be a weight
  bool computed = false;         // must not be a weight
  bool inner = false;            // a plain result that dies: nothing outside the match may read it
  std::int32_t reads = 0;        // operand slots of the source that read an inner result
};

struct OperatorVariable {
  std::string name;
  std::vector<OperatorId> choices;
};

struct Rule {
  std::string name;
  std::string text;
  std::string file;
  Place place;             // of the rule's name
  std::string proof;       // as it stands in the file; empty if there is none
  Place proof_place;       // of the word `proof`, or of the rule's name
  Hash128 digest;          // of the rule's tokens without comments and proof
  std::vector<std::string> value_names, symbol_names, rest_names;
  std::vector<bool> value_starred;
  std::vector<Variable> variables;
  std::vector<OperatorVariable> operators;
  std::vector<Statement> source, target;
  std::vector<Expression> conditions;
  std::vector<Term> outputs;                                  // results that both sides define
  std::vector<std::pair<std::int32_t, std::int32_t>> unordered;    // results of statements that may change places
  std::size_t root = 0;             // source statement whose operator gives a match its site
  std::vector<std::size_t> plan;    // order in which source statements are matched; the first is the anchor
  std::vector<Slot> slots;          // by value slot
  std::vector<std::int32_t> shielded;    // results other than inner ones that die: only matched operators may read them
  std::int32_t radius = 0;          // statements are at most this many shared run-time tensors away from the anchor
  // Some operator of each set of `makers` must make a tensor that the anchor reads, and some operator of each set of
  // `readers` must read a tensor that the anchor makes.
  std::vector<OperatorSet> makers, readers;
  std::uint32_t shared = 0;         // bit i: another operator reads operand i of the anchor too
  bool far = false;                 // a change anywhere can make or break a match, so that radius has no meaning
  bool may_cycle = false;           // a rewrite can close a cycle
  bool may_free = false;            // a rewrite can make operators outside the match unnecessary
  std::int32_t least_elements = 2;  // fewest elements of a starred variable
};

// Rules, and what matching needs to know about all of them, computed once.
struct RuleBook {
  explicit RuleBook(std::vector<Rule> rules);

  std::vector<Rule> rules;
  std::vector<std::vector<std::int32_t>> by_anchor;    // by operator: the rules whose anchor it can be
  std::int32_t longest_radius = 0;                     // of the rules that are not far
  std::size_t statements = 0;                          // in all sources; rule r's begin at statement_begin[r]
  std::vector<std::size_t> statement_begin;
};

// The most operands of an anchor for which it is recorded whether other operators read them.
inline constexpr std::size_t kMostShared = 32;

// The most tensor names of a rule. While matching, bound names are bits of a word.
inline constexpr std::size_t kMostNames = 64;

// The most symbols of a rule, and the greatest `least`. Both are far beyond any use, and low enough that no work on a
// rule takes long.
inline constexpr std::size_t kMostSymbols = 256;
inline constexpr std::int64_t kMostLeast = 64;

// Returns the operators that a source statement of a rule can stand for.
[[nodiscard]] std::vector<OperatorId> operators_of(const Rule& rule, const Statement& statement);

// Parses the text of a rule file. Throws InvalidInput, which names line and column, what was expected and what came.
[[nodiscard]] std::vector<Rule> parse_rules(std::string_view text, std::string_view file_name);

}  // namespace rlflow
