// Recursive-descent parser from rule text to Rule.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_set>

#include "ir/operators.hpp"
#include "rules/rule.hpp"
#include "rules/lexer.hpp"
#include "rules/proof.hpp"

namespace rlflow {

void plan_matching(Rule& rule);    // plan.cpp

namespace {

// A function of expressions and the number of its arguments. If `tensor` is true, the first argument is a tensor.
struct Function {
  std::string_view name;
  std::size_t arguments;
  bool tensor;
};
constexpr Function kFunctions[] = {{"rank", 1, true}, {"dims", 1, true}, {"size", 1, true}, {"dtype", 1, true}, {"len", 1, false},
                                   {"prod", 1, false}, {"sum", 1, false}, {"take", 2, false}, {"drop", 2, false},
                                   {"permute", 2, false}, {"inverse", 1, false}, {"repeat", 2, false},
                                   {"sorted", 1, false}, {"sqrt", 1, false}, {"value", 1, true},
                                   {"is_identity", 1, true}, {"is_identity_kernel", 1, true},
                                   {"is_averaging_kernel", 1, true}, {"is_finite", 1, true},
                                   {"is_nonzero", 1, true}, {"within", 3, false}};

class Parser {
 public:
  Parser(std::string_view text, std::string_view file_name)
      : text_(text), file_name_(file_name), tokens_(tokenize(text, file_name)) {}

  std::vector<Rule> parse() {
    std::vector<Rule> rules;
    std::unordered_set<std::string> names;
    while (peek().kind != Token::Kind::kEnd) {
      rules.push_back(parse_rule());
      const Rule& rule = rules.back();
      if (!names.insert(rule.name).second) syntax_error(file_name_, rule.place, "a second rule named '" + rule.name + "'; names must be unique");
    }
    if (rules.empty()) fail("expected at least one rule");
    return rules;
  }

 private:
  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool is(std::string_view text) const { return peek().text == text && peek().kind != Token::Kind::kEnd; }
  bool accept(std::string_view text) {
    if (!is(text)) return false;
    ++at_;
    return true;
  }
  // Returns the place of the token that was taken last.
  Place taken() const { return tokens_[at_ == 0 ? 0 : std::min(at_, tokens_.size()) - 1].place; }
  [[noreturn]] void fail(const std::string& message) const { fail(message, peek().place); }
  [[noreturn]] void fail(const std::string& message, Place place) const {
    syntax_error(file_name_, place, (rule_.name.empty() ? "" : "rule '" + rule_.name + "': ") + message);
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail("expected '" + std::string(text) + "', got '" + std::string(peek().text) + "'");
  }
  std::string expect_name(const char* what) {
    if (peek().kind != Token::Kind::kName) fail(std::string("expected ") + what + ", got '" + std::string(peek().text) + "'");
    return std::string(next().text);
  }
  bool at_section() const {
    static constexpr std::string_view kSections[] = {"rule", "var", "op", "source", "given", "where", "unordered", "least", "target"};
    if (peek().kind == Token::Kind::kEnd || peek().kind == Token::Kind::kProof) return true;
    return peek().first_on_line && std::find(std::begin(kSections), std::end(kSections), peek().text) != std::end(kSections);
  }
  // Runs `item` for each `;`- or newline-separated item of a section.
  template <typename Item>
  void each(Item item) {
    do {
      item();
      if (!at_section() && !accept(";") && !peek().first_on_line) fail("expected ';' or a new line, got '" + std::string(peek().text) + "'");
    } while (!at_section());
  }

  std::int32_t value_slot(const std::string& name, bool starred, bool create) {
    for (std::size_t i = 0; i < rule_.value_names.size(); ++i) {
      if (rule_.value_names[i] != name) continue;
      if (rule_.value_starred[i] != starred) fail("'" + name + "' is used both with and without '*'", taken());
      return static_cast<std::int32_t>(i);
    }
    if (!create) fail("tensor '" + name + "' is not defined; declare it under 'var' or define it above its use", taken());
    if (rule_.value_names.size() == kMostNames) fail("more than " + std::to_string(kMostNames) + " tensor names; at most " + std::to_string(kMostNames) + " can be matched");
    rule_.value_names.push_back(name);
    rule_.value_starred.push_back(starred);
    return static_cast<std::int32_t>(rule_.value_names.size() - 1);
  }
  std::int32_t symbol_slot(const std::string& name, bool create) {
    const auto at = std::find(rule_.symbol_names.begin(), rule_.symbol_names.end(), name);
    if (at != rule_.symbol_names.end()) return static_cast<std::int32_t>(at - rule_.symbol_names.begin());
    if (!create) fail("symbol '" + name + "' is not bound by the source", taken());
    if (rule_.symbol_names.size() == kMostSymbols) fail("more than " + std::to_string(kMostSymbols) + " symbols, the limit for one rule");
    rule_.symbol_names.push_back(name);
    return static_cast<std::int32_t>(rule_.symbol_names.size() - 1);
  }

  Rule parse_rule() {
    rule_ = {};
    depth_ = operators_ = 0;
    if (!is("rule")) fail("expected 'rule', got '" + std::string(peek().text) + "'");
    const char* begin = peek().text.data();
    const std::size_t first = at_++;
    if (peek().first_on_line) fail("expected the name of the rule behind 'rule'");
    rule_.place = rule_.proof_place = peek().place;
    rule_.file = file_name_;
    rule_.name = expect_name("the name of the rule");
    bool source = false, target = false;
    while (!at_section() || !(is("rule") || peek().kind == Token::Kind::kEnd)) {
      if (peek().kind == Token::Kind::kProof) {
        rule_.proof_place = peek().place;
        rule_.proof = next().text;
        parse_domain();
        break;
      }
      const std::string section = expect_name("a section (var, op, source, given, where, unordered, least, target or proof)");
      if (section == "var") each([&] { parse_variables(); });
      else if (section == "op") each([&] { parse_operator_variable(); });
      else if (section == "source") each([&] { rule_.source.push_back(parse_statement(true)); }), source = true;
      else if (section == "given") each([&] { rule_.source.push_back(parse_statement(true)), rule_.source.back().kept = true; });
      else if (section == "where") each([&] { rule_.conditions.push_back(parse_comparison()); });
      else if (section == "unordered") each([&] { parse_unordered(); });
      else if (section == "least") rule_.least_elements = parse_least();
      else if (section == "target") each([&] { parse_target_item(); }), target = true;
      else fail("expected a section (var, op, source, given, where, unordered, least, target or proof), got '" + section + "'", taken());
    }
    if (!source || !target) fail("a rule needs a 'source' and a 'target'", rule_.place);
    finish();
    rule_.digest = digest(std::span(tokens_).subspan(first, at_ - first));
    const char* end = peek().kind == Token::Kind::kEnd ? text_.data() + text_.size() : peek().text.data();
    rule_.text = std::string(begin, end);
    return std::move(rule_);
  }

  // Adds the clause `domain` of the proof to the conditions: if a rule was only tested, the clause says on what.
  void parse_domain() {
    const auto clauses = proof_clauses(rule_.proof);
    for (const ProofClause& clause : clauses ? *clauses : std::vector<ProofClause>{}) {
      if (clause.name != "domain") continue;
      std::vector<Token> tokens = tokenize(clause.content, file_name_);
      for (Token& token : tokens) token.place = rule_.proof_place;
      std::swap(tokens, tokens_);
      const std::size_t at = std::exchange(at_, 0);
      while (peek().kind != Token::Kind::kEnd) {
        rule_.conditions.push_back(parse_comparison());
        if (!accept(",")) break;
      }
      if (peek().kind != Token::Kind::kEnd) fail("expected ',' or the end of the domain, got '" + std::string(peek().text) + "'");
      tokens_ = std::move(tokens);
      at_ = at;
    }
  }

  // Returns the digest of tokens. Line breaks count, because they separate items.
  static Hash128 digest(std::span<const Token> tokens) {
    Hash128 hash{34, 35};
    for (const Token& token : tokens) {
      if (token.kind != Token::Kind::kProof) hash = fold(fold(hash, hash_bytes(token.text, 36)), token.first_on_line);
    }
    return hash;
  }

  std::int64_t parse_integer() {
    if (peek().kind != Token::Kind::kInteger) fail("expected an integer, got '" + std::string(peek().text) + "'");
    std::int64_t value = 0;
    for (const char c : next().text) value = value * 10 + (c - '0');
    return value;
  }

  std::int32_t parse_least() {
    const std::int64_t least = parse_integer();
    if (least < 1 || least > kMostLeast) fail("'least' must lie in [1, " + std::to_string(kMostLeast) + "], got " + std::to_string(least));
    return static_cast<std::int32_t>(least);
  }

  double parse_real() {
    const std::string_view text = next().text;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool fits = error == std::errc() && end == text.data() + text.size() && std::abs(value) <= std::numeric_limits<float>::max();
    if (!fits) fail("expected a number that float32 can hold, got '" + std::string(text) + "'", taken());
    return value;
  }

  void parse_variables() {
    std::vector<Variable> group;
    do {
      Variable variable;
      variable.starred = accept("*");
      const std::string name = expect_name("a variable");
      if (std::find(rule_.value_names.begin(), rule_.value_names.end(), name) != rule_.value_names.end()) fail("'" + name + "' is declared twice", taken());
      variable.slot = value_slot(name, variable.starred, true);
      group.push_back(variable);
    } while (accept(","));
    expect(":");
    const bool weight = accept("weight"), computed = !weight && accept("runtime");
    const std::string dtype = expect_name("a dtype class (float or any)");
    if (dtype != "float" && dtype != "any") fail("expected the dtype class 'float' or 'any', got '" + dtype + "'", taken());
    std::optional<std::vector<Extent>> shape;
    if (accept("[")) shape = parse_shape();
    for (Variable& variable : group) {
      variable.weight_only = weight;
      variable.computed = computed;
      variable.floating = dtype == "float";
      variable.shape = shape;
      for (const Extent& extent : shape ? *shape : std::vector<Extent>{}) {
        if (extent.kind == Extent::Kind::kStarred && !variable.starred) fail("a starred extent needs a starred variable");
      }
      rule_.variables.push_back(variable);
    }
  }

  std::vector<Extent> parse_shape() {
    std::vector<Extent> shape;
    bool ellipsis = false;
    while (!accept("]")) {
      if (!shape.empty()) expect(",");
      Extent extent;
      if (peek().kind == Token::Kind::kInteger) {
        extent.integer = parse_integer();
      } else if (peek().kind == Token::Kind::kEllipsis) {
        if (ellipsis) fail("a shape can hold '...' once", peek().place);
        ellipsis = true;
        next();
        extent.kind = Extent::Kind::kEllipsis;
        if (peek().kind == Token::Kind::kName) extent.slot = symbol_slot(std::string(next().text), true);
      } else {
        extent.kind = accept("*") ? Extent::Kind::kStarred : Extent::Kind::kSymbol;
        extent.slot = symbol_slot(expect_name("an extent"), true);
      }
      shape.push_back(extent);
    }
    return shape;
  }

  void parse_operator_variable() {
    OperatorVariable variable{expect_name("an operator variable"), {}};
    expect(":");
    do {
      const std::string name = expect_name("an operator");
      const auto op = known_operator(name);
      if (!op) fail("'" + name + "' is not an operator the engine knows", taken());
      variable.choices.push_back(*op);
    } while (accept("|"));
    rule_.operators.push_back(std::move(variable));
  }

  void parse_unordered() {
    std::vector<std::int32_t> slots;
    do slots.push_back(value_slot(expect_name("a result of the source"), false, false));
    while (accept(","));
    for (std::size_t i = 1; i < slots.size(); ++i) rule_.unordered.emplace_back(slots[i - 1], slots[i]);
  }

  Term parse_term(bool create) {
    Term term;
    term.starred = accept("*");
    term.slot = value_slot(expect_name("a tensor"), term.starred, create);
    return term;
  }

  // Parses a statement of the target, or an alias: `y = x` makes an existing tensor stand for an output of the rule.
  void parse_target_item() {
    const bool alias = !is("*") && peek(1).text == "=" && peek(3).text != "(";
    const bool star_alias = is("*") && peek(2).text == "=" && peek(3).text == "*";
    if (!alias && !star_alias) {
      rule_.target.push_back(parse_statement(false));
      return;
    }
    Statement statement;
    statement.place = peek().place;
    statement.results.push_back(parse_term(true));
    expect("=");
    statement.arguments.push_back(parse_term(false));
    rule_.target.push_back(std::move(statement));
  }

  Statement parse_statement(bool source) {
    Statement statement;
    statement.place = peek().place;
    do statement.results.push_back(parse_term(true));
    while (accept(","));
    expect("=");
    const std::string op = expect_name("an operator");
    for (std::size_t i = 0; i < rule_.operators.size(); ++i) {
      if (rule_.operators[i].name == op) statement.op_variable = static_cast<std::int32_t>(i);
    }
    if (statement.op_variable < 0) {
      statement.op = known_operator(op);
      if (!statement.op) fail("'" + op + "' is neither an operator the engine knows nor declared under 'op'", taken());
      if (source && makes_constant(*statement.op)) {
        fail("'" + op + "' stands in targets only; in a source declare a weight and ask for its value(c) under 'where'", taken());
      }
    }
    expect("(");
    bool separator = false;
    while (!accept(")")) {
      if (separator && !is(";")) expect(",");
      if (accept(";")) {
        parse_attributes(statement, source);
        break;
      }
      statement.arguments.push_back(parse_term(false));
      separator = true;
    }
    std::sort(statement.attributes.begin(), statement.attributes.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const auto& attribute : statement.attributes) {
      if (!statement.listed.empty() && statement.listed.back() == attribute.name) fail("attribute '" + attribute.name + "' is written twice");
      statement.listed.push_back(attribute.name);
    }
    const bool starred_argument = std::any_of(statement.arguments.begin(), statement.arguments.end(), [](const Term& t) { return t.starred; });
    const bool starred_result = statement.results.size() == 1 && statement.results[0].starred;
    statement.mapped = starred_result && starred_argument;
    return statement;
  }

  void parse_attributes(Statement& statement, bool source) {
    while (!accept(")")) {
      if (accept("@")) {
        if (statement.rest >= 0) fail("a statement can hold '@' once", taken());
        const std::string name = expect_name("a name after '@'");
        const auto at = std::find(rule_.rest_names.begin(), rule_.rest_names.end(), name);
        if (at == rule_.rest_names.end() && !source) fail("'@" + name + "' is not bound by the source", taken());
        statement.rest = static_cast<std::int32_t>(at - rule_.rest_names.begin());
        if (at == rule_.rest_names.end()) rule_.rest_names.push_back(name);
      } else {
        const std::string name = expect_name("an attribute");
        expect("=");
        creating_ = source;
        statement.attributes.push_back({name, parse_sum()});
        creating_ = false;
      }
      if (!is(")")) expect(",");
    }
  }

  // Counts an operator of an expression. Expressions are evaluated and destroyed recursively, so their depth has to
  // stay far below what the stack can hold.
  void count_operator() {
    if (++operators_ > 2000) fail("more than 2000 operators in the expressions of one rule");
  }

  Expression binary(std::string op, Expression left, Expression right) {
    count_operator();
    Expression whole{.kind = Expression::Kind::kBinary, .op = std::move(op)};
    whole.arguments.push_back(std::move(left));
    whole.arguments.push_back(std::move(right));
    return whole;
  }

  Expression parse_comparison() {
    Expression left = parse_conjunction();
    while (accept("or")) left = binary("or", std::move(left), parse_conjunction());
    return left;
  }
  Expression parse_conjunction() {
    Expression left = parse_relation();
    while (accept("and")) left = binary("and", std::move(left), parse_relation());
    return left;
  }
  Expression parse_relation() {
    if (accept("not")) {
      if (++depth_ > 64) fail("expression nested deeper than 64");
      Expression whole{.kind = Expression::Kind::kUnary, .op = "not"};
      whole.arguments.push_back(parse_relation());
      --depth_;
      return whole;
    }
    Expression left = parse_sum();
    static constexpr std::string_view kRelations[] = {"==", "!=", "<=", ">=", "<", ">"};
    if (std::find(std::begin(kRelations), std::end(kRelations), peek().text) != std::end(kRelations)) {
      std::string op(next().text);
      return binary(std::move(op), std::move(left), parse_sum());
    }
    return left;
  }
  Expression parse_sum() {
    Expression left = parse_product();
    while (is("+") || is("-")) {
      std::string op(next().text);
      left = binary(std::move(op), std::move(left), parse_product());
    }
    return left;
  }
  Expression parse_product() {
    Expression left = parse_postfix();
    while (is("*") || is("/") || is("%")) {
      std::string op(next().text);
      left = binary(std::move(op), std::move(left), parse_postfix());
    }
    return left;
  }
  Expression parse_postfix() {
    Expression whole = parse_primary();
    while (is("[") && !peek().first_on_line) {
      next();
      count_operator();
      Expression index{.kind = Expression::Kind::kIndex, .op = "[]"};
      index.arguments.push_back(std::move(whole));
      index.arguments.push_back(parse_sum());
      expect("]");
      whole = std::move(index);
    }
    return whole;
  }
  Expression parse_primary() {
    if (++depth_ > 64) fail("expression nested deeper than 64");
    Expression whole = parse_primary_at_depth();
    --depth_;
    return whole;
  }
  Expression parse_primary_at_depth() {
    if (peek().kind == Token::Kind::kInteger) return {.kind = Expression::Kind::kInteger, .integer = parse_integer()};
    if (peek().kind == Token::Kind::kReal) return {.kind = Expression::Kind::kReal, .real = parse_real()};
    if (peek().kind == Token::Kind::kText) return {.kind = Expression::Kind::kText, .op = std::string(next().text)};
    if (accept("-")) {
      Expression whole{.kind = Expression::Kind::kUnary, .op = "-"};
      whole.arguments.push_back(parse_postfix());
      return whole;
    }
    if (accept("*")) {    // the list of a starred extent
      return {.kind = Expression::Kind::kSymbol, .slot = symbol_slot(expect_name("a symbol"), creating_)};
    }
    if (accept("(")) {
      Expression whole = parse_comparison();
      expect(")");
      return whole;
    }
    if (accept("[")) return parse_list();
    const std::string name = expect_name("an expression");
    if (is("(")) return parse_call(name);
    return {.kind = Expression::Kind::kSymbol, .slot = symbol_slot(name, creating_)};
  }
  Expression parse_list() {
    Expression list{.kind = Expression::Kind::kList, .op = {}};
    while (!accept("]")) {
      if (!list.arguments.empty()) expect(",");
      if (peek().kind == Token::Kind::kEllipsis) {
        next();
        Expression splice{.kind = Expression::Kind::kSplice, .op = "..."};
        splice.arguments.push_back(parse_postfix());
        list.arguments.push_back(std::move(splice));
      } else {
        list.arguments.push_back(parse_comparison());
      }
    }
    return list;
  }
  Expression parse_call(const std::string& name) {
    if (name == "count") return parse_count();
    if (name == "attribute") return parse_attribute_call();
    if (name == "only") return parse_only();
    const auto* function = std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& f) { return f.name == name; });
    if (function == std::end(kFunctions)) fail("unknown function '" + name + "'", taken());
    expect("(");
    Expression call{.kind = Expression::Kind::kCall, .op = name};
    if (function->tensor) call.slot = value_slot(expect_name("a tensor"), false, false);
    else call.arguments.push_back(parse_comparison());
    while (accept(",")) call.arguments.push_back(parse_comparison());
    expect(")");
    if (call.arguments.size() + (function->tensor ? 1 : 0) != function->arguments) {
      fail("'" + name + "' takes " + std::to_string(function->arguments) + " arguments");
    }
    return call;
  }

  Expression parse_count() {
    expect("(");
    Expression call{.kind = Expression::Kind::kCount, .op = {}};
    call.slot = value_slot(expect_name("a list of tensors"), true, false);
    expect(")");
    return call;
  }

  // Parses `attribute(@r, name)` or `attribute(f, name)`, perhaps with what it is if there is no such attribute.
  Expression parse_attribute_call() {
    expect("(");
    Expression call{.kind = Expression::Kind::kAttribute};
    parse_attribute_owner(call);
    expect(",");
    call.op = expect_name("an attribute");
    if (accept(",")) call.arguments.push_back(parse_comparison());
    expect(")");
    return call;
  }

  Expression parse_only() {
    expect("(");
    Expression call{.kind = Expression::Kind::kOnly, .op = {}};
    parse_attribute_owner(call);
    while (accept(",")) call.arguments.push_back({.kind = Expression::Kind::kText, .op = expect_name("an attribute")});
    expect(")");
    return call;
  }

  void parse_attribute_owner(Expression& call) {
    if (accept("@")) {
      const std::string name = expect_name("a name after '@'");
      const auto at = std::find(rule_.rest_names.begin(), rule_.rest_names.end(), name);
      if (at == rule_.rest_names.end()) fail("'@" + name + "' is not bound by the source", taken());
      call.slot = static_cast<std::int32_t>(at - rule_.rest_names.begin());
      return;
    }
    const std::string name = expect_name("'@' or an operator variable");
    const auto at = std::find_if(rule_.operators.begin(), rule_.operators.end(), [&](const OperatorVariable& variable) { return variable.name == name; });
    if (at == rule_.operators.end()) fail("'" + name + "' is no operator variable", taken());
    call.slot = static_cast<std::int32_t>(at - rule_.operators.begin());
    call.of_operator = true;
  }

  // Resolves the outputs, which both sides define, checks the uses of tensors and plans the matching.
  void finish() {
    const auto defined_by = [](const std::vector<Statement>& side) {
      std::vector<Term> terms;
      for (const Statement& statement : side) terms.insert(terms.end(), statement.results.begin(), statement.results.end());
      return terms;
    };
    const auto in_source = defined_by(rule_.source), in_target = defined_by(rule_.target);
    const auto count = [](const std::vector<Term>& terms, std::int32_t slot) {
      return std::count_if(terms.begin(), terms.end(), [&](const Term& t) { return t.slot == slot; });
    };
    for (const Term& term : in_source) {
      const std::string& name = rule_.value_names[term.slot];
      if (count(in_source, term.slot) > 1) fail("the source defines '" + name + "' twice", last_definition(rule_.source, term.slot));
      if (count(in_target, term.slot) > 1) fail("the target defines '" + name + "' twice", last_definition(rule_.target, term.slot));
      if (count(in_target, term.slot) == 1) rule_.outputs.push_back(term);
    }
    if (rule_.outputs.empty()) fail("source and target share no result, so there is nothing to replace", rule_.target[0].place);
    for (const Variable& variable : rule_.variables) {
      if (count(in_source, variable.slot) || count(in_target, variable.slot)) {
        const bool in_target_only = !count(in_source, variable.slot);
        fail("variable '" + rule_.value_names[variable.slot] + "' is also defined by a statement",
             last_definition(in_target_only ? rule_.target : rule_.source, variable.slot));
      }
    }
    check_source_uses();
    check_target_uses();
    try {
      plan_matching(rule_);
    } catch (const InvalidInput& error) {
      fail(error.what(), rule_.place);
    }
  }

  static Place last_definition(const std::vector<Statement>& side, std::int32_t slot) {
    Place place;
    for (const Statement& statement : side) {
      const auto defines = [&](const Term& term) { return term.slot == slot; };
      if (std::any_of(statement.results.begin(), statement.results.end(), defines)) place = statement.place;
    }
    return place;
  }

  // Checks that the source reads only variables and its own results from above, so that it has no cycle.
  void check_source_uses() {
    std::vector<bool> defined(rule_.value_names.size());
    for (const Variable& variable : rule_.variables) defined[variable.slot] = true;
    for (const Statement& statement : rule_.source) {
      for (const Term& term : statement.arguments) {
        if (!defined[term.slot]) fail("the source reads '" + rule_.value_names[term.slot] + "' above its definition", statement.place);
      }
      for (const Term& term : statement.results) defined[term.slot] = true;
    }
    for (const auto& pair : rule_.unordered) {
      for (const std::int32_t slot : {pair.first, pair.second}) {
        const bool variable = std::any_of(rule_.variables.begin(), rule_.variables.end(), [&](const Variable& v) { return v.slot == slot; });
        if (variable || !defined[slot]) fail("'unordered' names '" + rule_.value_names[slot] + "', which is not a result of the source", rule_.place);
      }
    }
  }

  // Checks that the target reads only variables, results that are given and its own results from above, not the results
  // that it replaces, and that the source binds its operator variables.
  void check_target_uses() {
    std::vector<Term> replaced;
    for (const Statement& statement : rule_.source) {
      if (!statement.kept) replaced.insert(replaced.end(), statement.results.begin(), statement.results.end());
    }
    std::vector<std::int32_t> defined;
    for (const Statement& statement : rule_.target) {
      const auto binds = [&](const Statement& other) { return other.op_variable == statement.op_variable; };
      if (std::none_of(rule_.source.begin(), rule_.source.end(), binds) && statement.op_variable >= 0) {
        fail("operator variable '" + rule_.operators[statement.op_variable].name + "' is not bound by the source", statement.place);
      }
      for (const Term& term : statement.arguments) {
        const bool from_source = std::any_of(replaced.begin(), replaced.end(), [&](const Term& t) { return t.slot == term.slot; });
        const bool above = std::find(defined.begin(), defined.end(), term.slot) != defined.end();
        if (from_source && !above) fail("the target reads '" + rule_.value_names[term.slot] + "', a result of the source; only variables, results that are given and earlier results of the target can be read", statement.place);
      }
      for (const Term& term : statement.results) defined.push_back(term.slot);
    }
  }

  std::string_view text_, file_name_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, operators_ = 0;
  bool creating_ = false;    // unknown symbols may be created: true inside the attributes of a source
  Rule rule_;
};

}  // namespace

std::vector<Rule> parse_rules(std::string_view text, std::string_view file_name) {
  return Parser(text, file_name).parse();
}

}  // namespace rlflow
