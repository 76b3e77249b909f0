#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "adapters/redis/wire/scripts.hpp"
#include "tests/process/byte_cut.hpp"
#include "tests/redis/guard/space.hpp"

namespace fenceguard::test {
namespace {

using redis::Command;
using redis::Reply;
using redis::Write;
using testing::Test;

using Outcomes = std::vector<Outcome<redis::Written>>;

std::vector<Write> writes_of(const Claim& claim, const std::vector<Command>& commands) {
  std::vector<Write> writes;
  for (const auto& command : commands) writes.push_back({claim, {command}});
  return writes;
}

// An ending in a word: the verdict, or the kind of the fault.
std::string ending_of(const Outcome<redis::Written>& outcome) {
  return outcome.ok() ? to_string(outcome.value().ruling.verdict) : to_string(outcome.fault().kind);
}

std::vector<std::string> endings_of(const Outcomes& outcomes) {
  std::vector<std::string> endings;
  for (const auto& outcome : outcomes) endings.push_back(ending_of(outcome));
  return endings;
}

// A filter for Proxy: keeps back the first piece to the server that is chosen, and cuts its connection.
// deliver() brings it to the server after all, as a network does that was slow.
class LatePiece {
 public:
  explicit LatePiece(std::function<bool(std::string_view)> is_chosen) : is_chosen_{std::move(is_chosen)} {}

  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t, Proxy::Direction direction, std::string_view piece) {
      const std::scoped_lock lock{mutex_};
      if (direction != Proxy::Direction::to_server || !piece_.empty() || !is_chosen_(piece))
        return piece.size();
      piece_ = piece;
      return std::size_t{0};
    };
  }

  // The server's answer.
  std::string deliver(int port) {
    const std::scoped_lock lock{mutex_};
    const int descriptor = connect_to(port);
    char answer[1'024];
    const auto sent = send(descriptor, piece_.data(), piece_.size(), MSG_NOSIGNAL);
    const auto size = recv(descriptor, answer, sizeof answer, 0);
    close(descriptor);
    EXPECT_EQ(sent, static_cast<ssize_t>(piece_.size()));
    return {answer, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }

 private:
  const std::function<bool(std::string_view)> is_chosen_;
  std::mutex mutex_;  // guards the following
  std::string piece_;
};

class GuardPipeline : public Test {
 protected:
  GuardPipeline() { init_namespace(server_); }

  Outcomes pipeline(const std::vector<Write>& writes) { return guard_.pipeline(writes); }
  Outcomes pipeline(const Claim& claim, const std::vector<Command>& commands) {
    return pipeline(writes_of(claim, commands));
  }
  std::string get(const std::string& key) { return server_.call({"GET", key}).text; }

  // How many scripts the server has run.
  std::int64_t scripts() {
    std::int64_t sum = 0;
    const auto text = server_.call({"INFO", "commandstats"}).text;
    for (const std::string name : {"cmdstat_evalsha:calls=", "cmdstat_eval:calls="}) {
      const auto at = text.find(name);
      if (at != text.npos) sum += std::stoll(text.substr(at + name.size()));
    }
    return sum;
  }

  RedisServer server_;
  redis::Client client_{server_.url()};
  redis::Guard guard_{client_};
};

// Every kind of reply, and errors among them.
const std::vector<Command> all_kinds{
    {"SET", "{r}a", "x"},
    {"GET", "{r}a"},
    {"GET", "{r}none"},
    {"SET", "{r}a", "y", "GET"},
    {"SET", "{r}a", "z", "NX"},
    {"LPUSH", "{r}a", "x"},
    {"SETRANGE", "{r}a", "-1", "x"},
    {"INCR", "{r}a"},
    {"SET", "{r}empty", ""},
    {"GET", "{r}empty"},
    {"APPEND", "{r}empty", ""},
    {"INCRBY", "{r}n", "9007199254740993"},
    {"INCR", "{r}n"},
    {"DECRBY", "{r}m", "9223372036854775807"},
    {"HINCRBY", "{r}h", "f", "-9007199254740995"},
    {"INCRBYFLOAT", "{r}n2", "1.5"},
    {"HINCRBYFLOAT", "{r}h", "g", "0.1"},
    {"HGETALL", "{r}h"},
    {"HGETALL", "{r}none"},
    {"HMGET", "{r}h", "none", "g"},
    {"RPUSH", "{r}l", "admitted", "9", "2", "3", "4", "5"},
    {"LRANGE", "{r}l", "0", "-1"},
    {"LPOP", "{r}l", "5"},
    {"LPOP", "{r}l", "1"},
    {"LPOP", "{r}l", "1"},
    {"LPOP", "{r}l"},
    {"RPUSH", "{r}l", "alone"},
    {"LMPOP", "1", "{r}l", "LEFT"},
    {"LMPOP", "1", "{r}l", "LEFT"},
    {"BLMPOP", "0.01", "1", "{r}l", "LEFT"},
    {"ZADD", "{r}z", "1.25", "a", "2", "b"},
    {"ZADD", "{r}z", "INCR", "0.1", "a"},
    {"ZADD", "{r}z", "NX", "INCR", "1", "a"},
    {"ZINCRBY", "{r}z", "inf", "b"},
    {"ZSCORE", "{r}z", "a"},
    {"ZRANGE", "{r}z", "0", "-1", "WITHSCORES"},
    {"ZPOPMIN", "{r}z"},
    {"ZPOPMIN", "{r}none"},
    {"ZRANDMEMBER", "{r}none"},
    {"SADD", "{r}s", "x"},
    {"SPOP", "{r}s", "3"},
    {"SPOP", "{r}s"},
    {"GEOADD", "{r}g", "13.361389", "38.115556", "p"},
    {"GEOPOS", "{r}g", "p", "none"},
    {"XADD", "{r}x", "1-1", "f", "v"},
    {"XADD", "{r}x", "1-1", "f", "v"},
    {"XGROUP", "CREATE", "{r}x", "g", "0"},
    {"XGROUP", "CREATE", "{r}x", "g", "0"},
    {"XREADGROUP", "GROUP", "g", "c", "STREAMS", "{r}x", ">"},
    {"XREADGROUP", "GROUP", "g", "c", "STREAMS", "{r}x", ">"},
    {"XREADGROUP", "GROUP", "none", "c", "STREAMS", "{r}x", ">"},
    {"XPENDING", "{r}x", "g"},
    {"XINFO", "STREAM", "{r}x"},
    {"BITFIELD", "{r}b", "SET", "u8", "0", "255", "OVERFLOW", "FAIL", "INCRBY", "u8", "0", "1"},
    {"EXPIRE", "{r}none", "9"},
    {"PERSIST", "{r}a"},
    {"TYPE", "{r}a"},
    {"EXISTS", "{r}a", "{r}none"},
    {"RESTORE", "{r}a", "0", "x"},
    {"RENAME", "{r}none", "{r}b"},
    {"MSET", "{r}c", "1", "{r}d", "2"},
    {"MGET", "{r}c", "{r}none", "{r}z"},
    {"SORT", "{r}none", "STORE", "{r}l3"},
    {"LSET", "{r}none", "0", "x"},
    {"DEL", "{r}c", "{r}d"},
};

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

// Shows: a pipeline ends as its writes do one by one, whatever happened to the fences before it, but for a
// namespace's highest that is damaged, which one write under an equal claim does not look at. How: random
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

TEST_F(GuardPipeline, WhatTheServersStateForbidsIsUnavailableForEachAndNothingIsWritten) {
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

// What is told to be unavailable was not run, the others were in their order, and the next pipeline is whole
// again.
TEST_F(GuardPipeline, AForgottenScriptIsSentAgainAndTheOrderStays) {
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    const bool forgets = round % 2 == 1;
    if (forgets) server_.call({"SCRIPT", "FLUSH"});
    if (round == 3) (void)guard_.write(claim_of(7), {"SET", "{r}a", "1"});
    if (round == 5) (void)guard_.advance(claim_of(7));
    const auto list = fmt::format("{{r}}{}", round);
    std::vector<Write> writes;
    for (int i = 0; i < 30; ++i) {
      const auto claim = i % 7 == 6 ? claim_of(7, "h", "r", 100 * round + i) : claim_of(7);
      writes.push_back({claim, {{"RPUSH", list, std::to_string(i)}}});
    }
    const auto endings = endings_of(pipeline(writes));
    std::vector<std::string> written;
    for (std::size_t i = 0; i < endings.size(); ++i) {
      if (endings[i] == "admitted") written.push_back(std::to_string(i));
      EXPECT_TRUE(endings[i] == "admitted" || (forgets && endings[i] == "unavailable")) << i << endings[i];
    }
    std::vector<std::string> found;
    for (const auto& element : server_.call({"LRANGE", list, "0", "-1"}).elements)
      found.push_back(element.text);
    EXPECT_EQ(found, written);
  }
}

// What is sent a second time may be on its way for long. Nothing of its resource goes after it, so that it
// overwrites nothing that was acknowledged.
TEST_F(GuardPipeline, OfARefusedRunNothingIsSentAfterAPartThatIsUnknown) {
  server_.call(
      {"ACL", "SETUSER", "app", "reset", "on", ">pw", "&*", "+@all", "~fenceguard:*", "~{r}a", "~{s}a"});
  LatePiece late{[](std::string_view piece) {
    return piece.find("value-1") != piece.npos && piece.find("value-2") == piece.npos;
  }};
  const Proxy proxy{server_.port(), late.filter()};
  redis::Client client{fmt::format("redis://app:pw@127.0.0.1:{}", proxy.port())};
  redis::Guard guard{client};
  EXPECT_EQ(guard.write(claim_of(7), {"SET", "{r}a", "0"}).ruling.verdict, Verdict::admitted);
  auto writes =
      writes_of(claim_of(7), {{"SET", "{r}a", "value-1"}, {"INCR", "{r}b"}, {"SET", "{r}a", "value-2"}});
  for (const auto& [resource, token] : {std::pair{"s", 7}, {"r", 8}}) {
    const auto key = fmt::format("{{{}}}a", resource);
    const auto more = writes_of(claim_of(token, "h", resource),
                                {{"SET", key, "value-3"}, {"INCR", fmt::format("{{{}}}b", resource)}});
    writes.insert(writes.end(), more.begin(), more.end());
  }
  EXPECT_EQ(endings_of(guard.pipeline(writes)),
            (std::vector<std::string>{"unknown", "unavailable", "unavailable", "admitted", "unavailable",
                                      "unavailable", "unavailable"}));
  EXPECT_EQ(get("{r}a"), "0");
  EXPECT_EQ(get("{s}a"), "value-3");
  EXPECT_EQ(late.deliver(server_.port()), "+OK\r\n");
  EXPECT_EQ(get("{r}a"), "value-1");
}

TEST_F(GuardPipeline, OfForgottenScriptsNothingIsSentAfterOneThatIsUnknown) {
  LatePiece late{[](std::string_view piece) {
    return piece.find("\r\nEVAL\r\n") != piece.npos && piece.find("value-1") != piece.npos;
  }};
  const Proxy proxy{server_.port(), late.filter()};
  redis::Client client{fmt::format("redis://127.0.0.1:{}", proxy.port())};
  redis::Guard guard{client};
  const auto pair = [](const std::string& resource, const std::string& value) {
    return Write{
        claim_of(7, "h", resource),
        {{"SET", fmt::format("{{{}}}a", resource), value}, {"DEL", fmt::format("{{{}}}b", resource)}}};
  };
  const auto before = guard.pipeline(std::vector<Write>{pair("r", "0"), pair("s", "0")});
  EXPECT_EQ(endings_of(before), std::vector<std::string>(2, "admitted"));
  server_.call({"SCRIPT", "FLUSH"});
  const std::vector<Write> writes{pair("r", "value-1"), pair("r", "value-2"), pair("s", "value-2")};
  EXPECT_EQ(endings_of(guard.pipeline(writes)),
            (std::vector<std::string>{"unknown", "unavailable", "admitted"}));
  EXPECT_EQ(get("{r}a"), "0");
  EXPECT_EQ(get("{s}a"), "value-2");
  EXPECT_TRUE(late.deliver(server_.port()).starts_with("*"));
  EXPECT_EQ(get("{r}a"), "value-1");
}

TEST_F(GuardPipeline, AJumpBoundBelowZeroIsRefusedByTheGuardAndByTheScript) {
  EXPECT_EQ(kind_of([&] {
              return redis::Guard{client_, -1}.advance(claim_of(9));
            }),
            FaultKind::invalid_input);
  (void)guard_.advance(claim_of(9));
  const redis::Run run{redis::scripts::guarded(false),
                       {"fenceguard:{r}", "fenceguard:namespace", "fenceguard:resources", "{r}n"},
                       {"9", "h", "0 0 -1 1 r", "2", "INCR", "{r}n"}};
  const auto reply = client_.run(run);
  EXPECT_TRUE(reply.is_error());
  EXPECT_TRUE(reply.text.starts_with("DAMAGED")) << reply.text;
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

// Fails at the first byte of an answer, at the second, ...: a run whose answer was not seen in full is
// unknown for each, and took effect for all of them or for none.
TEST_F(GuardPipeline, OfARunWhoseAnswerIsNotSeenAllIsUnknown) {
  (void)guard_.advance(claim_of(7));
  ByteCut cut;
  const Proxy proxy{server_.port(), cut.filter()};
  const auto url = fmt::format("redis://127.0.0.1:{}?timeout=5s", proxy.port());
  std::int64_t expected = 0;
  int unknown = 0, nothing = 0;
  for (const auto direction : {Proxy::Direction::to_server, Proxy::Direction::to_client}) {
    for (long bytes = 0;; bytes += 7) {
      SCOPED_TRACE(bytes);
      cut.arm(direction, bytes);
      const auto before = get("{r}n");
      try {
        redis::Client client{url};
        const auto endings = endings_of(
            redis::Guard{client}.pipeline(writes_of(claim_of(7), std::vector<Command>(5, {"INCR", "{r}n"}))));
        EXPECT_EQ(endings, std::vector<std::string>(5, endings.front()));
        if (endings.front() == "admitted") expected = 5;
        if (endings.front() == "unknown") ++unknown;
        if (endings.front() != "unavailable") EXPECT_NE(endings.front(), "stale");
        const auto grown = std::atoll(get("{r}n").c_str()) - std::atoll(before.c_str());
        EXPECT_TRUE(grown == 5 || (grown == 0 && endings.front() != "admitted")) << grown;
        if (endings.front() == "unavailable") EXPECT_EQ(grown, 0);
      } catch (const Unavailable&) {
        ++nothing;
        EXPECT_EQ(get("{r}n"), before);
      }
      if (!cut.has_cut()) break;
    }
  }
  EXPECT_EQ(expected, 5);
  EXPECT_GT(unknown, 20);
  EXPECT_GT(nothing, 10);
}

// A new holder comes every few milliseconds while others go on with runs under what they have: below a token
// no write lands after the advance.
TEST_F(GuardPipeline, NoStaleRunLandsAfterAnAdvance) {
  std::atomic<std::int64_t> token{1};
  std::atomic<bool> stop{false};
  std::atomic<int> stale{0}, admitted{0};
  (void)guard_.advance(claim_of(1, "1"));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      redis::Client client{server_.url("?timeout=60s")};
      redis::Guard guard{client};
      while (!stop) {
        const auto mine = std::to_string(token);
        for (int again = 0; again < 5; ++again) {
          const auto endings = endings_of(
              guard.pipeline(writes_of(claim_of(std::stoll(mine), mine),
                                       {{"SET", "{r}a", mine}, {"GET", "{r}a"}, {"APPEND", "{r}b", "x"}})));
          EXPECT_EQ(endings, std::vector<std::string>(3, endings.front()));
          ++(endings.front() == "admitted" ? admitted : stale);
        }
      }
    });
  }
  for (int i = 2; i < 300; ++i) {
    const auto mine = std::to_string(i);
    EXPECT_EQ(guard_.advance(claim_of(i, mine)).verdict, Verdict::admitted);
    const auto seen = get("{r}a");
    token = i;
    (void)guard_.write(claim_of(i, mine), {"SET", "{r}a", mine});
    for (int look = 0; look < 3; ++look) ASSERT_EQ(get("{r}a"), mine) << "after " << seen;
  }
  stop = true;
  threads.clear();
  EXPECT_GT(stale, 50);
  EXPECT_GT(admitted, 50);
}

}  // namespace
}  // namespace fenceguard::test
