// Lanes whose state's disk fails: what is not durable admits nothing, and what was admitted keeps its word.

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "guard/store/lane_state.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"
#include "tests/sqlite/fault/faulty_vfs.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using std::chrono::milliseconds;

constexpr milliseconds settle{100};

class LanesOnAFailingDisk : public testing::Test {
 protected:
  void open(milliseconds settle_time = settle) {
    LaneOptions options;
    options.state = sqlite::open_storage(path_, initialised());
    options.settle = settle_time;
    options.is_settled = true;
    state_ = options.state;
    lanes_.emplace(options, 0, 100);
  }
  [[nodiscard]] Entry ask(Ticket ticket, const Claim& claim) {
    auto promise = std::make_shared<std::promise<Entry>>();
    auto future = promise->get_future();
    auto entry = lanes_->enter({ticket, Kind::write, {claim}},
                               [promise](Entry late) { promise->set_value(std::move(late)); });
    return entry ? *std::move(entry) : future.get();
  }
  [[nodiscard]] std::optional<Fault> leave(Ticket ticket) {
    auto promise = std::make_shared<std::promise<LeftEvent>>();
    auto future = promise->get_future();
    auto left = lanes_->leave(ticket, Ending::took_effect,
                              [promise](LeftEvent late) { promise->set_value(std::move(late)); });
    return left ? left->fault : future.get().fault;
  }
  // Asks until something else than 'unavailable' is the answer.
  [[nodiscard]] Entry ask_until_ruled(Ticket& ticket, const Claim& claim) {
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    for (;;) {
      ticket = lanes_->new_ticket();
      Entry entry = ask(ticket, claim);
      if (!std::holds_alternative<FailedEvent>(entry) || std::chrono::steady_clock::now() > last)
        return entry;
      std::this_thread::sleep_for(milliseconds{10});
    }
  }

  TempDir folder_;
  FaultyVfs disk_{folder_.path()};
  const std::string path_ = folder_.file("state.db");
  std::shared_ptr<Storage> state_;
  std::optional<LaneScheduler> lanes_;
};

class FullDisk : public LanesOnAFailingDisk, public testing::WithParamInterface<FaultyVfs::Operation> {};

// Every call of a raise may fail; then nobody is admitted by it, and the disk heals.
TEST_P(FullDisk, ARaiseThatIsNotDurableAdmitsNothing) {
  open();
  Ticket ticket = lanes_->new_ticket();
  ASSERT_TRUE(std::holds_alternative<EnteredEvent>(ask(ticket, claim_of("a", 1, "h1"))));
  EXPECT_FALSE(leave(ticket));
  std::int64_t token = 1;
  bool failed = true;
  for (int n = 1; failed; ++n) {
    ASSERT_LT(n, 50);
    ++token;
    const auto holder = "h" + std::to_string(token);
    disk_.fail_at(n, SQLITE_FULL, {GetParam()}, 1'000);
    const Ticket raising = lanes_->new_ticket();
    const Entry entry = ask(raising, claim_of("a", token, holder));
    failed = disk_.failures() > 0;
    EXPECT_EQ(std::holds_alternative<FailedEvent>(entry), failed);
    if (!failed) {
      EXPECT_FALSE(leave(raising));
    }
    disk_.heal();
    // Whatever became of it: the token before is refused or admitted, and the next one passes.
    ASSERT_TRUE(std::holds_alternative<EnteredEvent>(ask_until_ruled(ticket, claim_of("a", token, holder))));
    EXPECT_FALSE(leave(ticket));
    EXPECT_TRUE(
        std::holds_alternative<RefusedEvent>(ask(lanes_->new_ticket(), claim_of("a", token - 1, "x"))));
  }
}

TEST_P(FullDisk, TheFirstWriteWaitsForItsMarkToBeDurable) {
  open();
  disk_.fail_at(1, SQLITE_FULL, {GetParam()}, 1'000);
  EXPECT_TRUE(std::holds_alternative<FailedEvent>(ask(lanes_->new_ticket(), claim_of("a", 1))));
  disk_.heal();
  Ticket ticket = 0;
  ASSERT_TRUE(std::holds_alternative<EnteredEvent>(ask_until_ruled(ticket, claim_of("a", 1))));
  EXPECT_EQ(state_->lane_state()->last_stop(""), LaneState::LastStop::unclean);
  EXPECT_FALSE(leave(ticket));
}

// The write took effect; that its sequence is not recorded is told, and no duplicate of it passes.
TEST_P(FullDisk, ASequenceThatIsNotDurableIsToldAndRecordedLater) {
  open();
  const auto claim = claim_of("a", 1).with(Sequence{7});
  Ticket ticket = lanes_->new_ticket();
  ASSERT_TRUE(std::holds_alternative<EnteredEvent>(ask(ticket, claim)));
  disk_.fail_at(1, SQLITE_FULL, {GetParam()}, 1'000);
  const auto fault = leave(ticket);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::unknown);
  disk_.heal();
  const Entry twice = ask_until_ruled(ticket, claim);
  ASSERT_TRUE(std::holds_alternative<RefusedEvent>(twice));
  EXPECT_EQ(std::get<RefusedEvent>(twice).ruling.verdict, Verdict::duplicate);
}

INSTANTIATE_TEST_SUITE_P(Operations, FullDisk,
                         testing::Values(FaultyVfs::Operation::write, FaultyVfs::Operation::sync),
                         [](const auto& which) {
                           return which.param == FaultyVfs::Operation::write ? "write" : "sync";
                         });

// The power goes while a write is under way; the next process finds the mark, and the fence.
TEST_F(LanesOnAFailingDisk, AfterAPowerCutTheMarkAndTheFenceAreThere) {
  open();
  ASSERT_TRUE(std::holds_alternative<EnteredEvent>(ask(lanes_->new_ticket(), claim_of("a", 34))));
  disk_.crash();
  lanes_.reset();
  state_.reset();
  disk_.restart();
  // The first to ask makes the mark and its fence durable before it finds everything closed.
  open(milliseconds{3'000});
  const Entry closed = ask(lanes_->new_ticket(), claim_of("b", 7));
  ASSERT_TRUE(std::holds_alternative<FailedEvent>(closed));
  EXPECT_GT(std::get<FailedEvent>(closed).fault.retry_after, milliseconds{0});
  Ticket ticket = 0;
  EXPECT_TRUE(std::holds_alternative<RefusedEvent>(ask(lanes_->new_ticket(), claim_of("a", 33))));
  EXPECT_TRUE(std::holds_alternative<EnteredEvent>(ask_until_ruled(ticket, claim_of("a", 34))));
  EXPECT_FALSE(leave(ticket));
}

}  // namespace
}  // namespace fenceguard::test
