#include "server/resp/command/command_batch.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "adapters/redis/wire/scripts.hpp"
#include "server/resp/wire/reply.hpp"
#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {
namespace {

using testing::ElementsAre;
using Kind = BatchResult::Kind;

constexpr auto with_rule = [](const char* verdict, const char* highest, const char* exact,
                              const char* replies, int count) {
  return fmt::format("*{}\r\n{}{}$-1\r\n{}{}", 4 + count, bulk(verdict), bulk(highest), exact, replies);
};

class Runs : public testing::Test {
 protected:
  Runs() { learn_some_commands(table_); }

  static HeldClaimPtr claim(std::optional<Sequence> sequence = {}) {
    return std::make_shared<HeldClaim>(Claim{Resource{"a"}, Token{7}, Holder{"h"}, sequence});
  }

  bool take(CommandBatch& run, const Words& words) {
    const std::vector<std::string_view> views{words.begin(), words.end()};
    const auto* facts = table_.find(views);
    EXPECT_NE(facts, nullptr);
    std::vector<std::string_view> keys;
    redis::keys_of(*facts, views, keys);
    return run.take(*facts, views, keys);
  }

  CommandBatch run_of(const std::vector<Words>& commands, std::optional<Sequence> sequence = {}) {
    CommandBatch run{claim(sequence)};
    for (const auto& words : commands) EXPECT_TRUE(take(run, words)) << words[0];
    return run;
  }

  static Words sent(CommandBatch& run, bool is_cluster = false, std::int64_t jump = 5) {
    const auto call = run.call(redis::Keys{"fenceguard:"}, is_cluster, jump);
    const auto words = Sent{.bytes = call.rest, .script = call.script}.words();
    EXPECT_EQ(words.size(), call.words);
    return words;
  }

  // How it ended, and what the client gets.
  static std::pair<BatchResult, std::string> ended(const CommandBatch& run, const std::string& reply) {
    std::string out;
    auto result = run.end(reply, out);
    return {std::move(result), out};
  }

  redis::CommandTable table_;
};

TEST_F(Runs, OneWriteIsCalledWithItsFenceItsKeysAndItsWords) {
  auto run = run_of({{"SET", "{a}:x", "1"}});
  EXPECT_THAT(sent(run), ElementsAre("3", "fenceguard:{a}", "fenceguard:namespace", "{a}:x", "7 h - 0 5",
                                     "SET", "{a}:x", "1"));
  auto of_cluster = run_of({{"DEL", "{a}:x", "{a}:y"}});
  EXPECT_THAT(sent(of_cluster, true),
              ElementsAre("3", "fenceguard:{a}", "{a}:x", "{a}:y", "7 h - 0 5", "DEL", "{a}:x", "{a}:y"));
}

TEST_F(Runs, SeveralWritesStandForThemselves) {
  auto run = run_of({{"SET", "{a}:x", "1"}, {"INCR", "{a}:n"}});
  EXPECT_THAT(sent(run), ElementsAre("4", "fenceguard:{a}", "fenceguard:namespace", "{a}:x", "{a}:n",
                                     "7 h - 0 5", "each 3 2", "SET", "{a}:x", "1", "INCR", "{a}:n"));
}

TEST_F(Runs, AReadUsesUpNoSequence) {
  auto read = run_of({{"GET", "{a}:x"}}, Sequence{3});
  EXPECT_THAT(sent(read), ElementsAre("3", "fenceguard:{a}", "fenceguard:namespace", "{a}:x", "7 h - 0 5",
                                      "all -2", "GET", "{a}:x"));
  auto write = run_of({{"INCR", "{a}:x"}}, Sequence{3});
  EXPECT_THAT(sent(write), ElementsAre("3", "fenceguard:{a}", "fenceguard:namespace", "{a}:x", "7 h 3 0 5",
                                       "all 2", "INCR", "{a}:x"));
}

TEST_F(Runs, WhereAnAskIsToldStandsInTheCall) {
  auto run = run_of({{"SET", "{a}:x", "1"}});
  auto call = run.call(redis::Keys{"fenceguard:"}, true, 5);
  call.rest[call.asked_at] = '1';
  EXPECT_THAT(call.rest, testing::HasSubstr("7 h - 1 5\r\n"));
  auto advance = advance_call(claim()->claim, redis::Keys{"p:"}, true, 5);
  advance.rest[advance.asked_at] = '1';
  EXPECT_THAT((Sent{.bytes = advance.rest, .script = advance.script}.words()),
              ElementsAre("1", "p:{a}", "a", "7", "h", "5", "1"));
}

TEST_F(Runs, AreFullAtTheirLimits) {
  CommandBatch run{claim()};
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(take(run, {"SET", "{a}:x", "1"}));
  EXPECT_FALSE(take(run, {"SET", "{a}:x", "1"}));
  CommandBatch large{claim()};
  ASSERT_TRUE(take(large, {"SET", "{a}:x", std::string(100'000, 'x')}));
  EXPECT_FALSE(take(large, {"SET", "{a}:x", "1"}));
}

TEST_F(Runs, WhatMustNotRunInOneStepIsNotTaken) {
  // A sequence is of one command.
  auto sequenced = run_of({{"SET", "{a}:x", "1"}}, Sequence{1});
  EXPECT_FALSE(take(sequenced, {"SET", "{a}:x", "2"}));
  // Once a script has written, no more is asked whether there is memory.
  auto freed = run_of({{"DEL", "{a}:x"}});
  EXPECT_FALSE(take(freed, {"SET", "{a}:x", "2"}));
  EXPECT_TRUE(take(freed, {"DEL", "{a}:y"}));
  auto read = run_of({{"GET", "{a}:x"}});
  EXPECT_FALSE(take(read, {"SET", "{a}:x", "2"}));
}

TEST_F(Runs, ARawReplyOfOneWriteIsGivenAsItIs) {
  for (const auto* reply : {"+OK\r\n", ":-3\r\n", "$3\r\na\r\n\r\n", "$-1\r\n"}) {
    const auto [result, out] = ended(run_of({{"SET", "{a}:x", "1"}}), reply);
    EXPECT_EQ(result.kind, Kind::ruled) << reply;
    EXPECT_EQ(result.verdict, Verdict::admitted);
    EXPECT_EQ(result.highest, 7);
    EXPECT_EQ(out, reply);
  }
}

TEST_F(Runs, AnArrayOrAnErrorOfOneWriteComesInATable) {
  const auto run = run_of({{"LPOP", "{a}:l", "2"}});
  EXPECT_EQ(ended(run, "*1\r\n*2\r\n$1\r\na\r\n$-1\r\n").second, "*2\r\n$1\r\na\r\n$-1\r\n");
  EXPECT_EQ(ended(run, "*1\r\n*4\r\n$8\r\nadmitted\r\n$1\r\n1\r\n$-1\r\n$-1\r\n").second,
            "*4\r\n$8\r\nadmitted\r\n$1\r\n1\r\n$-1\r\n$-1\r\n");
  const auto [result, out] = ended(run, "*1\r\n-WRONGTYPE no\r\n");
  EXPECT_EQ(result.kind, Kind::ruled);
  EXPECT_EQ(out, "-WRONGTYPE no\r\n");
}

TEST_F(Runs, IntegersBeyondLuaAreExact) {
  const auto one = run_of({{"INCR", "{a}:n"}});
  EXPECT_EQ(ended(one, "*2\r\n:9223372036854775807\r\n$19\r\n9223372036854775806\r\n").second,
            ":9223372036854775806\r\n");
  EXPECT_EQ(ended(one, with_rule("admitted", "7", "*2\r\n:1\r\n$16\r\n9007199254740993\r\n",
                                 ":9007199254740992\r\n", 1))
                .second,
            ":9007199254740993\r\n");
  const auto three = run_of({{"INCR", "{a}:n"}, {"INCR", "{a}:m"}, {"INCR", "{a}:n"}});
  const std::string exact = "*4\r\n:1\r\n$16\r\n9007199254740993\r\n:3\r\n$16\r\n9007199254740995\r\n";
  EXPECT_EQ(ended(three, "*4\r\n" + exact + ":9007199254740992\r\n:5\r\n:9007199254740996\r\n").second,
            ":9007199254740993\r\n:5\r\n:9007199254740995\r\n");
}

TEST_F(Runs, ANilOfAnArrayIsOneAgain) {
  EXPECT_EQ(ended(run_of({{"LPOP", "{a}:l", "2"}}), "$-1\r\n").second, "*-1\r\n");
  EXPECT_EQ(ended(run_of({{"LPOP", "{a}:l"}}), "$-1\r\n").second, "$-1\r\n");
  const auto run = run_of({{"LPOP", "{a}:l"}, {"LPOP", "{a}:l", "2"}});
  EXPECT_EQ(ended(run, "*3\r\n$-1\r\n$-1\r\n$-1\r\n").second, "$-1\r\n*-1\r\n");
  EXPECT_EQ(ended(run, with_rule("admitted", "7", "$-1\r\n", "$-1\r\n$-1\r\n", 2)).second, "$-1\r\n*-1\r\n");
}

TEST_F(Runs, ARefusalIsToldForEachCommand) {
  const auto run = run_of({{"INCR", "{a}:n"}, {"INCR", "{a}:n"}});
  auto [result, out] = ended(run, with_rule("stale", "9", "$-1\r\n", "", 0));
  EXPECT_EQ(result.kind, Kind::ruled);
  EXPECT_EQ(result.verdict, Verdict::stale);
  EXPECT_EQ(result.highest, 9);
  const std::string stale = "-STALE token=7 highest=9 resource=a: nothing was written\r\n";
  EXPECT_EQ(out, stale + stale);
  const auto one = run_of({{"INCR", "{a}:n"}}, Sequence{4});
  EXPECT_EQ(ended(one, with_rule("duplicate", "7", "$-1\r\n", "", 0)).second,
            "-DUPLICATE sequence=4 token=7 resource=a: it took effect before, nothing was written\r\n");
  EXPECT_EQ(ended(one, with_rule("conflict", "7", "$-1\r\n", "", 0)).second,
            "-CONFLICT token=7 highest=7 resource=a: another holder has this token\r\n");
}

TEST_F(Runs, ErrorsOfTheScriptMeanWhatTheyMean) {
  const auto run = run_of({{"INCR", "{a}:n"}, {"INCR", "{a}:n"}});
  for (const auto* error :
       {"-NOSCRIPT No matching script.\r\n", "-MOVED 1 h:1\r\n", "-ASK 1 h:1\r\n", "-TRYAGAIN x\r\n"}) {
    const auto [result, out] = ended(run, error);
    EXPECT_EQ(result.kind, Kind::not_run) << error;
    EXPECT_EQ(out, "");
  }
  auto [result, out] = ended(run, "-OOM command not allowed. script: f_1, on @user_script:1.\r\n");
  EXPECT_EQ(result.kind, Kind::error);
  EXPECT_EQ(out, "-OOM command not allowed.\r\n-OOM command not allowed.\r\n");
  result = ended(run, "-UNINITIALISED no floor\r\n").first;
  EXPECT_EQ(result.kind, Kind::fault);
  EXPECT_EQ(result.fault.kind, FaultKind::unavailable);
  EXPECT_THAT(fault_text(result.fault), testing::StartsWith("UNAVAILABLE "));
  // One that stopped in its middle may have written.
  result = ended(run, "-ERR what is this script: f_1, on @user_script:12.\r\n").first;
  EXPECT_EQ(result.fault.kind, FaultKind::unknown);
  EXPECT_THAT(fault_text(result.fault), testing::StartsWith("UNKNOWN "));
}

TEST_F(Runs, AnImplausibleTokenIsToldOnce) {
  const auto [result, out] =
      ended(run_of({{"INCR", "{a}:n"}}), "-IMPLAUSIBLE token 9 is more than 5 above 1\r\n");
  EXPECT_EQ(result.fault.kind, FaultKind::implausible);
  EXPECT_EQ(fault_text(result.fault), "IMPLAUSIBLE resource=a: token 9 is more than 5 above 1");
}

TEST_F(Runs, WhatIsNoRulingIsUnknown) {
  const auto run = run_of({{"INCR", "{a}:n"}, {"INCR", "{a}:n"}});
  for (const auto* reply : {"+OK\r\n", "*0\r\n", "*-1\r\n", "*2\r\n$-1\r\n:1\r\n",
                            "*4\r\n$3\r\nyes\r\n$1\r\n7\r\n$-1\r\n$-1\r\n"}) {
    const auto result = ended(run, reply).first;
    EXPECT_EQ(result.kind, Kind::fault) << reply;
    EXPECT_EQ(result.fault.kind, FaultKind::unknown) << reply;
  }
}

TEST_F(Runs, WhatAnAclForbidsInsideIsToldAsOutside) {
  EXPECT_EQ(ended(run_of({{"DEL", "{a}:x"}}),
                  "*1\r\n-ERR The user executing the script can't run this command or subcommand\r\n")
                .second,
            "-NOPERM this user can't run this command or subcommand\r\n");
}

TEST_F(Runs, AdvancesEndAsRuled) {
  const auto& said = claim()->claim;
  auto result = advance_result(said, "*4\r\n$8\r\nadmitted\r\n$1\r\n7\r\n:1\r\n:0\r\n");
  EXPECT_EQ(result.kind, Kind::ruled);
  EXPECT_TRUE(result.has_raised);
  result = advance_result(said, "*4\r\n$5\r\nstale\r\n$1\r\n9\r\n:0\r\n:0\r\n");
  EXPECT_EQ(result.verdict, Verdict::stale);
  EXPECT_EQ(result.highest, 9);
  EXPECT_FALSE(result.has_raised);
  for (const auto* reply : {"+OK\r\n", "*0\r\n", "*3\r\n$2\r\nno\r\n$1\r\n9\r\n:0\r\n"})
    EXPECT_EQ(advance_result(said, reply).kind, Kind::fault) << reply;
}

TEST_F(Runs, WhatLuaWouldChangeIsNotTaken) {
  const auto can = [&](const Words& words) {
    const std::vector<std::string_view> views{words.begin(), words.end()};
    return CommandBatch::can_take(*table_.find(views), views);
  };
  EXPECT_TRUE(can({"SET", "{a}:x", "1"}));
  EXPECT_FALSE(can({"PTTL", "{a}:x"}));
  EXPECT_FALSE(can({"BITFIELD", "{a}:x", "GET", "u8", "0"}));
  EXPECT_FALSE(can({"XREADGROUP", "GROUP", "g", "c", "STREAMS", "{a}:s", ">"}));
  Words many(7'001, "{a}:x");
  many[0] = "DEL";
  EXPECT_FALSE(can(many));
  many.pop_back();
  EXPECT_TRUE(can(many));
}

}  // namespace
}  // namespace fenceguard::resp::test
