#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "adapters/redis/keys.hpp"
#include "guard/source/counter_repair.hpp"
#include "tests/redis/source/source.hpp"

namespace fenceguard::test {
namespace {

const std::string counter = "fenceguard:counter";

// Remembers every number that was granted, and finds the one that came twice or fell.
class Rising {
 public:
  void take_some(const std::string& url, int count = 20) {
    const auto source = open(url);
    for (int i = 0; i < count; ++i) {
      const auto token = token_of_a_tenure(*source);
      EXPECT_GT(token, last_);
      EXPECT_TRUE(seen_.insert(token).second) << token << " was granted twice";
      last_ = std::max(last_, token);
    }
  }
  [[nodiscard]] std::int64_t last() const { return last_; }

 private:
  std::set<std::int64_t> seen_;
  std::int64_t last_ = 0;
};

std::int64_t offset_of(RedisServer& server, const std::string& name) {
  const auto info = server.call({"INFO", "replication"}).text;
  const auto at = info.find(name + ":");
  return at == info.npos ? -1 : std::stoll(info.substr(at + name.size() + 1));
}

void follow(RedisServer& replica, RedisServer& master) {
  replica.call({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  wait_until([&] {
    return replica.call({"INFO", "replication"}).text.find("master_link_status:up") != std::string::npos &&
           offset_of(replica, "slave_repl_offset") >= offset_of(master, "master_repl_offset");
  });
}

void promote(RedisServer& server) {
  server.call({"REPLICAOF", "NO", "ONE"});
}

std::vector<std::string> replicating() {
  return {"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"};
}

TEST(Counter, GoesOnAboveAfterARestartWithItsDataAndWithout) {
  for (const bool with_data : {true, false}) {
    RedisServer server{with_data ? std::vector<std::string>{"--appendonly", "yes", "--appendfsync", "always"}
                                 : std::vector<std::string>{}};
    Rising tokens;
    for (int round = 0; round < 3; ++round) {
      tokens.take_some(server.url());
      server.kill();
      server.start();
    }
    tokens.take_some(server.url());
  }
}

// Everything that can happen to a counter, in an order drawn from a seed.
TEST(Counter, RisesThroughEveryFaultInEveryOrder) {
  const auto seed = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  fmt::print("seed {}\n", seed);
  std::srand(seed);
  RedisServer server{{"--save", "3600 1"}};
  Rising tokens;
  const std::vector<std::function<void()>> events{
      [&] { server.call({"FLUSHALL"}); },
      [&] {
        server.call({"DEL", counter});
      },
      [&] {
        server.call({"HDEL", counter, "value"});
      },
      [&] {
        // As a start does, and no two of them come closer to each other.
        server.call({"HDEL", counter, "run"});
        std::this_thread::sleep_for(Ms{20});
      },
      [&] { server.kill(), server.start(); },
      [&] { server.stop(), server.start(); },
      [&] { server.call({"SAVE"}); },
      [&] {
        server.call({"SCRIPT", "FLUSH"});
      },
      [&] { open(server.url())->raise(resource, Token{tokens.last() + 5}); },
      [&] { open(server.url())->raise(resource, Token{5}); },
  };
  tokens.take_some(server.url());
  for (int step = 0; step < 40; ++step) {
    const auto event = static_cast<std::size_t>(std::rand()) % events.size();
    SCOPED_TRACE(fmt::format("step {}, event {}", step, event));
    events[event]();
    tokens.take_some(server.url(), 5);
  }
}

// The replica is stopped while the master draws on; the master dies, and the replica, which knows nothing of
// the last numbers, is promoted.
TEST(Counter, GoesOnAboveWhenALaggingReplicaIsPromoted) {
  RedisServer master{replicating()};
  RedisServer replica{replicating()};
  Rising tokens;
  tokens.take_some(master.url());
  follow(replica, master);
  replica.pause();
  tokens.take_some(master.url(), 100);
  master.kill();
  replica.resume();
  promote(replica);
  tokens.take_some(replica.url());
}

// A and B change places, each time with the numbers of the other one's last moments lost, and without a
// restart of either.
TEST(Counter, GoesOnAboveThroughFlipsOfMasterAndReplicaWithoutARestart) {
  RedisServer a{replicating()};
  RedisServer b{replicating()};
  for (const bool draws_at_b : {true, false}) {
    promote(a);
    Rising tokens;
    tokens.take_some(a.url());
    follow(b, a);
    b.pause();
    tokens.take_some(a.url(), 50);
    // B never sees these: its link is cut before it goes on.
    a.call({"CLIENT", "KILL", "TYPE", "replica"});
    a.call({"CONFIG", "SET", "requirepass", "nobody knows"});
    b.resume();
    promote(b);
    if (draws_at_b) tokens.take_some(b.url());
    a.call({"CONFIG", "SET", "requirepass", ""}, ":nobody%20knows@");
    follow(a, b);
    promote(a);
    tokens.take_some(a.url());
  }
}

TEST(Counter, NearItsEndItSaysSoAndGrantsNothing) {
  RedisServer server;
  const auto source = open(server.url());
  (void)token_of_a_tenure(*source);
  server.call({"HSET", counter, "value", "9223372036854775805"});
  EXPECT_EQ(token_of_a_tenure(*source), 9223372036854775806);
  EXPECT_EQ(token_of_a_tenure(*source), 9223372036854775807);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(message_of<Unavailable>([&] { (void)take(*source); }), testing::HasSubstr("at its end"));
    EXPECT_EQ(server.call({"EXISTS", "fenceguard:lock:{accounts/42}"}).integer, 0);
  }
  // Nor does a leap go round.
  server.call({"HSET", counter, "value", "9223372036854775000", "run", "another"});
  EXPECT_THROW((void)take(*source), Unavailable);
  EXPECT_EQ(server.call({"HGET", counter, "value"}).text, "9223372036854775000");
}

TEST(Counter, TokensBeyondWhatLuaCountsExactlyAreExact) {
  RedisServer server;
  const auto source = open(server.url());
  (void)token_of_a_tenure(*source);
  for (const std::int64_t mark : {std::int64_t{9007199254740991}, std::int64_t{1} << 60}) {
    EXPECT_THROW(source->raise(resource, Token{mark}), Implausible);
    dynamic_cast<CounterRepair&>(*source).raise_far(Token{mark}, "me");
    for (int i = 1; i < 6; ++i) {
      const auto grant = take(*source);
      EXPECT_EQ(grant.claim.token.value(), mark + i);
      EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::renewed);
      EXPECT_EQ(source->release(grant.claim), Release::released);
    }
  }
}

TEST(Counter, ADamagedValueIsUnavailableAndChangesNothing) {
  RedisServer server;
  const auto source = open(server.url());
  (void)token_of_a_tenure(*source);
  for (const std::string value : {"abc", "007", "1e5", "", "99999999999999999999"}) {
    server.call({"HSET", counter, "value", value});
    EXPECT_THROW((void)take(*source), Unavailable) << value;
    EXPECT_THROW((void)source->draw(), Unavailable) << value;
    EXPECT_EQ(server.call({"HGET", counter, "value"}).text, value);
    EXPECT_FALSE(source->show(resource));
  }
}

TEST(Keys, NoResourceMakesAKeyOfAnotherKind) {
  const redis::Keys keys{"fenceguard:"};
  const std::vector<std::string> names{
      "accounts/42", "lock:{x}",       "{x}",       "x",          "x}",
      "{x",          "counter",        "namespace", "resources",  "lock:",
      "queue:{x}",   "counter:{x}",    "}",         "released:x", "{lock:{x}}",
      "waiters:{x}", "fenceguard:{x}", "{}",        "lock:{x",    "lock:x}"};
  std::set<std::string> all{keys.counter(), keys.name_space(), keys.resources()};
  std::size_t count = all.size();
  for (const auto& name : names) {
    const Resource of{name};
    for (const auto& key : {keys.fence(of), keys.lock(of), keys.counter(of), keys.queue(of), keys.waiters(of),
                            keys.released(of)}) {
      EXPECT_TRUE(all.insert(key).second) << key;
      EXPECT_TRUE(keys.is_reserved(key));
      ++count;
    }
  }
  EXPECT_EQ(all.size(), count);
}

}  // namespace
}  // namespace fenceguard::test
