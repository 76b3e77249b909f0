// What a pipeline answers, and that it ends as its writes do one by one.

#include <fmt/format.h>

#include <random>

#include "adapters/redis/wire/scripts.hpp"
#include "tests/redis/guard/pipeline.hpp"

namespace fenceguard::test {
namespace {

// Shows: a reply under a claim is that of the command sent bare, each by itself and many in one script. How:
// the same commands in three databases.
TEST_F(GuardPipeline, EveryReplyIsThatOfTheCommandSentWithoutAClaim) {
  const auto connect = [&](const std::string& database) {
    auto client = std::make_unique<redis::Client>(server_.url(database));
    const std::string_view words[] = {"HSET", "fenceguard:namespace", "floor", "3", "highest", "5"};
    (void)client->call("r", words);
    return client;
  };
  const auto bare = connect("/1"), alone = connect("/2"), together = connect("/3");
  redis::Guard guard_alone{*alone}, guard_together{*together};
  (void)guard_alone.advance(claim_of(7));
  const auto outcomes = guard_together.pipeline(writes_of(claim_of(7), all_kinds));
  for (std::size_t i = 0; i < all_kinds.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(all_kinds[i], " ")));
    const std::vector<std::string_view> words{all_kinds[i].begin(), all_kinds[i].end()};
    const auto expected = bare->call("r", words);
    const auto written = guard_alone.write(claim_of(7), all_kinds[i]);
    EXPECT_EQ(written.ruling.verdict, Verdict::admitted);
    EXPECT_EQ(written.ruling.highest, 7);
    EXPECT_EQ(written.ruling.fence, (Fence{Token{7}, Holder{"h"}, {}, false}));
    ASSERT_EQ(written.replies.size(), 1u);
    ASSERT_TRUE(outcomes[i].ok());
    EXPECT_EQ(outcomes[i].value().ruling.fence, written.ruling.fence);
    ASSERT_EQ(outcomes[i].value().replies.size(), 1u);
    EXPECT_EQ(written.replies[0], expected) << written.replies[0].text << " / " << expected.text;
    EXPECT_EQ(outcomes[i].value().replies[0], expected) << outcomes[i].value().replies[0].text;
  }
}

TEST_F(GuardPipeline, WritesUnderOneClaimGoInOneScriptUpToItsBounds) {
  (void)guard_.advance(claim_of(7));
  std::vector<Command> commands;
  for (int i = 0; i < 200; ++i) commands.push_back({"RPUSH", "{r}l", std::to_string(i)});
  auto before = scripts();
  for (const auto& outcome : pipeline(claim_of(7), commands)) EXPECT_EQ(ending_of(outcome), "admitted");
  EXPECT_EQ(scripts() - before, 4) << "64 at most";
  const auto list = server_.call({"LRANGE", "{r}l", "0", "-1"}).elements;
  ASSERT_EQ(list.size(), 200u);
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(list[i].text, std::to_string(i));
  before = scripts();
  const std::string big(30'000, 'x');
  (void)pipeline(claim_of(7), {{"SET", "{r}a", big}, {"SET", "{r}b", big}, {"SET", "{r}c", big}});
  EXPECT_EQ(scripts() - before, 2) << "64 KiB at most";
  before = scripts();
  Command empty{"RPUSH", "{r}l"};
  empty.resize(5'000);
  (void)pipeline(claim_of(7), {empty, empty, empty});
  EXPECT_EQ(scripts() - before, 3) << "empty words are sent too";
  before = scripts();
  auto writes = writes_of(claim_of(7, "h", "r", 1), {{"INCR", "{r}n"}, {"INCR", "{r}n"}});
  writes.push_back({claim_of(7), {{"INCR", "{r}n"}, {"INCR", "{r}n"}}});
  writes.push_back({claim_of(7), {}});
  writes.push_back({claim_of(7), {{"INCR", "{r}n"}}});
  writes.push_back({claim_of(7, "other"), {{"INCR", "{r}n"}}});
  EXPECT_EQ(endings_of(pipeline(writes)), (std::vector<std::string>{"admitted", "duplicate", "admitted",
                                                                    "admitted", "admitted", "conflict"}));
  EXPECT_EQ(scripts() - before, 6) << "what is judged or counted by itself goes by itself";
  EXPECT_EQ(get("{r}n"), "4");
}

TEST_F(GuardPipeline, EachStandsForItselfWhateverBecomesOfTheOthers) {
  const auto outcomes = pipeline(claim_of(7), {{"SET", "{r}a", "1"},
                                               {"RPUSH", "{r}a", "x"},     // WRONGTYPE
                                               {"SET", "{s}a", "stolen"},  // of another resource
                                               {"SET", "fenceguard:{r}", "x"},
                                               {"NO-SUCH", "{r}a"},
                                               {"SET"},
                                               {},
                                               {"EVAL", "return 1", "1", "{r}a"},
                                               {"INCR", "{r}a"},
                                               {"GET", "{r}a"}});
  const std::string invalid = to_string(FaultKind::invalid_input);
  EXPECT_EQ(endings_of(outcomes),
            (std::vector<std::string>{"admitted", "admitted", invalid, invalid, invalid, invalid, invalid,
                                      invalid, "admitted", "admitted"}));
  EXPECT_TRUE(outcomes[1].value().replies.at(0).text.starts_with("WRONGTYPE"));
  EXPECT_EQ(outcomes[8].value().replies.at(0).integer, 2);
  EXPECT_EQ(outcomes[9].value().replies.at(0).text, "2");
  EXPECT_EQ(server_.call({"EXISTS", "{s}a"}).integer, 0);
  EXPECT_EQ(record(server_), (std::vector<std::string>{"7", "h", "-", "-"}));
  for (const auto& outcome : pipeline(claim_of(6), {{"SET", "{r}a", "late"}, {"GET", "{r}a"}})) {
    EXPECT_EQ(ending_of(outcome), "stale");
    EXPECT_EQ(outcome.value().ruling.highest, 7);
    EXPECT_TRUE(outcome.value().replies.empty());
  }
  for (const auto& outcome : pipeline(claim_of(7, "x"), {{"SET", "{r}a", "late"}, {"GET", "{r}a"}}))
    EXPECT_EQ(ending_of(outcome), "conflict");
  EXPECT_EQ(get("{r}a"), "2");
}

// A random pipeline, with claims of several holders, sequences, several resources and commands that fail.
std::vector<Write> random_writes(std::mt19937& random) {
  std::vector<Write> writes;
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  const auto command = [&](const std::string& resource) -> Command {
    const auto key = fmt::format("{{{}}}{}", resource, "ab"[below(2)]);
    switch (below(8)) {
      case 0:
        return {"GET", key};
      case 1:
        return {"RPUSH", key, std::to_string(below(9))};
      case 2:
        return {"DEL", key};
      case 3:
        return {"SET", "{other}a", "x"};
      case 4:
        return {"INCRBY", key, "9007199254740991"};
      case 5:
        return {"NO-SUCH", key};
      default:
        return {"APPEND", key, std::to_string(below(9))};
    }
  };
  for (auto count = 1 + random() % 12; count > 0; --count) {
    const std::string resource = below(4) == 0 ? "s" : "r";
    auto claim = claim_of(5 + below(3), below(4) == 0 ? "x" : "h", resource);
    if (below(4) == 0) claim.sequence = Sequence{below(4)};
    for (auto same = 1 + random() % 5; same > 0; --same) {
      Write write{claim, {}};
      for (auto n = below(6) == 0 ? below(3) : 1; n > 0; --n) write.commands.push_back(command(resource));
      writes.push_back(write);
    }
  }
  return writes;
}

// Shows: a pipeline ends as its writes do one by one, whatever happened to the fences before it. How: random
// pipelines in one database and the same writes by themselves in another, and between them what an
// administrator or an accident does, in both; then all that both hold is compared.
TEST_F(GuardPipeline, APipelineEndsAsItsWritesDoOneByOne) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random{seed};
  redis::Client other{server_.url("/1")};
  redis::Guard one_by_one{other, 1'000};
  redis::Guard piped{client_, 1'000};
  const auto in_both = [&](const std::vector<std::string_view>& words) {
    (void)client_.call("r", words);
    (void)other.call("r", words);
  };
  const auto contents = [&](redis::Client& client) {
    std::vector<Reply> all;
    for (const std::string_view key : {"{r}a", "{r}b", "{s}a", "{s}b", "{other}a"}) {
      const std::string_view words[] = {"DUMP", key};
      all.push_back(client.call(key, words));
    }
    for (const std::string_view key : {"fenceguard:{r}", "fenceguard:{s}", "fenceguard:namespace"}) {
      const std::string_view words[] = {"HGETALL", key};
      all.push_back(client.call(key, words));
    }
    return all;
  };
  in_both({"HSET", "fenceguard:namespace", "floor", "0", "highest", "0"});
  int admitted = 0, refused = 0, faults = 0;
  for (int round = 0; round < 400; ++round) {
    switch (random() % 16) {
      case 0:
        in_both({"HSET", "fenceguard:{r}", "closed", "1"});
        break;
      case 1:
        in_both({"DEL", "fenceguard:{r}"});
        break;
      case 2:
        in_both({"DEL", "fenceguard:{r}", "fenceguard:resources"});
        break;
      case 3:
        in_both({"HSET", "fenceguard:namespace", "floor", random() % 2 == 0 ? "6" : "7", "highest", "7"});
        break;
      case 4:
        in_both({"HSET", "fenceguard:namespace", "floor", random() % 2 == 0 ? "-1" : "05", "highest", "7"});
        break;
      case 5:
        in_both({"HSET", "fenceguard:namespace", "highest", "x"});
        break;
      case 6:
        in_both({"HSET", "fenceguard:{r}", "sequence", random() % 2 == 0 ? "x" : "2"});
        break;
      case 7:
        in_both({"DEL", "fenceguard:namespace"});
        break;
      case 8:
        in_both({"SET", "fenceguard:{r}", "x"});
        break;
      default:
        in_both({"FLUSHDB"});
        in_both({"HSET", "fenceguard:namespace", "floor", "4", "highest", "6"});
    }
    const auto writes = random_writes(random);
    const auto outcomes = piped.pipeline(writes);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      SCOPED_TRACE(fmt::format("round {}, write {}", round, i));
      const auto& now = outcomes[i];
      try {
        const auto alone = one_by_one.write_batch(writes[i].claim, writes[i].commands);
        ASSERT_TRUE(now.ok()) << now.fault().message;
        ASSERT_EQ(now.value().ruling.verdict, alone.ruling.verdict);
        ASSERT_EQ(now.value().ruling.highest, alone.ruling.highest);
        ASSERT_EQ(now.value().ruling.fence, alone.ruling.fence);
        ASSERT_EQ(now.value().replies, alone.replies);
        alone.ruling.verdict == Verdict::admitted ? ++admitted : ++refused;
      } catch (const Error& error) {
        ASSERT_FALSE(now.ok()) << error.what();
        ASSERT_EQ(now.fault().kind, error.kind()) << error.what() << "; " << now.fault().message;
        ++faults;
      }
    }
    ASSERT_EQ(contents(client_), contents(other)) << "round " << round;
  }
  EXPECT_GT(admitted, 500);
  EXPECT_GT(refused, 500);
  EXPECT_GT(faults, 300);
}

TEST_F(GuardPipeline, ForbiddenByTheServersStateIsUnavailableForEach) {
  const std::vector<Command> commands{{"GET", "{r}a"}, {"SET", "{r}a", "2"}, {"INCR", "{r}a"}};
  (void)pipeline(claim_of(7), {{"SET", "{r}a", "1"}});
  const auto unavailable = [&](std::size_t count) {
    return std::vector<std::string>(count, to_string(FaultKind::unavailable));
  };
  server_.call({"REPLICAOF", "127.0.0.1", "1"});
  for (const std::int64_t token : {7, 8})
    EXPECT_EQ(endings_of(pipeline(claim_of(token), commands)), unavailable(3));
  EXPECT_EQ(endings_of(pipeline(claim_of(7), {{"GET", "{r}a"}, {"GET", "{r}b"}})), unavailable(2));
  server_.call({"REPLICAOF", "NO", "ONE"});
  server_.call({"CONFIG", "SET", "min-replicas-to-write", "1"});
  for (const std::int64_t token : {7, 8})
    EXPECT_EQ(endings_of(pipeline(claim_of(token), commands)), unavailable(3));
  server_.call({"CONFIG", "SET", "min-replicas-to-write", "0"});
  server_.call({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_EQ(endings_of(pipeline(claim_of(8), commands)), unavailable(3));
  const auto outcomes = pipeline(claim_of(7), commands);
  EXPECT_EQ(outcomes[0].value().replies.at(0).text, "1") << "reading needs no memory";
  EXPECT_EQ(ending_of(outcomes[1]), "unavailable");
  EXPECT_EQ(ending_of(outcomes[2]), "unavailable");
  EXPECT_EQ(endings_of(pipeline(claim_of(7), {{"SET", "{r}a", "2"}, {"DEL", "{r}b"}})),
            (std::vector<std::string>{"unavailable", "admitted"}));
  EXPECT_EQ(endings_of(pipeline(claim_of(7), {{"DEL", "{r}b"}, {"SET", "{r}a", "2"}, {"GET", "{r}a"}})),
            (std::vector<std::string>{"admitted", "unavailable", "admitted"}))
      << "what frees memory lets nothing in that comes after it";
  server_.call({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_EQ(get("{r}a"), "1");
  server_.call({"DEL", "fenceguard:namespace"});
  EXPECT_EQ(endings_of(pipeline(claim_of(7), commands)), unavailable(3));
  init_namespace(server_, 7);
  EXPECT_EQ(endings_of(pipeline(claim_of(7), commands)), std::vector<std::string>(3, "admitted"));
  EXPECT_EQ(endings_of(redis::Guard(client_, 10).pipeline(writes_of(claim_of(99), commands))),
            std::vector<std::string>(3, to_string(FaultKind::implausible)));
}

// A right that the user lacks for one key or command leaves the others as they are.
TEST_F(GuardPipeline, AKeyOrACommandThatTheUserMayNotUseIsRefusedByItself) {
  for (const std::string right : {"~fenceguard:* ~{r}a", "~* -incr", "~* -get", "~* -persist"}) {
    SCOPED_TRACE(right);
    server_.call({"FLUSHALL"});
    init_namespace(server_);
    Command user{"ACL", "SETUSER", "app", "reset", "on", ">pw", "&*", "+@all"};
    for (std::size_t at = 0; at < right.size();) {
      const auto end = std::min(right.find(' ', at), right.size());
      user.push_back(right.substr(at, end - at));
      at = end + 1;
    }
    ASSERT_EQ(server_.call(user).text, "OK");
    redis::Client client{fmt::format("redis://app:pw@127.0.0.1:{}", server_.port())};
    redis::Guard guard{client};
    const std::vector<Command> commands{
        {"SET", "{r}a", "1"}, {"INCR", "{r}b"}, {"GET", "{r}a"}, {"APPEND", "{r}a", "2"}};
    for (const std::int64_t token : {7, 7}) {
      const auto outcomes = guard.pipeline(writes_of(claim_of(token), commands));
      EXPECT_EQ(ending_of(outcomes[0]), "admitted");
      EXPECT_EQ(outcomes[0].value().replies.at(0).text, "OK");
      EXPECT_EQ(outcomes[3].value().replies.at(0).integer, 2);
    }
    EXPECT_EQ(get("{r}a"), "12");
  }
}

TEST_F(GuardPipeline, AJumpBoundBelowZeroIsRefusedByTheGuardAndByTheScript) {
  EXPECT_EQ(kind_of([&] {
              return redis::Guard{client_, -1}.advance(claim_of(9));
            }),
            FaultKind::invalid_input);
  (void)guard_.advance(claim_of(9));
  const redis::Run run{redis::scripts::guarded(false),
                       {"fenceguard:{r}", "fenceguard:namespace", "{r}n"},
                       {"10 h - 0 -1", "all 2", "INCR", "{r}n"}};
  const auto reply = client_.run(run);
  EXPECT_TRUE(reply.is_error());
  EXPECT_TRUE(reply.text.starts_with("DAMAGED")) << reply.text;
  EXPECT_EQ(get("{r}n"), "");
}

// A record that reads like more of a claim than its token and holder equals none.
TEST_F(GuardPipeline, FenceWrittenByHandEqualsOnlyItsTokenAndHolder) {
  const std::vector<Command> commands{{"INCR", "{r}n"}, {"INCR", "{r}n"}};
  const std::pair<const char*, const char*> records[] = {{"7", "h "},       {"7", "h - 0 1"}, {"7 h", ""},
                                                         {"7 h", "- 0"},    {"7", "h - 0 0"}, {"07", "h"},
                                                         {"7 h - 0 0", ""}, {"7", "H"},       {"77", "h"}};
  for (const auto& [token, holder] : records) {
    SCOPED_TRACE(fmt::format("'{}' '{}'", token, holder));
    server_.call({"HSET", "fenceguard:{r}", "token", token, "holder", holder});
    for (const std::size_t count : {1U, 2U}) {
      const auto writes = writes_of(claim_of(7), {commands.begin(), commands.begin() + count});
      for (const auto& outcome : pipeline(writes)) EXPECT_NE(ending_of(outcome), "admitted");
    }
  }
  EXPECT_EQ(get("{r}n"), "");
}

TEST_F(GuardPipeline, ARunWithAReadTakesATimeToLiveOffTheFence) {
  (void)guard_.advance(claim_of(7));
  const std::vector<std::vector<Command>> runs{{{"GET", "{r}a"}, {"GET", "{r}b"}},
                                               {{"SET", "{r}a", "1"}, {"GET", "{r}a"}}};
  for (const auto& commands : runs) {
    server_.call({"PEXPIRE", "fenceguard:{r}", "100000"});
    EXPECT_EQ(endings_of(pipeline(claim_of(7), commands)), std::vector<std::string>(2, "admitted"));
    EXPECT_EQ(server_.call({"PTTL", "fenceguard:{r}"}).integer, -1);
  }
}

}  // namespace
}  // namespace fenceguard::test
