#pragma once

// The shared table of the rule, tests/judge_cases.tsv, read for C++ tests: judge() itself and what claims to
// answer as it does (a store, an adapter's own transaction, SQL). Its format is described at the top of the
// table.

#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "guard/judge.hpp"

namespace fenceguard::test {

struct JudgeCase {
  int line = 0;  // in the table, for messages
  FenceView view;
  Token token{1};
  Holder holder;
  std::optional<Sequence> sequence;
  Verdict verdict = Verdict::stale;
  std::optional<Fence> after;

  [[nodiscard]] Claim claim(const std::string& resource) const {
    return {Resource{resource}, token, holder, sequence};
  }
};

namespace judge_cases_detail {

inline std::vector<std::string> columns(const std::string& line) {
  std::vector<std::string> result(1);
  for (const char c : line) {
    if (c == '\t') {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
}

inline std::optional<Sequence> sequence(const std::string& text) {
  if (text == "-") return std::nullopt;
  return Sequence::parse(text).value();
}

// The record in the four columns from first on.
inline std::optional<Fence> fence(const std::vector<std::string>& row, std::size_t first) {
  if (row[first] == "-") return std::nullopt;
  const auto& closed = row[first + 3];
  if (closed != "0" && closed != "1") throw std::invalid_argument{"closed is 0 or 1"};
  return Fence{Token::parse(row[first]).value(), Holder{row[first + 1]}, sequence(row[first + 2]),
               closed == "1"};
}

inline JudgeCase parse(const std::string& text, int line) {
  const auto row = columns(text);
  if (row.size() != 13) throw std::invalid_argument{"13 columns are expected"};
  JudgeCase result;
  result.line = line;
  result.view = {fence(row, 0), parse_decimal(row[4]).value()};
  result.token = Token::parse(row[5]).value();
  result.holder = Holder{row[6]};
  result.sequence = sequence(row[7]);
  result.verdict = parse_verdict(row[8]).value();
  result.after = fence(row, 9);
  return result;
}

}  // namespace judge_cases_detail

// Every case of the table. Throws with the line that cannot be read.
inline std::vector<JudgeCase> judge_cases(const std::string& path = FENCEGUARD_SOURCE_DIR
                                          "/tests/judge_cases.tsv") {
  std::ifstream file{path};
  if (!file) throw std::runtime_error{"cannot read " + path};
  std::vector<JudgeCase> cases;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    if (text.empty() || text.front() == '#') continue;
    try {
      cases.push_back(judge_cases_detail::parse(text, line));
    } catch (const std::exception& error) {
      throw std::runtime_error{path + ":" + std::to_string(line) + ": " + error.what()};
    }
  }
  return cases;
}

}  // namespace fenceguard::test
