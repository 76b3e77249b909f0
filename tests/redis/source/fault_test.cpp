#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/redis/client.hpp"
#include "adapters/redis/guard.hpp"
#include "tests/process/byte_cut.hpp"
#include "tests/redis/source/source.hpp"

namespace fenceguard::test {
namespace {

const std::string lock_key = "fenceguard:lock:{accounts/42}";

bool is_free(RedisServer& server) {
  return server.call({"EXISTS", lock_key}).integer == 0;
}

TEST(Faults, AWrongTypeUnderAKeyOfOursIsUnavailableAndChangesNothing) {
  for (const std::string key : {"fenceguard:counter", "fenceguard:lock:{accounts/42}",
                                "fenceguard:queue:{accounts/42}", "fenceguard:waiters:{accounts/42}"}) {
    RedisServer server;
    const auto source = open(server.url("/0?fair=1"));
    if (key.find("waiters") != key.npos)
      server.call({"ZADD", "fenceguard:queue:{accounts/42}", "1", "somebody"});
    server.call({"RPUSH", key, "not", "ours"});
    const auto message = message_of<Unavailable>([&] { (void)take(*source); });
    EXPECT_THAT(message, testing::HasSubstr("rename or remove it")) << key;
    EXPECT_EQ(server.call({"LLEN", key}).integer, 2);
    if (key.find("lock") == key.npos) {
      EXPECT_TRUE(is_free(server)) << key;
    }
  }
}

TEST(Faults, AForgottenScriptIsSentAgain) {
  RedisServer server;
  const auto source = open(server.url());
  const auto grant = take(*source);
  server.call({"SCRIPT", "FLUSH"});
  EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::renewed);
  server.call({"SCRIPT", "FLUSH"});
  EXPECT_EQ(source->release(grant.claim), Release::released);
}

TEST(Faults, AReplicaGrantsNothing) {
  RedisServer master;
  RedisServer replica;
  const auto source = open(replica.url());
  replica.call({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  wait_until([&] {
    return replica.call({"INFO", "replication"}).text.find("master_link_status:up") != std::string::npos;
  });
  EXPECT_THAT(message_of<Unavailable>([&] { (void)open(replica.url()); }), testing::HasSubstr("replica"));
  EXPECT_THAT(message_of<Unavailable>([&] { (void)take(*source); }), testing::HasSubstr("replica"));
  EXPECT_THROW((void)source->draw(), Unavailable);
  EXPECT_THROW(source->raise(resource, Token{7}), Unavailable);
  EXPECT_TRUE(is_free(master));
}

TEST(Faults, WithoutMemoryLocksStillChangeHands) {
  RedisServer server;
  const auto source = open(server.url());
  const auto grant = take(*source);
  server.call({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  server.call({"CONFIG", "SET", "maxmemory", "1"});
  (void)take(*source, Holder::random(), long_ttl, Resource{"accounts/43"});
  EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::renewed);
  EXPECT_EQ(source->release(grant.claim), Release::released);
  EXPECT_TRUE(is_free(server));
  EXPECT_GT(take(*source).claim.token, grant.claim.token);
}

// The server is stopped past the time-out: nobody knows whether the grant will happen. It does, and runs out.
TEST(Faults, AGrantWhoseAnswerCameTooLateIsUnknownAndExpires) {
  RedisServer server;
  const auto patient = open(server.url());
  (void)token_of_a_tenure(*patient);
  const Holder late{"late"};
  std::unique_ptr<TokenSource> hasty;
  wait_until([&] {  // the time-out is its greeting's too
    try {
      hasty = open(server.url("/0?timeout=200ms"));
    } catch (const Unavailable&) {
    }
    return hasty != nullptr;
  });
  server.pause();
  EXPECT_THROW((void)take(*hasty, late, long_ttl), OutcomeUnknown);
  server.resume();
  wait_until([&] { return !is_free(server); });
  const auto record = patient->show(resource);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->claim.holder, late);
  // It has a term, which the test need not sit out.
  const auto left_ms = server.call({"PTTL", lock_key}).integer;
  EXPECT_GT(left_ms, 0);
  EXPECT_LE(left_ms, long_ttl.count());
  server.call({"PEXPIRE", lock_key, "100"});
  wait_until([&] { return is_free(server); });
  (void)token_of_a_tenure(*patient);
}

// How long after its server stood still or died a lease was lost in its holder's eyes; nothing where it was
// lost before.
std::optional<BootClock::duration> lost_after(Ms ttl, bool dies) {
  RedisServer server;
  const auto source = open(server.url());
  auto lease = source->acquire(resource, {.ttl = ttl});
  if (!lease) throw std::runtime_error{"it is held"};
  std::atomic<BootClock::rep> lost_at{0};
  const std::stop_callback on_loss{lease->lost(),
                                   [&] { lost_at = BootClock::now().time_since_epoch().count(); }};
  const auto stopped_at = BootClock::now();
  dies ? server.kill() : server.pause();
  wait_until([&] { return lost_at != 0; });
  if (!dies) server.resume();
  const auto after = BootClock::duration{lost_at.load()} - stopped_at.time_since_epoch();
  return after > after.zero() ? std::optional{after} : std::nullopt;
}

// The last renewal that succeeded was sent before the stop, and its term ends a ttl after that. On a busy
// machine the loss may be told later, so that one of a few tries decides.
TEST(Faults, LeaseIsLostBeforeItsTermIfTheServerStopsOrDies) {
  constexpr Ms ttl{600};
  for (const bool dies : {false, true}) {
    bool was_in_time = false;
    for (int tries = 0; tries < 5 && !was_in_time; ++tries) {
      const auto after = lost_after(ttl, dies);
      was_in_time = after && *after < ttl;
    }
    EXPECT_TRUE(was_in_time) << (dies ? "killed" : "paused");
  }
}

// The answers are cut after 0, 1, 2, ... bytes until a run passes. Whatever is cut: a grant that is answered
// is held, a release that is answered is done, and what is not known is said to be so.
TEST(Faults, AnAnswerCutAnywhereIsNeverAWrongAnswer) {
  RedisServer server;
  const auto direct = open(server.url());
  bool has_passed = false;
  for (std::int64_t bytes = 0; !has_passed; ++bytes) {
    ASSERT_LT(bytes, 5'000);
    SCOPED_TRACE(fmt::format("{} bytes", bytes));
    ByteCut cut;
    cut.arm(Proxy::Direction::to_client, bytes);
    const Proxy proxy{server.port(), cut.filter()};
    std::optional<Grant> grant;
    try {
      const auto source = open(fmt::format("redis://127.0.0.1:{}", proxy.port()));
      const auto holder = Holder::random();
      try {
        grant = take(*source, holder);
      } catch (const OutcomeUnknown&) {
        const auto record = direct->show(resource);
        EXPECT_TRUE(!record || record->claim.holder == holder);
        (void)direct->end(resource);
        continue;
      }
      const auto record = direct->show(resource);
      EXPECT_TRUE(record && record->claim == grant->claim);
      EXPECT_EQ(source->release(grant->claim), Release::released);
      EXPECT_TRUE(is_free(server));
      has_passed = !cut.has_cut();
    } catch (const Unavailable&) {
      EXPECT_EQ(is_free(server), !grant);
    } catch (const OutcomeUnknown&) {
      EXPECT_TRUE(grant);
    }
    (void)direct->end(resource);
  }
}

// A holder's lease runs out while it stands still, the next one writes, and then the old one wakes up: 200
// times, no stale write is admitted and none of the successor's is refused.
TEST(Faults, TwoHundredCyclesAdmitNoStaleWriteAndRefuseNoSuccessor) {
  RedisServer server;
  server.call({"HSET", "fenceguard:namespace", "floor", "0", "highest", "0"});
  const auto old_source = open(server.url());
  const auto new_source = open(server.url());
  redis::Client client{server.url()};
  redis::Guard guard{client};
  const std::string key = "{accounts/42}:balance";
  int stale_admitted = 0;
  int refused = 0;
  for (int cycle = 0; cycle < 200; ++cycle) {
    const auto old_grant =
        old_source->wait_acquire(resource, Holder::random(), {.ttl = Ms{10}, .wait = long_wait});
    ASSERT_TRUE(old_grant);
    if (cycle % 2 == 0) (void)guard.advance(old_grant->claim);
    const auto next =
        new_source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = long_wait});
    ASSERT_TRUE(next);
    const auto value = std::to_string(cycle);
    if (guard.write(next->claim, {"SET", key, value}).ruling.verdict != Verdict::admitted) ++refused;
    if (guard.write(old_grant->claim, {"SET", key, "stale"}).ruling.verdict != Verdict::stale)
      ++stale_admitted;
    if (guard.write(next->claim, {"APPEND", key, "!"}).ruling.verdict != Verdict::admitted) ++refused;
    EXPECT_EQ(server.call({"GET", key}).text, value + "!");
    EXPECT_EQ(old_source->release(old_grant->claim), Release::not_held);
    EXPECT_EQ(new_source->release(next->claim), Release::released);
  }
  EXPECT_EQ(stale_admitted, 0);
  EXPECT_EQ(refused, 0);
}

}  // namespace
}  // namespace fenceguard::test
