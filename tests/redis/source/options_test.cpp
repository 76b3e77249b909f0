#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "adapters/redis/lock/lock_scan.hpp"
#include "adapters/redis/wire/cluster.hpp"
#include "guard/source/lease_lister.hpp"
#include "tests/redis/source/source.hpp"

namespace fenceguard::test {
namespace {

const std::string lock_key = "fenceguard:lock:{accounts/42}";

// Runs a script with python3-redis; what it printed.
std::string python(RedisServer& server, const std::string& script) {
  const auto file = server.folder() + "/script.py";
  std::ofstream{file} << "import redis\nserver = redis.Redis(port=" << server.port() << ")\n"
                      << "lock = server.lock('locks:accounts/42:x', timeout=60, blocking_timeout=0.05)\n"
                      << script;
  FILE* output = popen(("/usr/bin/python3 -B " + file + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[512];
  while (fgets(buffer, sizeof buffer, output) != nullptr) text += buffer;
  pclose(output);
  return text;
}

TEST(LockKey, AnotherLibrarysLockExcludesUsAndOursExcludesIt) {
  RedisServer server;
  const auto source = open(server.url("/0?lock_key=locks:%25s:x"));
  const auto grant = take(*source);
  EXPECT_EQ(python(server, "print(lock.acquire())\n"), "False\n");
  EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::renewed);
  EXPECT_EQ(source->release(grant.claim), Release::released);
  EXPECT_EQ(python(server, "print(lock.acquire())\n"), "True\n");
  const auto theirs = server.call({"GET", "locks:accounts/42:x"}).text;
  EXPECT_TRUE(is_held(*source));
  EXPECT_FALSE(source->show(resource));
  EXPECT_EQ(source->end(resource), Release::not_held);
  EXPECT_EQ(source->release(grant.claim), Release::not_held);
  EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::lost);
  EXPECT_EQ(server.call({"GET", "locks:accounts/42:x"}).text, theirs);
  // Nobody tells of their release: it is asked for.
  std::optional<Grant> next;
  std::jthread waiter{
      [&] { next = source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = long_wait}); }};
  wait_until([&] { return scripts_run(server) > 8; });
  server.call({"DEL", "locks:accounts/42:x"});
  waiter.join();
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, grant.claim.token);
}

TEST(LockKey, HasOnePlaceForTheResourceAndMakesNoKeyOfOurs) {
  RedisServer server;
  for (const std::string pattern : {"", "lock", "%25s:%25s", "lock:%25d"})
    EXPECT_THROW((void)open(server.url("/0?lock_key=" + pattern)), InvalidInput) << pattern;
  for (const std::string pattern : {"%25s", "fenceguard:%25s"}) {
    const auto source = open(server.url("/0?lock_key=" + pattern));
    const Resource nasty{pattern == "%25s" ? "fenceguard:counter" : "counter"};
    EXPECT_THROW((void)take(*source, Holder::random(), long_ttl, nasty), InvalidInput) << pattern;
  }
  EXPECT_THROW((void)open(server.url("/0?fair=yes")), InvalidInput);
  EXPECT_THROW((void)open(server.url("/0?wait_replicas=-1")), InvalidInput);
  EXPECT_THROW((void)open(server.url("/0?unheard=of")), InvalidInput);
}

// What 'fence compact' by the plain URL rests on: nobody's live lease is missed, whatever key it is kept at.
TEST(LockKey, ALeaseUnderAnotherPatternIsAmongTheLiveOnesOfTheNamespace) {
  for (const std::string fair : {"", "&fair=1"}) {
    RedisServer server;
    const auto plain = open(server.url());
    const auto other = open(server.url("/0?lock_key=other:%25s"));
    const auto jobs = open(server.url("/0?lock_key=jobs[*]:%25s:x" + fair));
    EXPECT_FALSE(server.call({"EXISTS", "fenceguard:lock_keys"}).integer);
    const auto grant = take(*jobs);
    for (int i = 0; i < 3; ++i) (void)plain->draw();
    for (auto* source : {plain.get(), other.get(), jobs.get()})
      EXPECT_EQ(source->lowest_live(), grant.claim.token);
    // A server that forgot everything learns the pattern together with the next lock.
    server.call({"FLUSHALL"});
    const auto next = take(*jobs);
    (void)plain->draw();
    EXPECT_EQ(plain->lowest_live(), next.claim.token);
    EXPECT_EQ(jobs->release(next.claim), Release::released);
    EXPECT_GT(plain->lowest_live()->value(), next.claim.token.value());
    // Also where its holder asks for what it has already.
    const auto again = take(*jobs);
    server.call({"DEL", "fenceguard:lock_keys"});
    EXPECT_EQ(take(*jobs, again.claim.holder).claim, again.claim);
    EXPECT_EQ(plain->lowest_live(), again.claim.token);
    // And where it renews, as one does that an older version granted.
    server.call({"DEL", "fenceguard:lock_keys"});
    EXPECT_EQ(jobs->renew(again.claim, long_ttl), Renewal::renewed);
    EXPECT_EQ(plain->lowest_live(), again.claim.token);
  }
}

TEST(LockKey, AUserWithoutTheRightToRegisterThePatternStillRenews) {
  RedisServer server;
  const auto before = open(server.url("/0?lock_key=jobs:%25s"));
  const auto grant = take(*before);
  server.call({"ACL", "SETUSER", "default", "-sadd"});
  EXPECT_EQ(before->renew(grant.claim, long_ttl), Renewal::renewed);
}

TEST(LockKey, ARegistryThatHoldsNoPatternStopsCompaction) {
  RedisServer server;
  const auto plain = open(server.url());
  server.call({"SADD", "fenceguard:lock_keys", "nonsense"});
  EXPECT_THAT(message_of<Unavailable>([&] { (void)plain->lowest_live(); }),
              testing::HasSubstr("fenceguard:lock_keys is damaged"));
}

TEST(LockKey, LeasesAreListedByTheirOwnPatternAndInADatabaseOfABoundedSize) {
  RedisServer server;
  const auto jobs = open(server.url("/0?lock_key=jobs[*]:%25s:x"));
  const auto plain = open(server.url());
  const auto grant = take(*jobs);
  server.call({"SET", "jobs[*]:theirs:x", "another library's"});
  server.call({"SET", "jobs[*]:a\nb:x", "7 h 1"});
  server.call({"SET", "jobs[a]:b:x", "7 h 1"});
  server.call({"HSET", "jobs[*]:hash:x", "a", "b"});
  auto& lister = dynamic_cast<LeaseLister&>(*jobs);
  const auto page = lister.list_leases({});
  ASSERT_EQ(page.entries.size(), 1U);
  EXPECT_EQ(page.entries[0].claim, (Claim{grant.claim.resource, grant.claim.token, {}, {}}));
  EXPECT_TRUE(dynamic_cast<LeaseLister&>(*plain).list_leases({}).entries.empty());
  const auto count = std::to_string(redis::scan_keys_max);
  server.call({"EVAL", "for i = 1, ARGV[1] do redis.call('SET', 'data' .. i, 1) end", "0", count});
  EXPECT_THAT(message_of<Unavailable>([&] { (void)lister.list_leases({}); }),
              testing::HasSubstr("more than 200000: ask for one by its name"));
}

// As redis-cli --cluster reshard moves a slot, here one without keys. Waits until all agree on the epoch: an
// owner by an older one than its predecessor's would have to give it back.
void move_empty_slot(RedisCluster& cluster, const std::string& slot, std::size_t from, std::size_t to) {
  const auto id = [&](std::size_t node) { return cluster.node(node).call({"CLUSTER", "MYID"}).text; };
  const auto epoch = [&](std::size_t node) {
    const auto info = cluster.node(node).call({"CLUSTER", "INFO"}).text;
    const auto at = info.find("cluster_current_epoch:");
    return info.substr(at, info.find('\r', at) - at);
  };
  const auto set_slot = [&](std::size_t node, const std::string& what, std::size_t of) {
    EXPECT_EQ(cluster.node(node).call({"CLUSTER", "SETSLOT", slot, what, id(of)}).text, "OK") << what;
  };
  set_slot(to, "IMPORTING", from);
  set_slot(from, "MIGRATING", to);
  for (const auto node : {to, from, 3 - to - from}) set_slot(node, "NODE", to);
  wait_until([&] { return epoch(0) == epoch(1) && epoch(1) == epoch(2); });
}

TEST(WaitReplicas, AGrantThatTooFewReplicasHaveIsGivenBack) {
  RedisServer master{{"--repl-diskless-sync-delay", "0"}};
  RedisServer first;
  RedisServer second;
  for (auto* replica : {&first, &second})
    replica->call({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  for (auto* replica : {&first, &second}) {
    wait_until([&] {
      return replica->call({"INFO", "replication"}).text.find("master_link_status:up") != std::string::npos;
    });
  }
  wait_until([&] { return master.call({"WAIT", "2", "100"}).integer == 2; });
  const auto source = open(master.url("/0?wait_replicas=2&timeout=20s"));
  const auto grant = take(*source);
  for (auto* replica : {&first, &second})
    EXPECT_THAT(replica->call({"GET", lock_key}).text, testing::StartsWith(to_string(grant.claim.token)));
  EXPECT_EQ(source->release(grant.claim), Release::released);
  second.pause();
  std::string message;
  wait_until([&] {  // the other one may be late
    message = message_of<Unavailable>([&] { (void)take(*source, Holder::random(), Ms{1'000}); });
    return message.find("0 of the 2 replicas") == message.npos;
  });
  EXPECT_THAT(message, testing::HasSubstr("1 of the 2 replicas"));
  EXPECT_EQ(master.call({"EXISTS", lock_key}).integer, 0);
  second.resume();
  const auto next = take(*source);
  EXPECT_GT(next.claim.token, grant.claim.token);
  // A tenure that stands is not taken back where its holder asks again and cannot be confirmed.
  second.pause();
  EXPECT_THROW((void)take(*source, next.claim.holder, Ms{1'000}), Unavailable);
  EXPECT_EQ(source->show(resource)->claim, next.claim);
  // Nor does a renewal count that too few have.
  EXPECT_THROW((void)source->renew(next.claim, Ms{1'000}), OutcomeUnknown);
  second.resume();
  EXPECT_EQ(source->renew(next.claim, long_ttl), Renewal::renewed);
  EXPECT_EQ(source->release(next.claim), Release::released);
  EXPECT_EQ(source->renew(next.claim, long_ttl), Renewal::lost);
}

// Too few replicas have it, and the server takes no writes any more when it is to be given back.
TEST(WaitReplicas, AGrantThatCannotBeGivenBackIsUnknown) {
  RedisServer server;
  const auto source = open(server.url("/0?wait_replicas=1&timeout=20s"));
  std::string unknown;
  {
    std::jthread taker{
        [&] { unknown = message_of<OutcomeUnknown>([&] { (void)take(*source, Holder::random()); }); }};
    wait_until([&] { return server.call({"EXISTS", lock_key}).integer == 1; });
    server.call({"CONFIG", "SET", "min-replicas-to-write", "1"});
  }
  EXPECT_THAT(unknown, testing::AllOf(testing::HasSubstr("0 of the 1 replicas"),
                                      testing::HasSubstr("could not be given back")));
  EXPECT_TRUE(source->show(resource));
}

TEST(WaitReplicas, UnderAClusterItFollowsASlotThatMoved) {
  RedisCluster cluster;
  const auto source = open(cluster.url("?wait_replicas=1&timeout=10s"));
  const auto message = [&] {  // the replicas are waited for for half of the term
    return message_of<Unavailable>([&] { (void)take(*source, Holder::random(), Ms{1'000}); });
  };
  EXPECT_THAT(message(), testing::HasSubstr("0 of the 1 replicas"));
  const auto slot = redis::slot_of(lock_key);
  auto owner = slot * cluster.size() / redis::slot_count;  // as the cluster is laid out
  for (int move = 0; move < 3; ++move) {
    const auto from = std::exchange(owner, (owner + 1) % cluster.size());
    for (std::size_t i = 0; i < cluster.size(); ++i) cluster.node(i).call({"FLUSHALL"});
    move_empty_slot(cluster, std::to_string(slot), from, owner);
    EXPECT_THAT(message(), testing::HasSubstr("0 of the 1 replicas"));
  }
}

TEST(Access, ABracketWithoutItsOtherOneIsNoHost) {
  EXPECT_EQ(redis::parse_endpoint("[::1]:7"), (redis::Endpoint{.host = "::1", .port = 7, .socket = {}}));
  for (const auto* text : {"[::1", "[[::1]", "[a[b]", "a]", "a[:7", "[]:7", "[::1]7", "[::1]:"})
    EXPECT_THROW((void)redis::parse_endpoint(text), InvalidInput) << text;
}

TEST(Access, APasswordAUserADatabaseAndASocketWork) {
  RedisServer server{{"--requirepass", "se cret/@"}};
  EXPECT_THAT(message_of<Unavailable>([&] { (void)open(server.url()); }), testing::HasSubstr("NOAUTH"));
  const auto port = std::to_string(server.port());
  const auto wrong = message_of<Unavailable>([&] { (void)open("redis://:wr0ng-one@127.0.0.1:" + port); });
  EXPECT_THAT(wrong, testing::HasSubstr("WRONGPASS"));
  EXPECT_THAT(wrong, testing::Not(testing::HasSubstr("wr0ng-one")));
  const std::string credentials = ":se%20cret%2F%40@";
  const auto source = open("redis://" + credentials + "127.0.0.1:" + port + "/3");
  const auto grant = take(*source);
  EXPECT_FALSE(open("redis://" + credentials + "127.0.0.1:" + port + "/0")->show(resource));
  server.call({"CONFIG", "SET", "requirepass", ""}, credentials);
  const auto by_socket = open("redis:" + server.socket() + "?db=3");
  EXPECT_EQ(by_socket->show(resource)->claim, grant.claim);
}

// The rights that the source needs, and no others.
TEST(Access, AUserWithTheNamedRightsAloneCanDoEverything) {
  RedisServer server;
  server.call({"ACL",           "SETUSER", "locker",   "on",       ">pw",        "~fenceguard:*",
               "&fenceguard:*", "-@all",   "+evalsha", "+eval",    "+info",      "+time",
               "+get",          "+set",    "+del",     "+exists",  "+pttl",      "+pexpire",
               "+hget",         "+hset",   "+hincrby", "+publish", "+subscribe", "+unsubscribe",
               "+ping",         "+scan",   "+mget",    "+wait",    "+select",    "+zadd",
               "+zrem",         "+zscore", "+zrange",  "+sadd",    "+smembers"});
  const auto base = fmt::format("redis://locker:pw@127.0.0.1:{}/1", server.port());
  for (const std::string parameters : {"", "?fair=1"}) {
    const auto source = open(base + parameters);
    const auto grant = take(*source);
    std::optional<Grant> next;
    std::jthread waiter{[&] {
      next = source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = long_wait});
    }};
    wait_until([&] {
      return server.call({"PUBSUB", "NUMSUB", "fenceguard:released:{accounts/42}"}).elements.at(1).integer ==
             1;
    });
    EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::renewed);
    EXPECT_EQ(source->release(grant.claim), Release::released);
    waiter.join();
    ASSERT_TRUE(next);
    EXPECT_EQ(source->lowest_live(), next->claim.token);
    source->raise(resource, Token{next->claim.token.value() + 10});
    EXPECT_GT(source->draw().value(), next->claim.token.value() + 10);
    EXPECT_EQ(source->end(resource), Release::released);
  }
  // Without the right to hear and to tell, a release is found by looking.
  server.call({"ACL", "SETUSER", "locker", "resetchannels"});
  const auto source = open(base);
  const auto grant = take(*source);
  std::jthread waiter{[&] {
    EXPECT_TRUE(source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = long_wait}));
  }};
  EXPECT_EQ(source->release(grant.claim), Release::released);
  waiter.join();
  server.call({"ACL", "SETUSER", "locker", "-hincrby"});
  const Resource other{"accounts/43"};
  EXPECT_THROW((void)take(*source, Holder::random(), long_ttl, other), Error);
  EXPECT_FALSE(source->show(other));
}

}  // namespace
}  // namespace fenceguard::test
