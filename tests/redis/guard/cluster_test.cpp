#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "adapters/redis/wire/cluster.hpp"
#include "tests/process/eventually.hpp"
#include "tests/redis/guard/space.hpp"

namespace fenceguard::test {
namespace {

using redis::Command;
using redis::Reply;

class GuardCluster : public testing::Test {
 protected:
  // Where a slot is, and how it is moved: the steps of redis-cli --cluster reshard.
  [[nodiscard]] std::size_t owner(std::size_t slot) {
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      const auto id = cluster_.node(i).call({"CLUSTER", "MYID"}).text;
      for (const auto& range : cluster_.node(i).call({"CLUSTER", "SLOTS"}).elements) {
        const auto number = static_cast<std::int64_t>(slot);
        if (range.elements.at(0).integer <= number && number <= range.elements.at(1).integer &&
            range.elements.at(2).elements.at(2).text == id) {
          return i;
        }
      }
    }
    throw std::runtime_error{"a slot without a server"};
  }

  void expect_ok(std::size_t node, const Command& command) {
    const auto reply = cluster_.node(node).call(command);
    EXPECT_EQ(reply.text, "OK") << command.at(0) << " " << command.at(1);
  }

  void begin_move(std::size_t slot, std::size_t from, std::size_t to) {
    const auto text = std::to_string(slot);
    expect_ok(to, {"CLUSTER", "SETSLOT", text, "IMPORTING", id(from)});
    expect_ok(from, {"CLUSTER", "SETSLOT", text, "MIGRATING", id(to)});
  }

  void move_key(const std::string& key, std::size_t from, std::size_t to) {
    const auto reply = cluster_.node(from).call(
        {"MIGRATE", "127.0.0.1", std::to_string(cluster_.node(to).port()), key, "0", "20000"});
    EXPECT_EQ(reply.text, "OK") << key;
  }

  // Waits until all agree on the epoch: an owner that took its epoch before it heard of the last one would be
  // a second owner, and Redis Cluster would drop what one of them has.
  void end_move(std::size_t slot, std::size_t from, std::size_t to) {
    for (const auto node : {to, from, 3 - to - from})
      expect_ok(node, {"CLUSTER", "SETSLOT", std::to_string(slot), "NODE", id(to)});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    while (epoch(0) != epoch(1) || epoch(1) != epoch(2)) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error{"the epochs do not agree"};
      std::this_thread::yield();
    }
  }

  [[nodiscard]] std::string epoch(std::size_t node) {
    const auto info = cluster_.node(node).call({"CLUSTER", "INFO"}).text;
    const auto at = info.find("cluster_current_epoch:");
    return info.substr(at, info.find('\r', at) - at);
  }

  void move_slot(std::size_t slot, std::size_t from, std::size_t to) {
    begin_move(slot, from, to);
    for (;;) {
      const auto keys = cluster_.node(from).call({"CLUSTER", "GETKEYSINSLOT", std::to_string(slot), "10"});
      if (keys.elements.empty()) break;
      for (const auto& key : keys.elements) move_key(key.text, from, to);
    }
    end_move(slot, from, to);
  }

  [[nodiscard]] std::string id(std::size_t node) {
    return cluster_.node(node).call({"CLUSTER", "MYID"}).text;
  }

  RedisCluster cluster_;
};

TEST_F(GuardCluster, ASlotIsWhatTheServerSaysItIs) {
  std::mt19937 random{7};
  std::vector<std::string> keys{"",
                                "foo",
                                "{user1000}.following",
                                "foo{}{bar}",
                                "foo{{bar}}zap",
                                "foo{bar}{zap}",
                                "{",
                                "}",
                                "{}",
                                "a{b",
                                "123456789"};
  for (int i = 0; i < 300; ++i) {
    std::string key;
    for (auto n = random() % 12; n > 0; --n) key += "{}ab\xff"[random() % 5];
    keys.push_back(key);
  }
  for (const auto& key : keys) {
    EXPECT_EQ(static_cast<std::int64_t>(redis::slot_of(key)),
              cluster_.node(0).call({"CLUSTER", "KEYSLOT", key}).integer)
        << key;
  }
}

TEST_F(GuardCluster, WritesGoToTheServerOfTheirSlotAndAPipelineToAllOfThem) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  std::vector<redis::Write> writes;
  for (int i = 0; i < 60; ++i) {
    const auto name = fmt::format("r{}", i % 30);
    writes.push_back({claim_of(7, "h", name, i), {{"RPUSH", name, std::to_string(i)}}});
  }
  for (const auto& outcome : guard.pipeline(writes))
    EXPECT_EQ(outcome.value().ruling.verdict, Verdict::admitted);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_GT(cluster_.node(i).call({"DBSIZE"}).integer, 0);
  for (int i = 0; i < 30; ++i) {
    const auto name = fmt::format("r{}", i);
    const auto list = guard.read(claim_of(8, "n", name), {"LRANGE", name, "0", "-1"}).replies.at(0);
    ASSERT_EQ(list.elements.size(), 2u);
    EXPECT_EQ(list.elements[0].text, std::to_string(i));
  }
}

TEST_F(GuardCluster, KeysOfSeveralSlotsAreRefusedBeforeAnythingIsSent) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  const auto fault = fault_of_call([&] { return guard.write(claim_of(7), {"MSET", "{r}a", "1", "s", "2"}); });
  EXPECT_EQ(fault.kind, FaultKind::invalid_input);
  EXPECT_NE(fault.message.find("'s'"), std::string::npos);
  const redis::Script script{"return 1"};
  EXPECT_NE(fault_of_call([&] {
              return client.run({script, {"a", "b"}, {}});
            }).message.find("slots"),
            std::string::npos);
  EXPECT_EQ(kind_of([&] { return guard.advance(claim_of(7, "h", "a}b")); }), FaultKind::invalid_input);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(cluster_.node(i).call({"DBSIZE"}).integer, 0);
}

TEST_F(GuardCluster, ASlotThatMovedIsFoundWithItsFence) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  (void)guard.write(claim_of(7, "a"), {"SET", "r", "1"});
  const auto slot = redis::slot_of("r");
  const auto from = owner(slot);
  const auto to = (from + 1) % 3;
  move_slot(slot, from, to);
  EXPECT_EQ(guard.write(claim_of(6, "old"), {"SET", "r", "late"}).ruling.verdict, Verdict::stale);
  EXPECT_EQ(guard.write(claim_of(7, "a"), {"SET", "r", "2"}).ruling.verdict, Verdict::admitted);
  EXPECT_EQ(cluster_.node(to).call({"GET", "r"}).text, "2");
  move_slot(slot, to, from);
  const std::vector<redis::Write> writes(4, redis::Write{claim_of(7, "a"), {{"APPEND", "r", "x"}}});
  for (const auto& outcome : guard.pipeline(writes))
    EXPECT_EQ(outcome.value().ruling.verdict, Verdict::admitted);
  EXPECT_EQ(guard.read(claim_of(7, "a"), {"GET", "r"}).replies.at(0).text, "2xxxx");
}

// Every state in which a moving slot can be for a fence and one key of the data: each of them may be where it
// was, be moved, or not exist. Whatever the state, a stale claim is never admitted, a claim that stands is
// admitted or unavailable, and after the move is over both are as ever.
TEST_F(GuardCluster, StaleClaimIsNeverAdmittedWhileASlotMoves) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  enum class Place { source, moved, none };
  int number = 0;
  for (const auto fence : {Place::source, Place::moved, Place::none}) {
    for (const auto data : {Place::source, Place::moved, Place::none}) {
      const auto name = fmt::format("moving/{}", ++number);
      SCOPED_TRACE(
          fmt::format("{}: fence {}, data {}", name, static_cast<int>(fence), static_cast<int>(data)));
      const auto slot = redis::slot_of(name);
      const auto from = owner(slot);
      const auto to = (from + 1) % 3;
      const auto fence_key = "fenceguard:{" + name + "}";
      if (fence != Place::none) {
        EXPECT_EQ(guard.advance(claim_of(34, "b", name)).verdict, Verdict::admitted);
      }
      if (data != Place::none) cluster_.node(from).call({"SET", name, "1"});
      begin_move(slot, from, to);
      if (fence == Place::moved) move_key(fence_key, from, to);
      if (data == Place::moved) move_key(name, from, to);

      const auto try_write = [&](std::int64_t token, const char* holder) -> std::string {
        try {
          return to_string(
              guard.write(claim_of(token, holder, name), {"APPEND", name, holder}).ruling.verdict);
        } catch (const Unavailable&) {
          return "unavailable";
        }
      };
      const auto try_advance = [&](std::int64_t token, const char* holder) -> std::string {
        try {
          return to_string(guard.advance(claim_of(token, holder, name)).verdict);
        } catch (const Unavailable&) {
          return "unavailable";
        }
      };
      const bool is_together = fence == data && fence != Place::none;
      EXPECT_EQ(try_write(33, "a"), is_together ? "stale" : "unavailable");
      EXPECT_EQ(try_write(34, "b"), is_together ? "admitted" : "unavailable");
      // Of a resource that has no fence nobody can tell yet whether it has none.
      EXPECT_EQ(try_advance(33, "a"), fence == Place::none ? "unavailable" : "stale");
      EXPECT_EQ(try_advance(35, "c"), fence == Place::none ? "unavailable" : "admitted");
      EXPECT_EQ(try_write(34, "b"), is_together ? "stale" : "unavailable");

      if (fence == Place::source) move_key(fence_key, from, to);
      if (data == Place::source) move_key(name, from, to);
      end_move(slot, from, to);
      EXPECT_EQ(try_advance(36, "d"), "admitted");
      EXPECT_EQ(try_write(35, "c"), "stale");
      EXPECT_EQ(try_write(36, "d"), "admitted");
      const auto text = guard.read(claim_of(36, "d", name), {"GET", name}).replies.at(0).text;
      EXPECT_EQ(text, std::string(data == Place::none ? "" : "1") + (is_together ? "b" : "") + "d");
    }
  }
}

TEST_F(GuardCluster, OfARunWhileItsSlotMovesOnlyWhatNamesAnAbsentKeyIsUnavailable) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  const auto claim = claim_of(7, "h");
  const auto run = [&] {
    std::vector<std::string> endings;
    const std::vector<redis::Write> writes{{claim_of(6, "old"), {{"SET", "{r}a", "late"}}},
                                           {claim, {{"SET", "{r}a", "1"}}},
                                           {claim, {{"INCR", "{r}b"}}},
                                           {claim, {{"APPEND", "{r}a", "2"}}},
                                           {claim, {{"SET", "{s}a", "late"}}}};
    for (const auto& outcome : guard.pipeline(writes))
      endings.emplace_back(outcome.ok() ? to_string(outcome.value().ruling.verdict)
                                        : to_string(outcome.fault().kind));
    return endings;
  };
  const auto slot = redis::slot_of("r");
  const auto from = owner(slot);
  const auto to = (from + 1) % 3;
  (void)guard.write(claim, {"SET", "{r}a", "0"});
  const std::vector<std::string> but_one{"stale", "admitted", "unavailable", "admitted", "invalid"};
  const std::vector<std::string> all{"stale", "admitted", "admitted", "admitted", "invalid"};
  begin_move(slot, from, to);
  EXPECT_EQ(run(), but_one);
  move_key("fenceguard:{r}", from, to);
  move_key("{r}a", from, to);
  EXPECT_EQ(run(), but_one);
  EXPECT_EQ(guard.read(claim, {"GET", "{r}a"}).replies.at(0).text, "12");
  end_move(slot, from, to);
  EXPECT_EQ(run(), all);
  EXPECT_EQ(guard.read(claim, {"MGET", "{r}a", "{r}b"}).replies.at(0).elements.at(1).text, "1");
}

TEST_F(GuardCluster, ACommandOfARunWhoseKeyLeftItsMovingSlotIsUnavailable) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  const auto claim = claim_of(7);
  (void)guard.write(claim, {"SET", "{r}a", "0"});
  const auto slot = redis::slot_of("r");
  const auto from = owner(slot);
  begin_move(slot, from, (from + 1) % 3);
  const std::vector<redis::Write> writes{{claim, {{"DEL", "{r}a"}}}, {claim, {{"GET", "{r}a"}}}};
  const auto outcomes = guard.pipeline(writes);
  EXPECT_EQ(outcomes[0].value().replies.at(0).integer, 1);
  ASSERT_FALSE(outcomes[1].ok());
  EXPECT_EQ(outcomes[1].fault().kind, FaultKind::unavailable);
}

// A server that has lost the majority, and may still be read.
TEST_F(GuardCluster, AClusterThatIsDownAndReadonlyIsUnavailableForEachWrite) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  const auto claim = claim_of(7);
  (void)guard.write(claim, {"SET", "{r}a", "0"});
  const auto at = owner(redis::slot_of("r"));
  expect_ok(at, {"CONFIG", "SET", "cluster-allow-reads-when-down", "yes"});
  expect_ok(at, {"CONFIG", "SET", "cluster-node-timeout", "1000"});
  for (const auto other : {(at + 1) % 3, (at + 2) % 3}) cluster_.node(other).kill();
  wait_until([&] {
    return cluster_.node(at).call({"CLUSTER", "INFO"}).text.find("cluster_state:fail") != std::string::npos;
  });
  EXPECT_EQ(kind_of([&] { return guard.write(claim, {"SET", "{r}a", "1"}); }), FaultKind::unavailable);
  const std::vector<redis::Write> writes{{claim, {{"GET", "{r}a"}}}, {claim, {{"SET", "{r}a", "1"}}}};
  for (const auto& outcome : guard.pipeline(writes)) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.fault().kind, FaultKind::unavailable);
  }
  EXPECT_EQ(cluster_.node(at).call({"EXISTS", "{r}a"}).integer, 1);
}

// A client that was told 'ask there' and comes late: the slot has meanwhile stayed, the fence was created
// where it is, and another move of the same slot has begun. Shown by the source's ASK alone: the fence's key
// is away from the source for as long as the client asks.
TEST_F(GuardCluster, NoFenceIsMadeAtAServerThatAnAskNames) {
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  EXPECT_EQ(guard.advance(claim_of(34, "b")).verdict, Verdict::admitted);
  const auto slot = redis::slot_of("r");
  const auto from = owner(slot);
  const auto to = (from + 1) % 3;
  begin_move(slot, from, to);
  cluster_.node(from).call({"DEL", "fenceguard:{r}"});
  EXPECT_EQ(kind_of([&] { return guard.advance(claim_of(33, "a")); }), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return guard.read(claim_of(33, "a"), {"GET", "r"}); }), FaultKind::unavailable);
  EXPECT_EQ(cluster_.node(to).call({"DBSIZE"}).integer, 0);
}

// Three writers count under one token, a fourth tries with an old one, while the slot goes round. None of the
// acknowledged is lost, none is applied twice, nothing stale lands.
TEST_F(GuardCluster, NoWriteIsLostOrRepeatedAndNoneIsStaleWhileTheSlotGoesRound) {
  const auto slot = redis::slot_of("r");
  {
    redis::Client client{cluster_.url()};
    redis::Guard guard{client};
    (void)guard.write(claim_of(34, "b"), {"SET", "{r}n", "0"});
    (void)guard.write(claim_of(34, "b"), {"RPUSH", "{r}log", "start"});
  }
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> admitted{0};
  std::atomic<int> stale{0}, unavailable{0}, unknown{0}, wrong{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      redis::Client client{cluster_.url("/0?timeout=60s")};
      redis::Guard guard{client};
      const bool is_old = i == 3;
      const auto claim = is_old ? claim_of(33, "a") : claim_of(34, "b");
      while (!stop) {
        try {
          const auto written =
              guard.write_batch(claim, {{"INCR", "{r}n"}, {"RPUSHX", "{r}log", is_old ? "stale" : "x"}});
          if (written.ruling.verdict == Verdict::admitted) {
            admitted += 1;
            if (is_old || written.replies.size() != 2 || written.replies[1].is_error()) ++wrong;
          } else {
            written.ruling.verdict == Verdict::stale ? ++stale : ++wrong;
            if (!is_old) ++wrong;
          }
        } catch (const OutcomeUnknown&) {
          ++unknown;
        } catch (const Unavailable&) {
          ++unavailable;
        }
      }
    });
  }
  auto at = owner(slot);
  for (int round = 0; round < 12; ++round) {
    const auto before = admitted.load();
    move_slot(slot, at, (at + 1) % 3);
    at = (at + 1) % 3;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    while ((admitted < before + 20 || stale == 0) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_GE(admitted, before + 20) << "round " << round;
  }
  stop = true;
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(unknown, 0);
  EXPECT_GT(stale, 0);
  redis::Client client{cluster_.url()};
  redis::Guard guard{client};
  EXPECT_EQ(guard.read(claim_of(34, "b"), {"GET", "{r}n"}).replies.at(0).text, std::to_string(admitted));
  const auto log = guard.read(claim_of(34, "b"), {"LRANGE", "{r}log", "0", "-1"}).replies.at(0);
  EXPECT_EQ(static_cast<std::int64_t>(log.elements.size()), admitted + 1);
  for (const auto& entry : log.elements) EXPECT_NE(entry.text, "stale");
}

TEST_F(GuardCluster, DeadSeedIsSkippedAndItsSlotsAreUnavailable) {
  const auto slot = redis::slot_of("r");
  const auto at = owner(slot);
  const auto other = (at + 1) % 3;
  redis::Client client{
      fmt::format("redis://127.0.0.1:{},127.0.0.1:{}", free_port(), cluster_.node(other).port())};
  redis::Guard guard{client};
  EXPECT_EQ(guard.write(claim_of(7), {"SET", "r", "1"}).ruling.verdict, Verdict::admitted);
  cluster_.node(at).kill();
  // A connection that is already dead may be found out by its answer alone, so this may be unknown once.
  (void)fault_of_call([&] { return guard.write(claim_of(7), {"SET", "r", "2"}); });
  EXPECT_EQ(kind_of([&] { return guard.write(claim_of(7), {"SET", "r", "2"}); }), FaultKind::unavailable);
  redis::Client fresh{cluster_.url()};
  redis::Guard guard_of_fresh{fresh};
  EXPECT_EQ(kind_of([&] {
              return guard_of_fresh.write(claim_of(7), {"SET", "r", "2"});
            }),
            FaultKind::unavailable);
}

TEST_F(GuardCluster, SeveralHostsThatAreNoClusterAreAnError) {
  RedisServer a;
  RedisServer b;
  const auto url = fmt::format("redis://127.0.0.1:{},127.0.0.1:{}", a.port(), b.port());
  const auto fault = fault_of_call([&] { return redis::Client{url}.is_cluster(); });
  EXPECT_EQ(fault.kind, FaultKind::invalid_input);
  EXPECT_NE(fault.message.find("seeds of one Redis Cluster"), std::string::npos);
  a.kill();
  EXPECT_EQ(kind_of([&] { return redis::Client{url}.is_cluster(); }), FaultKind::invalid_input);
}

}  // namespace
}  // namespace fenceguard::test
