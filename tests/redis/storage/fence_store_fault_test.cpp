// The fence store when its server forgets, dies, stands still or is a replica.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "adapters/redis/client.hpp"
#include "adapters/redis/fences/storage.hpp"
#include "tests/conformance/fence_calls.hpp"
#include "tests/conformance/until_answered.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::redis::test {
namespace {

using namespace fenceguard::test;

constexpr std::chrono::seconds limit{30};

Claim claim(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
  return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
}

// A server that forgot everything is unavailable until it is initialised from the source, and then nothing
// that was granted before is admitted.
TEST(RedisFenceStoreFault, AfterFlushAllNothingGrantedBeforeIsAdmitted) {
  RedisServer server;
  const auto url = Url::parse(server.url());
  const auto storage = open_storage(url, {});
  auto& source = *storage->own_source();
  (void)init(*storage, source.draw().value());
  std::vector<Claim> before;
  for (int i = 0; i < 20; ++i) {
    const Resource resource{fmt::format("r/{}", i)};
    const auto grant = source.try_acquire(resource, Holder::random(), std::chrono::seconds{60});
    before.push_back(std::get<Grant>(grant).claim);
    EXPECT_EQ(advance(*storage, before.back()).verdict, Verdict::admitted);
  }
  server.call({"FLUSHALL"});
  for (const auto& old : before) EXPECT_THROW((void)advance(*storage, old), Unavailable);
  (void)init(*storage, source.draw().value());
  for (const auto& old : before) EXPECT_EQ(advance(*storage, old).verdict, Verdict::stale);
  const auto grant = source.try_acquire(Resource{"r/0"}, Holder::random(), std::chrono::seconds{60});
  EXPECT_EQ(advance(*storage, std::get<Grant>(grant).claim).verdict, Verdict::admitted);
}

std::unique_ptr<Storage> open_hasty(const RedisServer& server, const std::string& timeout) {
  const auto url = Url::parse(server.url("/0?timeout=" + timeout));
  return until_answered([&] { return open_storage(url, {}); }, limit);
}

TEST(RedisFenceStoreFault, AServerThatGoesAndComesIsUnavailableMeanwhile) {
  RedisServer server{{"--appendonly", "yes", "--appendfsync", "always"}};
  const auto storage = open_hasty(server, "500ms");
  (void)until_answered([&] { return init(*storage, 0); }, limit);
  (void)until_answered([&] { return advance(*storage, claim("a", 5)); }, limit);
  server.kill();
  EXPECT_THROW((void)advance(*storage, claim("a", 6)), Unavailable);
  wait_until([&] { return storage->fences().status().state == StoreState::failed; }, limit);
  server.start();
  wait_until([&] { return storage->fences().status().state == StoreState::ready; }, limit);
  EXPECT_EQ(until_answered([&] { return advance(*storage, claim("a", 4)); }, limit).verdict, Verdict::stale);
  server.pause();
  // Unknown, unless it met a connection that was still to be greeted.
  EXPECT_THROW((void)advance(*storage, claim("a", 7)), Error);
  EXPECT_THROW((void)show(*storage, "a"), Unavailable);
  wait_until([&] { return storage->fences().status().state == StoreState::failed; }, limit);
  server.resume();
  wait_until([&] { return storage->fences().status().state == StoreState::ready; }, limit);
  const auto verdict = until_answered([&] { return advance(*storage, claim("a", 6)); }, limit).verdict;
  const auto token = until_answered([&] { return show(*storage, "a"); }, limit).record->token;
  EXPECT_EQ(verdict, token == Token{7} ? Verdict::stale : Verdict::admitted);
}

TEST(RedisFenceStoreFault, AWritableReplicaIsNoPlaceForAGuard) {
  RedisServer master;
  RedisServer replica{
      {"--replica-read-only", "no", "--replicaof", "127.0.0.1", std::to_string(master.port())}};
  EXPECT_THROW(Client{replica.url()}, Unavailable);
  EXPECT_THROW((void)open_storage(Url::parse(replica.url()), {}), Unavailable);
}

TEST(RedisFenceStoreFault, AServerThatCannotBeReachedIsToldAtOnce) {
  const auto url = Url::parse(fmt::format("redis://127.0.0.1:{}", fenceguard::test::free_port()));
  EXPECT_THROW((void)open_storage(url, {}), Unavailable);
}

TEST(RedisFenceStoreFault, WhatIsOpenAtTheEndIsAnswered) {
  RedisServer server;
  std::vector<std::future<FaultKind>> endings;
  {
    const auto storage = open_hasty(server, "300ms");
    (void)until_answered([&] { return init(*storage, 0); }, limit);
    server.pause();
    for (int i = 1; i <= 20; ++i) {
      auto ending = std::make_shared<std::promise<FaultKind>>();
      endings.push_back(ending->get_future());
      storage->fences().advance(claim("a", i), [ending](Outcome<Ruling> outcome) {
        ending->set_value(outcome.ok() ? FaultKind::invalid_input : outcome.fault().kind);
      });
    }
  }
  server.resume();
  for (auto& ending : endings) {
    const auto kind = ending.get();
    EXPECT_TRUE(kind == FaultKind::unknown || kind == FaultKind::unavailable);
  }
}

}  // namespace
}  // namespace fenceguard::redis::test
