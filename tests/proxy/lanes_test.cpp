// Lanes in front of a real state: threads, the store's answers, the mark, the timer.

#include "adapters/http/lanes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <thread>

#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds settle{300};

// One process's lanes, on a state of their own.
class OpenLanes {
 public:
  explicit OpenLanes(const std::string& path, const StorageOptions& state = initialised()) {
    options_.state = sqlite::open_storage(path, state);
    options_.settle = settle;
    lanes_.emplace(options_, 0, 1'000);
  }
  [[nodiscard]] Lanes* operator->() { return &*lanes_; }

  // Asks; the answer when it comes.
  [[nodiscard]] std::future<Entry> ask(Ask ask) {
    auto promise = std::make_shared<std::promise<Entry>>();
    auto future = promise->get_future();
    auto entry =
        lanes_->enter(std::move(ask), [promise](Entry late) { promise->set_value(std::move(late)); });
    if (entry) promise->set_value(*std::move(entry));
    return future;
  }
  [[nodiscard]] std::future<Entry> write(Ticket ticket, const Claim& claim) {
    return ask({ticket, Kind::write, {claim}});
  }
  // Lets a write in that need not wait for others.
  Ticket enter(const Claim& claim) {
    const Ticket ticket = lanes_->new_ticket();
    const Entry entry = write(ticket, claim).get();
    EXPECT_TRUE(std::holds_alternative<Entered>(entry)) << claim.token.value();
    return ticket;
  }
  std::optional<Fault> leave(Ticket ticket, Ending ending) {
    auto promise = std::make_shared<std::promise<Left>>();
    auto future = promise->get_future();
    auto left = lanes_->leave(ticket, ending, [promise](Left late) { promise->set_value(std::move(late)); });
    return left ? left->fault : future.get().fault;
  }
  [[nodiscard]] Ruling advance(const Claim& claim) { return StoreGuard{lanes_->fences()}.advance(claim); }
  [[nodiscard]] LaneState& state() { return *options_.state->lane_state(); }
  // The lanes end; the state stays open.
  void stop() { lanes_.reset(); }
  void start() { lanes_.emplace(options_, 0, 1'000); }

 private:
  LaneOptions options_;
  std::optional<Lanes> lanes_;
};

class LanesTest : public testing::Test {
 protected:
  TempDir folder_;
  const std::string path_ = folder_.file("state.db");
};

Verdict verdict_of(const Entry& entry) {
  return std::get<Refused>(entry).ruling.verdict;
}

TEST_F(LanesTest, AnEqualClaimWithoutContentionIsAnsweredAtOnce) {
  OpenLanes lanes{path_};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
  const Ticket ticket = lanes->new_ticket();
  const auto entry = lanes->enter({ticket, Kind::write, {claim_of("a", 34)}}, {});
  ASSERT_TRUE(entry);
  EXPECT_EQ(std::get<Entered>(*entry).rulings.at(0).highest, 34);
  const auto left = lanes->leave(ticket, Ending::took_effect, {});
  ASSERT_TRUE(left);
  EXPECT_FALSE(left->fault);
  EXPECT_EQ(lanes->figures().lanes, 0u);
}

TEST_F(LanesTest, AHigherTokenWaitsUntilTheOlderWriteIsOver) {
  OpenLanes lanes{path_};
  const Ticket old = lanes.enter(claim_of("a", 34));
  auto waiting = lanes.write(lanes->new_ticket(), claim_of("a", 35, "b"));
  EXPECT_EQ(verdict_of(lanes.write(lanes->new_ticket(), claim_of("a", 34)).get()), Verdict::stale);
  EXPECT_EQ(waiting.wait_for(milliseconds{20}), std::future_status::timeout);
  lanes.leave(old, Ending::took_effect);
  EXPECT_TRUE(std::holds_alternative<Entered>(waiting.get()));
}

}  // namespace
}  // namespace fenceguard::test
