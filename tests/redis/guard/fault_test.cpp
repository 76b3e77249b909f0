#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "tests/conformance/until_answered.hpp"
#include "tests/process/byte_cut.hpp"
#include "tests/redis/guard/space.hpp"

namespace fenceguard::test {
namespace {

using redis::Command;

class GuardFaults : public testing::Test {
 protected:
  GuardFaults() { init_namespace(server_); }

  Verdict write(const Claim& claim, const Command& command = {"INCR", "{r}n"}) {
    return guard_.write(claim, command).ruling.verdict;
  }
  FaultKind fault(const Claim& claim, const Command& command = {"INCR", "{r}n"}) {
    return kind_of([&] { return guard_.write(claim, command); });
  }
  std::string value() { return server_.call({"GET", "{r}n"}).text; }

  RedisServer server_;
  redis::Client client_{server_.url()};
  redis::Guard guard_{client_};
};

// Fails at the first byte, at the second, ... until a connection passes: what was said to have done nothing
// did nothing, and what is not known, repeated with its sequence, takes effect once.
TEST_F(GuardFaults, AConnectionCutAtAnyByteLeavesAWriteDoneOnceOrNotAtAll) {
  ByteCut cut;
  const Proxy proxy{server_.port(), cut.filter()};
  const auto url = fmt::format("redis://127.0.0.1:{}?timeout=5s", proxy.port());
  std::int64_t expected = 0;
  int unknown = 0, nothing = 0;
  for (const auto direction : {Proxy::Direction::to_server, Proxy::Direction::to_client}) {
    cut.watch(direction);
    redis::Client whole{url};
    ASSERT_EQ(redis::Guard{whole}.write(claim_of(1, "h", "r", expected++), {"INCR", "{r}n"}).ruling.verdict,
              Verdict::admitted);
    const auto total = cut.seen();
    for (std::int64_t bytes = 0;; bytes = ByteCut::after(bytes, total)) {
      SCOPED_TRACE(bytes);
      const auto claim = claim_of(1, "h", "r", expected);
      cut.arm(direction, bytes);
      try {
        redis::Client client{url};
        redis::Guard guard{client};
        EXPECT_EQ(guard.write(claim, {"INCR", "{r}n"}).ruling.verdict, Verdict::admitted);
        EXPECT_EQ(value(), std::to_string(expected + 1));
      } catch (const OutcomeUnknown&) {
        ++unknown;
      } catch (const Unavailable&) {
        ++nothing;
        ASSERT_EQ(value(), expected == 0 ? "" : std::to_string(expected));
      }
      const auto again = write(claim);
      ASSERT_TRUE(again == Verdict::admitted || again == Verdict::duplicate);
      ++expected;
      ASSERT_EQ(value(), std::to_string(expected));
      if (!cut.has_cut()) break;
    }
  }
  EXPECT_GT(unknown, 50);
  EXPECT_GT(nothing, 100);
}

TEST_F(GuardFaults, APausedServersAnswerIsUnknownAndTheRepetitionTakesEffectOnce) {
  EXPECT_EQ(write(claim_of(7, "h", "r", 1)), Verdict::admitted);
  std::optional<redis::Client> hasty_client;
  until_answered([&] { hasty_client.emplace(server_.url("?timeout=300ms")); });
  redis::Guard hasty{*hasty_client};
  const auto hasty_write = [&](std::int64_t sequence) {
    return hasty.write(claim_of(7, "h", "r", sequence), {"INCR", "{r}n"}).ruling.verdict;
  };
  until_answered([&] { EXPECT_EQ(hasty_write(1), Verdict::duplicate); });
  const auto hasty_fault = [&](const Claim& claim) {
    return kind_of([&] { return hasty.write(claim, {"INCR", "{r}n"}); });
  };
  server_.pause();
  EXPECT_EQ(hasty_fault(claim_of(7, "h", "r", 2)), FaultKind::unknown);
  const std::vector<redis::Write> writes(3, redis::Write{claim_of(7), {{"INCR", "{r}m"}}});
  server_.resume();
  EXPECT_NE(write(claim_of(7, "h", "r", 2)), Verdict::stale);
  EXPECT_EQ(value(), "2");
  until_answered([&] { EXPECT_EQ(hasty_write(2), Verdict::duplicate); });
  server_.pause();
  for (const auto& outcome : hasty.pipeline(writes))
    EXPECT_NE(outcome.fault().kind, FaultKind::invalid_input);
  EXPECT_EQ(hasty_fault(claim_of(7)), FaultKind::unavailable)
      << "a greeting that is not answered did nothing";
  server_.resume();
  EXPECT_EQ(write(claim_of(7, "h", "r", 2)), Verdict::duplicate);
}

// The write is on its way, and its connection lost: it must not take effect behind the next.
TEST_F(GuardFaults, AnUnknownWriteDoesNotOvertakeTheNextOfItsClaim) {
  std::atomic<bool> is_late{false};
  Proxy proxy{server_.port(), [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                const bool is_held = direction == Proxy::Direction::to_server && is_late &&
                                     piece.find("late write") != piece.npos;
                return is_held ? Proxy::late : piece.size();
              }};
  const auto claim = claim_of(7);
  const redis::Command late{"SET", "{r}n", "late write"}, newer{"SET", "{r}n", "newer"};
  for (const bool in_pipeline : {false, true}) {
    is_late = false;
    redis::Client client{fmt::format("redis://127.0.0.1:{}", proxy.port())};
    redis::Guard guard{client};
    ASSERT_EQ(guard.advance(claim).verdict, Verdict::admitted);
    is_late = true;
    EXPECT_EQ(kind_of([&] { return guard.write(claim, late); }), FaultKind::unknown);
    if (in_pipeline) {
      EXPECT_TRUE(guard.pipeline(std::vector<redis::Write>{{claim, {newer}}}).front().ok());
    } else {
      EXPECT_EQ(guard.write(claim, newer).ruling.verdict, Verdict::admitted);
    }
    proxy.arrive();
    EXPECT_EQ(value(), "newer");
    EXPECT_EQ(value(), "newer");
  }
}

// What another server does not have says nothing of what the lost one may still do.
TEST_F(GuardFaults, AnotherServerAtTheAddressDoesNotEndTheLostConnection) {
  RedisServer other;
  init_namespace(other);
  Proxy proxy{server_.port(), [](std::size_t, Proxy::Direction direction, std::string_view piece) {
                const bool is_held =
                    direction == Proxy::Direction::to_server && piece.find("late write") != piece.npos;
                return is_held ? Proxy::late : piece.size();
              }};
  const auto claim = claim_of(7);
  redis::Client client{fmt::format("redis://127.0.0.1:{}", proxy.port())};
  redis::Guard guard{client, 0, std::chrono::hours{1}};
  EXPECT_EQ(kind_of([&] { return guard.write(claim, {"SET", "{r}n", "late write"}); }), FaultKind::unknown);
  proxy.lead_to(other.port());
  const auto fault = fault_of_call([&] { return guard.write(claim, {"SET", "{r}n", "newer"}); });
  EXPECT_EQ(fault.kind, FaultKind::unavailable);
  EXPECT_THAT(fault.message, testing::HasSubstr("another server answers"));
  EXPECT_EQ(other.call({"EXISTS", "{r}n"}).integer, 0);
  proxy.lead_to(server_.port());
  EXPECT_EQ(guard.write(claim, {"SET", "{r}n", "newer"}).ruling.verdict, Verdict::admitted);
  proxy.arrive();
  EXPECT_EQ(value(), "newer");
  EXPECT_EQ(value(), "newer");
}

TEST_F(GuardFaults, WhereNoConnectionMayBeEndedTheGuardWaitsForTheSettleTime) {
  server_.call({"ACL", "SETUSER", "app", "on", ">p", "~*", "+@all", "-client|kill"});
  Proxy proxy{server_.port(), [](std::size_t, Proxy::Direction direction, std::string_view piece) {
                const bool is_held =
                    direction == Proxy::Direction::to_server && piece.find("late write") != piece.npos;
                return is_held ? Proxy::late : piece.size();
              }};
  redis::Client client{fmt::format("redis://app:p@127.0.0.1:{}", proxy.port())};
  redis::Guard guard{client, 0, std::chrono::hours{1}}, hasty{client, 0, std::chrono::milliseconds{0}};
  EXPECT_EQ(kind_of([&] {
              return guard.write(claim_of(7), {"SET", "{r}n", "late write"});
            }),
            FaultKind::unknown);
  const auto fault = fault_of_call([&] { return guard.write(claim_of(7), {"SET", "{r}n", "newer"}); });
  EXPECT_EQ(fault.kind, FaultKind::unavailable);
  EXPECT_THAT(fault.message, testing::HasSubstr("NOPERM"));
  EXPECT_EQ(hasty.write(claim_of(7), {"SET", "{r}n", "newer"}).ruling.verdict, Verdict::admitted);
}

TEST_F(GuardFaults, AfterFlushallNothingGrantedBeforeIsAdmitted) {
  EXPECT_EQ(write(claim_of(40)), Verdict::admitted);
  server_.call({"FLUSHALL"});
  EXPECT_EQ(fault(claim_of(40)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(41, "n", "other"), {"SET", "other", "1"}), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return guard_.advance(claim_of(41)); }), FaultKind::unavailable);
  EXPECT_EQ(server_.call({"DBSIZE"}).integer, 0);
  init_namespace(server_, 41);
  EXPECT_EQ(write(claim_of(40)), Verdict::stale);
  EXPECT_EQ(write(claim_of(41, "n")), Verdict::stale);
  EXPECT_EQ(write(claim_of(42, "n")), Verdict::admitted);
}

TEST_F(GuardFaults, AServerThatWasKilledAndCameBackEmptyAdmitsNothing) {
  EXPECT_EQ(write(claim_of(40)), Verdict::admitted);
  server_.kill();
  EXPECT_EQ(fault(claim_of(40)), FaultKind::unavailable);
  server_.start();
  EXPECT_EQ(fault(claim_of(40)), FaultKind::unavailable);
  init_namespace(server_, 40);
  EXPECT_EQ(write(claim_of(40)), Verdict::stale);
}

TEST_F(GuardFaults, WhatIsNotOursUnderOurKeysIsUnavailableAndLeftAsItIs) {
  const std::vector<std::vector<Command>> damages{
      {{"SET", "fenceguard:{r}", "x"}},
      {{"HSET", "fenceguard:{r}", "holder", "h"}},
      {{"HSET", "fenceguard:{r}", "token", "7"}},
      {{"HSET", "fenceguard:{r}", "token", "07", "holder", "h"}},
      {{"HSET", "fenceguard:{r}", "token", "99999999999999999999", "holder", "h"}},
      {{"HSET", "fenceguard:{r}", "token", "7", "holder", "h", "sequence", "x"}},
      {{"DEL", "fenceguard:namespace"}, {"SET", "fenceguard:namespace", "x"}},
      {{"HDEL", "fenceguard:namespace", "floor"}},
      {{"HDEL", "fenceguard:namespace", "highest"}},
      {{"HSET", "fenceguard:namespace", "floor", "-1"}},
      {{"HSET", "fenceguard:namespace", "highest", "nan"}},
      {{"SET", "fenceguard:resources", "x"}}};
  for (const auto& damage : damages) {
    SCOPED_TRACE(damage.back().at(1) + " " + damage.back().at(2));
    server_.call({"FLUSHALL"});
    init_namespace(server_);
    for (const auto& command : damage) server_.call(command);
    for (const std::int64_t token : {7, 8}) EXPECT_EQ(fault(claim_of(token)), FaultKind::unavailable);
    EXPECT_EQ(value(), "");
  }
}

TEST_F(GuardFaults, AServerThatForgotTheScriptIsSentItAgain) {
  EXPECT_EQ(write(claim_of(7)), Verdict::admitted);
  server_.call({"SCRIPT", "FLUSH"});
  EXPECT_EQ(write(claim_of(7)), Verdict::admitted);
  std::vector<redis::Write> writes;
  for (int i = 0; i < 20; ++i) writes.push_back({claim_of(7), {{"RPUSH", "{r}l", std::to_string(i)}}});
  for (const bool is_flushed : {false, true}) {
    if (is_flushed) server_.call({"SCRIPT", "FLUSH"});
    for (const auto& outcome : guard_.pipeline(writes)) EXPECT_TRUE(outcome.ok());
  }
  const auto list = server_.call({"LRANGE", "{r}l", "0", "-1"}).elements;
  ASSERT_EQ(list.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(list[static_cast<std::size_t>(i)].text, std::to_string(i % 20));
}

TEST_F(GuardFaults, AReplicaNeitherWritesNorAdvancesNorReadsUnderAClaim) {
  EXPECT_EQ(write(claim_of(7)), Verdict::admitted);
  server_.call({"REPLICAOF", "127.0.0.1", "1"});
  EXPECT_EQ(fault(claim_of(7)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(7, "h", "r", 1)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(8)), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return guard_.advance(claim_of(7)); }), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return guard_.read(claim_of(7), {"GET", "{r}n"}); }), FaultKind::unavailable);
  server_.call({"REPLICAOF", "NO", "ONE"});
  EXPECT_EQ(write(claim_of(7)), Verdict::admitted);
  EXPECT_EQ(value(), "2");
}

TEST_F(GuardFaults, TooFewReplicasOrAFailingDiskIsUnavailable) {
  EXPECT_EQ(write(claim_of(7, "h", "r", 1)), Verdict::admitted);
  server_.call({"CONFIG", "SET", "min-replicas-to-write", "1"});
  EXPECT_EQ(fault(claim_of(7)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(7, "h", "r", 2)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(8)), FaultKind::unavailable);
  server_.call({"CONFIG", "SET", "min-replicas-to-write", "0"});
  // A save that fails: the folder cannot be written to.
  server_.call({"CONFIG", "SET", "save", "3600 1000000"});
  server_.call({"CONFIG", "SET", "dbfilename", "dump.rdb"});
  const auto folder = server_.folder() + "/dump.rdb";
  ASSERT_EQ(std::system(("mkdir -p " + folder + "/x").c_str()), 0);
  server_.call({"BGSAVE"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (server_.call({"INFO", "persistence"}).text.find("rdb_last_bgsave_status:err") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  EXPECT_EQ(fault(claim_of(7)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(8)), FaultKind::unavailable);
  EXPECT_EQ(value(), "1");
  EXPECT_EQ(record(server_), (std::vector<std::string>{"7", "h", "1", "0"}));
}

TEST_F(GuardFaults, OutOfMemoryBeforeTheScriptIsUnavailableAndWithinItIsNot) {
  EXPECT_EQ(write(claim_of(7)), Verdict::admitted);
  server_.call({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_EQ(fault(claim_of(7)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(7, "h", "r", 1)), FaultKind::unavailable);
  EXPECT_EQ(fault(claim_of(8)), FaultKind::unavailable);
  const std::vector<Command> reads_first{{"GET", "{r}n"}, {"INCR", "{r}n"}};
  EXPECT_EQ(kind_of([&] { return guard_.write_batch(claim_of(7), reads_first); }), FaultKind::unavailable);
  EXPECT_EQ(value(), "1");
  EXPECT_EQ(record(server_), (std::vector<std::string>{"7", "h", "-", "-"}));
  EXPECT_EQ(guard_.read(claim_of(7), {"GET", "{r}n"}).replies.at(0).text, "1") << "reading needs no memory";
  // What frees memory may go first, and then the rest is not refused.
  const auto written = guard_.write_batch(claim_of(7), {{"DEL", "{r}n"}, {"SET", "{r}n", "5"}});
  EXPECT_EQ(written.replies.size(), 2u);
  EXPECT_EQ(value(), "5");
  server_.call({"CONFIG", "SET", "maxmemory", "0"});
}

// A user who may not do all of it is refused before anything was written, whichever command he lacks.
TEST_F(GuardFaults, AnAclThatForbidsAnyPartOfItRefusesBeforeAnythingIsWritten) {
  const std::vector<std::string> commands{"hmget", "hset", "zadd", "persist", "exists", "evalsha", "incr"};
  for (const auto& missing : commands) {
    SCOPED_TRACE(missing);
    server_.call({"FLUSHALL"});
    init_namespace(server_);
    EXPECT_EQ(write(claim_of(7, "h", "r", 1)), Verdict::admitted);
    server_.call({"ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", "-" + missing});
    redis::Client client{fmt::format("redis://app:pw@127.0.0.1:{}", server_.port())};
    redis::Guard guard{client};
    for (const auto& claim : {claim_of(7, "h", "r", 2), claim_of(8, "n", "r", 1), claim_of(9, "n")}) {
      const auto before = value();
      try {
        const auto written = guard.write(claim, {"INCR", "{r}n"});
        // The command itself, forbidden, answers for itself.
        EXPECT_EQ(written.replies.at(0).is_error(), missing == "incr");
        EXPECT_EQ(value(), missing == "incr" ? before : std::to_string(std::stoi(before) + 1));
      } catch (const Unavailable&) {
        EXPECT_EQ(value(), before);
      }
    }
  }
}

TEST_F(GuardFaults, AWrongPasswordIsUnavailableAndIsNotPrinted) {
  server_.call({"CONFIG", "SET", "requirepass", "right-word"});
  for (const auto* credentials : {"", ":wrong-word@", "nobody:wrong-word@"}) {
    const auto url = fmt::format("redis://{}127.0.0.1:{}", credentials, server_.port());
    const auto fault = fault_of_call([&] { return redis::Client{url}.is_cluster(); });
    EXPECT_EQ(fault.kind, FaultKind::unavailable);
    EXPECT_EQ(fault.message.find("wrong-word"), std::string::npos);
  }
  redis::Client client{fmt::format("redis://:right-word@127.0.0.1:{}", server_.port())};
  EXPECT_FALSE(client.is_cluster());
}

}  // namespace
}  // namespace fenceguard::test
