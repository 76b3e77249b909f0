// The checker, by histories that were written down by hand, and by random ones that were damaged.

#include "tests/proof/checker/check.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/proof/checker/random_history.hpp"
#include "tests/proof/checker/search.hpp"
#include "tests/proof/random.hpp"

namespace fenceguard::proof {
namespace {

// Operations in words: 'w1 5a/7 x 10-20 admitted 5' is a write by process 1 under token 5 of holder a with
// sequence 7 of the value x, called at 10 and returned at 20 with that verdict and highest token. r, a, c and
// f: read, advance, revoke (close), floor. '-' is absent; a line 'log x@5 y@6' is the storage's.
History history_of(const std::string& words) {
  History history;
  history.resources.push_back({"r", {}, {}, false});
  auto& resource = history.resources[0];
  std::istringstream lines{words};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in{line};
    std::string who, claim, value, times, verdict, highest;
    if (!(in >> who)) continue;
    if (who == "log") {
      resource.has_log = true;
      while (in >> value) {
        const auto at = value.find('@');
        resource.log.push_back({std::stoll(value.substr(at + 1)), history.texts.id(value.substr(0, at))});
      }
      continue;
    }
    in >> claim >> value >> times >> verdict >> highest;
    Operation operation;
    operation.kind = who[0] == 'w'   ? Kind::write
                     : who[0] == 'r' ? Kind::read
                     : who[0] == 'a' ? Kind::advance
                     : who[0] == 'c' ? Kind::revoke
                                     : Kind::floor;
    operation.process = std::stoll(who.substr(1));
    if (claim != "-") {
      std::size_t end = 0;
      operation.token = std::stoll(claim, &end);
      const auto slash = claim.find('/');
      operation.holder = history.texts.id(claim.substr(end, slash - end));
      if (slash != std::string::npos) operation.sequence = std::stoll(claim.substr(slash + 1));
    }
    if (value != "-") operation.value = history.texts.id(value);
    const auto dash = times.find('-');
    operation.called = std::stoll(times.substr(0, dash));
    if (dash + 1 < times.size()) operation.returned = std::stoll(times.substr(dash + 1));
    for (int i = 0; i < 8; ++i) {
      if (verdict == name_of(static_cast<Answer>(i))) operation.answer = static_cast<Answer>(i);
    }
    if (!highest.empty()) operation.highest = std::stoll(highest);
    resource.operations.push_back(operation);
  }
  put_in_order(history);
  return history;
}

std::string judged(const std::string& words, const CheckOptions& options = {}) {
  const auto found = check(history_of(words), options);
  return found.empty() ? "" : found.front().rule;
}

// By the search alone.
bool has_order(const std::string& words) {
  return find_order(history_of(words).resources[0].operations) == Found::order;
}

TEST(Search, FindsTheOrderOfWritesThatAReadShows) {
  EXPECT_TRUE(has_order("w1 1a x 0-50 admitted 1\nw2 1a y 0-50 admitted 1\nr3 1a x 60-70 admitted 1"));
  EXPECT_TRUE(has_order("w1 1a x 0-50 admitted 1\nw2 1a y 0-50 admitted 1\nr3 1a y 60-70 admitted 1"));
  EXPECT_FALSE(has_order("w1 1a x 0-50 admitted 1\nw2 1a y 60-70 admitted 1\nr3 1a x 80-90 admitted 1"));
  EXPECT_FALSE(has_order("w1 1a x 0-50 admitted 1\nr3 1a - 80-90 admitted 1"));
}

TEST(Search, AStaleWriteThatTookEffectIsFound) {
  EXPECT_FALSE(has_order("a1 2b - 0-10 admitted 2\nw2 1a x 20-30 unknown\nr1 2b x 40-50 admitted 2"));
  EXPECT_TRUE(has_order("a1 2b - 0-30 admitted 2\nw2 1a x 20-25 unknown\nr1 2b x 40-50 admitted 2"));
}

// What it shows: the lost update at a take-over. How: the new holder reads before an older write lands.
TEST(Search, AWriteThatLandsAfterAHigherTokenHasReadIsFound) {
  constexpr auto before = "w1 1a x 0-5 admitted 1\nw1 1a y 10- unknown\na2 2b - 20-30 admitted 2\n";
  EXPECT_TRUE(has_order(std::string{before} + "r2 2b y 40-50 admitted 2"));
  EXPECT_FALSE(has_order(std::string{before} + "r2 2b x 40-50 admitted 2\nr2 2b y 60-70 admitted 2"));
}

TEST(Search, AnUnseenWriteTakesEffectLateOrNever) {
  constexpr auto writes = "w1 1a x 0-5 admitted 1\nw1 1a y 10- unknown\n";
  EXPECT_TRUE(has_order(std::string{writes} + "r2 - x 40-50 admitted\nr2 - y 60-70 admitted"));
  EXPECT_TRUE(has_order(std::string{writes} + "r2 - x 40-50 admitted"));
  EXPECT_FALSE(has_order(std::string{writes} +
                         "r2 - y 40-50 admitted\nw3 1a z 60-70 admitted 1\nr2 - y 80-90 admitted"))
      << "twice";
}

TEST(Search, AFenceThatSomebodyUnseenRaisedIsAReason) {
  EXPECT_TRUE(has_order("a1 2b - 0- unknown\nw2 1a x 10-20 stale 2"));
  EXPECT_TRUE(has_order("a1 2b - 0-5 unavailable\nw2 1a x 10-20 stale 2"));
  EXPECT_FALSE(has_order("a1 2b - 30- unknown\nw2 1a x 10-20 stale 2"));
  EXPECT_FALSE(has_order("a1 2b - 0-5 implausible\nw2 1a x 10-20 stale 2"));
  EXPECT_TRUE(has_order("a1 2b - 0- unknown\nw2 2a x 10-20 conflict 2"));
  EXPECT_FALSE(has_order("a1 2b - 0- unknown\nw2 2b x 10-20 conflict 2"));
}

TEST(Search, AWriteUnderWayOutlivesAnAdvanceThatIsNotAdmittedYet) {
  constexpr auto words = "w1 1a x 0-90 admitted 1\na2 2b - 10-100 admitted 2\nw3 1a y 20-30 stale 2\n";
  EXPECT_TRUE(has_order(std::string{words} + "r4 - - 40-50 admitted"));
  EXPECT_FALSE(has_order(std::string{words} + "r4 - - 105-110 admitted"));
}

TEST(Search, ARevokeClosesAndTheNextTokenOpens) {
  EXPECT_TRUE(has_order(
      "w1 1a x 0-5 admitted 1\nc9 - - 10-20 admitted\nw1 1a y 30-40 stale 1\nw2 2b z 50-60 admitted 2"));
  EXPECT_FALSE(has_order("w1 1a x 0-5 admitted 1\nc9 - - 10-20 admitted\nw1 1a y 30-40 admitted 1"));
  EXPECT_TRUE(has_order("w1 1a x 0-5 admitted 1\nc9 - - 10- unknown\nw1 1a y 30-40 stale 1"));
}

TEST(Search, ARevokeClosesAFenceThatSomebodyUnseenRaised) {
  EXPECT_TRUE(has_order(
      "w1 1a x 0-5 admitted 1\na2 4b - 10-20 unavailable\nc9 - - 30-40 admitted\nw2 4b y 50-60 stale 4"));
  EXPECT_FALSE(has_order(
      "w1 1a x 0-5 admitted 1\nc9 - - 10-20 admitted\na2 4b - 30-40 unavailable\nw2 4b y 50-60 stale 4"));
}

TEST(Search, AFloorLeavesARecordOfItsOwnHeight) {
  EXPECT_TRUE(has_order("a2 4b - 0- unknown\nf9 4 - 10-20 admitted\nw3 4b y 50-60 admitted 4"));
  EXPECT_FALSE(has_order("f9 4 - 10-20 admitted\na2 4b - 30- unknown\nw3 4b y 50-60 admitted 4"));
}

TEST(Search, SequencesOfSeenAndUnseenWrites) {
  EXPECT_TRUE(has_order("w1 1a/7 x 0-5 admitted 1\nw1 1a/7 y 10-20 duplicate 1\nw1 1a/6 z 30-40 stale 1"));
  EXPECT_FALSE(has_order("w1 1a/7 x 0-5 admitted 1\nw1 1a/7 y 10-20 admitted 1"));
  EXPECT_TRUE(
      has_order("w1 1a/7 x 0-5 admitted 1\nw1 1a/8 y 10-90 admitted 1\nr2 - y 20-30 admitted\n"
                "w3 1a/7 z 40-50 duplicate 1"))
      << "8 took effect, and its end is not known yet";
  EXPECT_FALSE(
      has_order("w1 1a/7 x 0-5 admitted 1\nw1 1a/8 y 10-35 admitted 1\nw3 1a/7 z 40-50 duplicate 1"));
  constexpr auto late =
      "w1 1a/7 x 0-5 admitted 1\nw1 1a/8 y 10-20 unknown\nr2 - y 30-40 admitted\n"
      "w3 1a/7 z 50-60 duplicate 1\nw3 1a/7 u 70-80 stale 1";
  EXPECT_TRUE(has_order(late)) << "8 took effect, and was recorded later, of which nobody was told";
  EXPECT_FALSE(has_order(std::string{late} + "\nw3 1a/7 v 90-95 duplicate 1"));
  EXPECT_TRUE(has_order("w1 1a/7 x 0-5 unknown\nw1 1a/7 y 10-20 duplicate 1"));
  EXPECT_TRUE(has_order("w1 1a/7 x 0-5 unknown\nw1 1a/7 y 10-20 admitted 1"));
  EXPECT_FALSE(has_order("w1 1a/7 x 0-5 unknown\nw1 1a/7 y 10-20 duplicate 1\nr2 - - 30-40 admitted"));
  EXPECT_TRUE(has_order("w1 1a/7 x 0-5 refused 1\nw1 1a/7 y 10-20 admitted 1")) << "the storage refused it";
  EXPECT_FALSE(has_order("w1 1a/7 x 0-5 refused 1\nw1 1a/7 y 10-20 duplicate 1"));
}

TEST(Search, AFloorRefusesWhatHasNoRecord) {
  EXPECT_TRUE(has_order("f9 5 - 0-5 admitted\nw1 5a x 10-20 stale 5\nw1 6a y 30-40 admitted 6"));
  EXPECT_FALSE(has_order("f9 5 - 0-5 admitted\nw1 5a x 10-20 admitted 5"));
}

struct Case {
  const char* rule;
  const char* words;
};

TEST(Rules, EachIsBrokenByAHistoryOfItsOwn) {
  CheckOptions options;
  options.searches = false;
  for (const auto& [rule, words] : std::vector<Case>{
           {"fence-falls", "a1 5a - 0-5 admitted 5\na2 4b - 10-20 stale 4\na3 5a - 1-3 admitted 5"},
           {"lower-admitted", "w1 5a x 0-5 admitted\nw2 4b y 10-20 admitted"},
           {"two-holders", "w1 5a x 0-5 admitted 5\nw2 5b y 10-20 admitted 5"},
           {"no-reason", "w1 5a x 0-5 admitted 5\nw2 6b y 10-20 stale"},
           {"no-reason", "w1 5a x 0-5 admitted 5\nw2 4b y 10-20 stale 9"},
           {"no-reason", "w1 5a x 0-5 admitted 5\nw2 5a y 10-20 conflict"},
           {"no-reason", "w1 5a/1 x 0-5 admitted 5\nw1 5a/2 y 10-20 duplicate"},
           {"log-falls", "w1 5a x 0-5 admitted\nw2 4b y 3-20 unknown\nlog x@5 y@4"},
           {"lost", "w1 5a x 0-5 admitted\nw1 5a y 10-20 admitted\nlog x@5"},
           {"twice", "w1 5a x 0-5 admitted\nlog x@5 x@5"},
           {"unasked", "w1 5a x 0-5 admitted\nlog x@5 y@5"},
           {"unasked", "w1 5a x 0-5 admitted\nw2 4b y 10-20 stale 5\nlog y@4 x@5"},
           {"unasked", "w1 5a x 0-5 refused\nlog x@5"},
           {"unasked", "w1 5a x 0-5 admitted\nlog x@6"},
           {"log-order", "w1 5a x 0-5 admitted\nw1 5a y 10-20 admitted\nlog y@5 x@5"},
           {"read", "w1 5a x 0-5 admitted\nr2 - y 10-20 admitted"},
           {"read", "w1 5a x 0-5 refused\nr2 - x 10-20 admitted"},
           {"read", "r2 - x 10-20 admitted\nw1 5a x 30-40 admitted"},
           {"older-after", "a2 5b - 0-10 admitted\nr2 5b - 20-30 admitted\nw1 4a x 1-9 unknown\nlog x@4"},
           {"older-value",
            "w1 5a x 0-5 admitted\nw1 5a y 10-20 admitted\nr2 - x 30-40 admitted\nlog x@5 y@5"}}) {
    EXPECT_EQ(judged(words, options), rule) << words;
  }
}

TEST(Rules, ABoundIsAReasonOnlyBeyondIt) {
  for (const auto& [token, is_fine] : {std::pair{"116", true}, {"115", false}}) {
    History history = history_of(fmt::format("w1 5a x 0-5 admitted 5\nw2 {}b y 10-20 implausible", token));
    history.bound = 110;
    EXPECT_EQ(check(history).empty(), is_fine) << token;
  }
}

TEST(Check, AcceptsHistoriesOfAStorageThatKeepsTheRule) {
  for (const int unknown : {0, 5, 20}) {
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
      const History history = random_history(seed, {200, 10, unknown, true});
      const auto found = check(history);
      ASSERT_TRUE(found.empty()) << "seed " << seed << ": " << found[0].rule << ": " << found[0].sentence;
    }
  }
}

// The n-th write of the history that was acknowledged.
std::optional<std::size_t> acknowledged_write(const ResourceHistory& resource, Random& random) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < resource.operations.size(); ++i) {
    const Operation& operation = resource.operations[i];
    if (operation.kind == Kind::write && operation.answer == Answer::admitted) found.push_back(i);
  }
  if (found.empty()) return std::nullopt;
  return found[static_cast<std::size_t>(random(static_cast<int>(found.size())))];
}

TEST(Check, FindsAWriteThatWasDroppedDoubledOrMovedInTheLog) {
  int moved = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random{seed};
    const History whole = random_history(seed);
    const auto write = acknowledged_write(whole.resources[0], random);
    ASSERT_TRUE(write);
    const TextId value = whole.resources[0].operations[*write].value;
    const auto damaged = [&](auto damage) {
      ResourceHistory resource = whole.resources[0];
      damage(resource.log, std::ranges::find(resource.log, value, &Applied::value));
      const auto found = check(resource, whole.texts);
      return found ? found->rule : "";
    };
    EXPECT_EQ(damaged([](auto& log, auto place) { log.erase(place); }).empty(), false) << seed;
    EXPECT_EQ(damaged([](auto& log, auto place) { log.push_back(*place); }).empty(), false) << seed;
    EXPECT_EQ(damaged([](auto&, auto place) { ++place->token; }), "unasked") << seed;
    moved += !damaged([](auto& log, auto place) { std::rotate(log.begin(), place, place + 1); }).empty();
  }
  EXPECT_GT(moved, 90) << "the first of a log may stay the first";
}

// What it shows: the search needs no log. How: one answer of a history is made another.
TEST(Check, FindsAnAnswerThatWasMadeAnotherWithoutALog) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random{seed};
    History history = random_history(seed, {200, 8, 5, false});
    auto& operations = history.resources[0].operations;
    std::vector<Operation*> reads;
    for (auto& operation : operations) {
      if (operation.kind == Kind::read && operation.answer == Answer::admitted && operation.value != 0 &&
          operation.called > operations[100].called)
        reads.push_back(&operation);
    }
    ASSERT_FALSE(reads.empty());
    Operation& read = *reads[static_cast<std::size_t>(random(static_cast<int>(reads.size())))];
    read.value = operations[*acknowledged_write(
                                {"", {operations.begin(), operations.begin() + 50}, {}, false}, random)]
                     .value;
    found += check(history.resources[0], history.texts).has_value();
  }
  EXPECT_EQ(found, 100);
}

TEST(Check, ShowsTheShortestPrefixAsATable) {
  const History history = history_of(
      "w1 5a x 0-5 admitted 5\nw1 5a y 10-20 admitted 5\nr2 - x 30-40 admitted\nw1 6b z 50-60 admitted 6");
  const auto found = check(history);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rule, "no-order");
  EXPECT_EQ(found[0].until, 40);
  const auto table = table_of(prefix_of(history.resources[0], found[0].until), history.texts);
  EXPECT_NE(table.find("read"), std::string::npos) << table;
  EXPECT_EQ(table.find(" z "), std::string::npos) << table;
  EXPECT_EQ(std::ranges::count(table, '\n'), 5) << table;
}

TEST(Check, UndecidedIsAFailure) {
  CheckOptions options;
  options.steps_max = 1;
  EXPECT_EQ(judged("w1 1a x 0-50 admitted\nw2 1a y 0-50 admitted\nr3 - x 60-70 admitted", options),
            "undecided");
  options = {};
  options.search_operations_max = 1;
  EXPECT_EQ(judged("w1 1a x 0-5 admitted\nw1 1a y 10-20 admitted", options), "undecided");
}

TEST(Format, AHistoryReadsAsItWasWritten) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    History history = random_history(seed);
    history.bound = 1 + static_cast<std::int64_t>(seed);
    history.resources[0].name = R"(a "quoted" \ name)";
    const std::string text = text_of(history);
    std::istringstream in{text};
    EXPECT_EQ(text_of(read_history(in)), text);
  }
}

}  // namespace
}  // namespace fenceguard::proof
