// A state whose calls throw, as they do where no memory is left: who asked is answered, and the next gets in.

#include <gtest/gtest.h>

#include <future>
#include <new>

#include "guard/store/lane_state.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;

enum class Method { none, show, advance, revoke, mark_open, record };

// A real state, but for one call that throws.
class ThrowingState : public Storage, public FenceStore, public LaneState {
 public:
  explicit ThrowingState(const std::string& path) : storage_{sqlite::open_storage(path, initialised())} {}

  FenceStore& fences() override { return *this; }
  LaneState* lane_state() override { return this; }

  StoreStatus status() const override { return storage_->fences().status(); }
  void advance(Claim claim, Done<Ruling> done) override {
    throw_at(Method::advance);
    inner().advance(std::move(claim), std::move(done));
  }
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override {
    throw_at(Method::revoke);
    inner().revoke(std::move(resource), std::move(lease), std::move(done));
  }
  void compact(Token lowest_live, Done<Compaction> done) override {
    inner().compact(lowest_live, std::move(done));
  }
  void show(Resource resource, Done<FenceView> done) override {
    throw_at(Method::show);
    inner().show(std::move(resource), std::move(done));
  }
  void list(FenceListing listing, Done<FencePage> done) override {
    inner().list(std::move(listing), std::move(done));
  }
  void init(std::int64_t floor, Done<std::int64_t> done) override { inner().init(floor, std::move(done)); }
  void rebase(Rebase rebase, Done<FenceView> done) override {
    inner().rebase(std::move(rebase), std::move(done));
  }

  LastStop last_stop(const std::string& upstream) override {
    return storage_->lane_state()->last_stop(upstream);
  }
  void mark_open(Done<bool> done) override {
    throw_at(Method::mark_open);
    storage_->lane_state()->mark_open(std::move(done));
  }
  void mark_closed(std::string upstream, Done<bool> done) override {
    storage_->lane_state()->mark_closed(std::move(upstream), std::move(done));
  }
  void record(Claim claim, Done<Ruling> done) override {
    throw_at(Method::record);
    storage_->lane_state()->record(std::move(claim), std::move(done));
  }

  std::atomic<Method> throws{Method::none};  // once

 private:
  FenceStore& inner() { return storage_->fences(); }
  void throw_at(Method method) {
    auto expected = method;
    if (throws.compare_exchange_strong(expected, Method::none)) throw std::bad_alloc{};
  }

  const std::unique_ptr<Storage> storage_;
};

// Its destructor returns only when no call is unanswered.
class LanesOnAThrowingState : public testing::Test {
 protected:
  void SetUp() override {
    LaneOptions options;
    options.state = state_;
    options.settle = std::chrono::milliseconds{50};
    options.is_settled = true;
    lanes_.emplace(options, 0, 0);
  }
  [[nodiscard]] Entry ask(Ticket ticket, Kind kind, const Claim& claim) {
    std::promise<Entry> late;
    auto entry = lanes_->enter({ticket, kind, {claim}}, [&](Entry told) { late.set_value(std::move(told)); });
    return entry ? *std::move(entry) : late.get_future().get();
  }
  // Lets a write in and ends it.
  std::optional<Fault> write(const Claim& claim) {
    const Ticket ticket = lanes_->new_ticket();
    const Entry entry = ask(ticket, Kind::write, claim);
    if (const auto* failed = std::get_if<FailedEvent>(&entry)) return failed->fault;
    EXPECT_TRUE(std::holds_alternative<EnteredEvent>(entry));
    std::promise<LeftEvent> late;
    auto left =
        lanes_->leave(ticket, Ending::took_effect, [&](LeftEvent told) { late.set_value(std::move(told)); });
    return left ? left->fault : late.get_future().get().fault;
  }

  const TempDir folder_;
  const std::shared_ptr<ThrowingState> state_ = std::make_shared<ThrowingState>(folder_.file("state.db"));
  std::optional<LaneScheduler> lanes_;
};

class ThrowingCall : public LanesOnAThrowingState, public testing::WithParamInterface<Method> {};

TEST_P(ThrowingCall, IsUnavailableForItsClaimAndTheNextGetsIn) {
  state_->throws = GetParam();
  const auto fault = write(claim_of("a", 1));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::unavailable);
  EXPECT_EQ(state_->throws, Method::none);
  EXPECT_FALSE(write(claim_of("a", 2)));
  EXPECT_EQ(lanes_->figures().waiting, 0U);
}

INSTANTIATE_TEST_SUITE_P(Methods, ThrowingCall,
                         testing::Values(Method::mark_open, Method::show, Method::advance));

TEST_F(LanesOnAThrowingState, ARevokeThatThrowsIsAnsweredAndTheNextClosesTheFence) {
  EXPECT_FALSE(write(claim_of("a", 1)));
  const auto revoke = [&] {
    return wait_for<FenceView>(
        [&](Done<FenceView> done) { (*lanes_).revoke(Resource{"a"}, std::nullopt, std::move(done)); });
  };
  state_->throws = Method::revoke;
  EXPECT_THROW((void)revoke(), Unavailable);
  EXPECT_TRUE(revoke().record->closed);
}

TEST_F(LanesOnAThrowingState, ASequenceWhoseRecordThrowsIsUnknownAndRecordedLater) {
  const auto claim = claim_of("a", 1).with(Sequence{7});
  state_->throws = Method::record;
  const auto fault = write(claim);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::unknown);
  for (;;) {
    const Entry again = ask(lanes_->new_ticket(), Kind::write, claim);
    if (std::holds_alternative<FailedEvent>(again)) continue;
    ASSERT_TRUE(std::holds_alternative<RefusedEvent>(again));
    EXPECT_EQ(std::get<RefusedEvent>(again).ruling.verdict, Verdict::duplicate);
    break;
  }
}

}  // namespace
}  // namespace fenceguard::test
