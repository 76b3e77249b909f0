#include "guard/store/blocking_fence_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>

#include "guard/support/wait_for.hpp"
#include "tests/conformance/fence_calls.hpp"

namespace fenceguard {
namespace {

using test::wait_until;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A server whose advances take until the test lets them go on.
struct Server {
  std::mutex mutex;  // guards the following
  std::condition_variable changed;
  std::string stalled;                 // the resource whose advances wait
  std::vector<std::int64_t> advanced;  // their tokens
  std::int64_t floor = 0;

  bool is_look_stalled = false;
  bool are_shows_stalled = false;

  std::atomic<int> running{0};  // advances
  std::atomic<int> looks_running{0};
  bool is_reachable = true;

  void stall(const std::string& resource) {
    const std::scoped_lock lock{mutex};
    stalled = resource;
    is_look_stalled = false;
    changed.notify_all();
  }
};

class FakeDriver : public FenceDriver {
 public:
  explicit FakeDriver(Server& server) : server_{server} {}

  void connect() override {
    if (!server_.is_reachable) throw Unavailable("no server at\n\ta or b");
  }
  StoreStatus status() override {
    std::unique_lock lock{server_.mutex};
    StoreStatus status;
    status.floor = server_.floor;
    for (const auto token : server_.advanced) status.highest = std::max(status.highest, token);
    ++server_.looks_running;
    server_.changed.wait(lock, [&] { return !server_.is_look_stalled; });
    --server_.looks_running;
    return status;
  }
  Ruling advance(const Claim& claim) override {
    ++server_.running;
    std::unique_lock lock{server_.mutex};
    server_.changed.wait(lock, [&] { return server_.stalled != claim.resource.name(); });
    server_.advanced.push_back(claim.token.value());
    --server_.running;
    if (claim.sequence) throw std::logic_error("an advance uses up no sequence");
    if (claim.holder == Holder{"lost"}) throw OutcomeUnknown("lost at\na");
    return {Verdict::admitted, claim.token.value(), std::nullopt, true};
  }
  FenceView show(const Resource&) override {
    std::unique_lock lock{server_.mutex};
    server_.changed.wait(lock, [&] { return !server_.are_shows_stalled; });
    return {};
  }
  FencePage list(const FenceListing&) override { return {}; }
  FenceView revoke(const Resource&, const std::optional<Claim>&) override { return {}; }
  FenceView rebase(const FenceStore::Rebase&) override { return {}; }
  std::int64_t init(std::int64_t floor) override {
    const std::scoped_lock lock{server_.mutex};
    return server_.floor = floor;
  }
  Compaction compact(Token) override { return {}; }

 private:
  Server& server_;
};

class BlockingFenceStoreTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Storage> open(StorageOptions::Mode mode = StorageOptions::Mode::guard) {
    return open_server_storage(
        {.fences = {"fake://", mode, [this] { return std::make_unique<FakeDriver>(server_); }},
         .open_source = [] { return nullptr; }});
  }

  static Claim claim(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
    return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
  }

  Server server_;
};

TEST_F(BlockingFenceStoreTest, AServerThatCannotBeReachedIsToldWhenTheStoreIsOpened) {
  server_.is_reachable = false;
  EXPECT_THROW((void)open(), Unavailable);
}

TEST_F(BlockingFenceStoreTest, ChangesOfOneResourceAreMadeAndAnsweredInTheOrderOfTheirCalls) {
  constexpr std::int64_t count = 1'000;
  std::vector<std::int64_t> answered;  // on the store's one thread for answers
  std::latch all{count};
  const auto storage = open();
  for (std::int64_t token = 1; token <= count; ++token) {
    storage->fences().advance(claim("a", token), [&](const Outcome<Ruling>& outcome) {
      answered.push_back(outcome.value().highest);
      all.count_down();
    });
  }
  all.wait();
  EXPECT_EQ(answered, server_.advanced);
  EXPECT_TRUE(std::ranges::is_sorted(answered));
}

TEST_F(BlockingFenceStoreTest, AnAdvanceThatWaitsHoldsUpItsResourceAlone) {
  server_.stall("a");
  const auto storage = open();
  std::latch all{9};
  for (int i = 1; i <= 9; ++i)
    storage->fences().advance(claim("a", i), [&](const Outcome<Ruling>&) { all.count_down(); });
  EXPECT_EQ(test::advance(*storage, claim("b", 100)).verdict, Verdict::admitted);
  EXPECT_EQ(test::show(*storage, "a"), FenceView{});
  EXPECT_EQ(server_.running, 1);
  server_.stall("");
  all.wait();
}

TEST_F(BlockingFenceStoreTest, ShowsThatHangDoNotHideHowTheServerIs) {
  server_.are_shows_stalled = true;
  const auto storage = open();
  std::latch all{4};
  for (int i = 0; i < 4; ++i)
    storage->fences().show(Resource{"a"}, [&](const Outcome<FenceView>&) { all.count_down(); });
  {
    const std::scoped_lock lock{server_.mutex};
    server_.floor = 7;
  }
  wait_until([&] { return storage->fences().status().floor == 7; });
  EXPECT_EQ(storage->fences().status().state, StoreState::ready);
  {
    const std::scoped_lock lock{server_.mutex};
    server_.are_shows_stalled = false;
  }
  server_.changed.notify_all();
  all.wait();
}

TEST_F(BlockingFenceStoreTest, OneCallTooManyIsRefusedAtOnceAndNothingOfItIsDone) {
  server_.stall("a");
  const auto storage = open();
  std::latch all{Executor::queue_max_default + 1};
  for (std::size_t i = 0; i <= Executor::queue_max_default; ++i) {
    storage->fences().advance(claim("a", 1), [&](const Outcome<Ruling>&) { all.count_down(); });
    if (i == 0) wait_until([&] { return server_.running == 1; });
  }
  EXPECT_THAT([&] { (void)test::advance(*storage, claim("a", 2)); },
              ThrowsMessage<Unavailable>(HasSubstr("too many calls wait")));
  EXPECT_EQ(test::show(*storage, "a"), FenceView{});
  server_.stall("");
  all.wait();
  EXPECT_THAT(server_.advanced, testing::Each(1));
}

TEST_F(BlockingFenceStoreTest, WhatRunsAtTheEndIsFinishedAndWhatWaitsIsRefused) {
  server_.stall("a");
  auto storage = open();
  std::array<std::promise<Outcome<Ruling>>, 2> endings;
  for (auto& ending : endings) {
    storage->fences().advance(claim("a", 1),
                              [&](const Outcome<Ruling>& outcome) { ending.set_value(outcome); });
    wait_until([&] { return server_.running == 1; });
  }
  std::jthread end{[&] { storage.reset(); }};
  const auto refused = endings[1].get_future().get();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(refused.fault().message, HasSubstr("stopping"));
  server_.stall("");
  EXPECT_TRUE(endings[0].get_future().get().ok());
}

TEST_F(BlockingFenceStoreTest, AnAnswerThatThrowsIsTheTroubleOfItsCallAlone) {
  const auto storage = open();
  storage->fences().show(Resource{"a"},
                         [](const Outcome<FenceView>&) { throw std::runtime_error("not mine"); });
  EXPECT_EQ(test::show(*storage, "a"), FenceView{});
}

TEST_F(BlockingFenceStoreTest, AFaultKeepsItsKindAndIsOneLine) {
  const auto storage = open();
  EXPECT_THAT([&] { (void)test::advance(*storage, claim("a", 1, "lost")); },
              ThrowsMessage<OutcomeUnknown>("lost at a"));
}

TEST_F(BlockingFenceStoreTest, AnAdvanceUsesUpNoSequence) {
  const auto storage = open();
  EXPECT_EQ(test::advance(*storage, claim("a", 1).with(Sequence{7})).verdict, Verdict::admitted);
}

TEST_F(BlockingFenceStoreTest, AChangeOfTheStatusByThisStoreShowsAtOnce) {
  const auto storage = open();
  EXPECT_EQ(test::init(*storage, 7), 7);
  EXPECT_EQ(storage->fences().status().floor, 7);
  (void)test::advance(*storage, claim("a", 9));
  EXPECT_EQ(storage->fences().status().highest, 9);
}

// A look that saw the server before an advance, and ends after it.
TEST_F(BlockingFenceStoreTest, AnOutdatedLookDoesNotHideAnAdvance) {
  const auto storage = open();
  {
    const std::scoped_lock lock{server_.mutex};
    server_.floor = 3;
    server_.is_look_stalled = true;
  }
  wait_until([&] { return server_.looks_running == 1; });
  (void)test::advance(*storage, claim("a", 9));
  server_.stall("");
  wait_until([&] { return storage->fences().status().floor == 3; });
  EXPECT_EQ(storage->fences().status().highest, 9);
}

TEST_F(BlockingFenceStoreTest, AnInspectingStoreSendsNoChangeToTheServer) {
  const auto storage = open(StorageOptions::Mode::inspect);
  EXPECT_THAT([&] { (void)test::advance(*storage, claim("a", 1)); },
              ThrowsMessage<Unavailable>("fake:// is only looked at here"));
  EXPECT_THROW((void)test::init(*storage, 7), Unavailable);
  EXPECT_EQ(server_.floor, 0);
  EXPECT_TRUE(server_.advanced.empty());
}

}  // namespace
}  // namespace fenceguard
