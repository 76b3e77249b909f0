// What the guard itself fails at. Once a write was let in its client is told that the outcome is unknown, and
// the lane closes first; one that waits to be let in is withdrawn.

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <future>
#include <new>

#include "adapters/sqlite/storage.hpp"
#include "server/proxy/proxied_request.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::proxy {
namespace {

using test::Upstream;
using namespace std::chrono_literals;

// A PUT that fails where it is read on or watched, as it does where no memory is left.
class FailingStream : public http::Stream {
 public:
  FailingStream(net::Loop& loop, std::int64_t token) : loop_{loop} {
    for (const auto& [name, value] : test::claim(token, {{"Host", "guard"}}))
      request_.fields.add(name, value);
  }
  std::optional<http::Response> answer;

  const http::Request& request() const noexcept override { return request_; }
  bool has_body() const noexcept override { return true; }
  std::optional<std::uint64_t> body_bytes() const noexcept override { return 1'000'000; }
  bool expects_continue() const noexcept override { return false; }
  bool is_tls() const noexcept override { return false; }
  const std::string& peer() const noexcept override { return peer_; }
  net::Loop& loop() noexcept override { return loop_; }
  bool take_whole_body(std::string&) override { return false; }
  net::Task<http::Piece> read_body(std::string& out, std::size_t bytes_max) override {
    if (++pieces_ > 1) throw std::bad_alloc{};
    out.append(bytes_max, 'x');
    co_return http::Piece::some;
  }
  void limit_body(std::chrono::milliseconds, net::SteadyTime) override {}
  http::Response refused() const override { return {}; }
  net::Task<bool> respond(http::Response response) override {
    answer = std::move(response);
    co_return true;
  }
  net::Task<bool> begin(http::Response, std::optional<std::uint64_t>) override { co_return false; }
  net::Task<bool> write(std::string_view) override { co_return false; }
  net::Task<bool> finish() override { co_return false; }
  void limit_write(std::chrono::milliseconds) override {}
  void watch(std::function<void()>) override { throw std::bad_alloc{}; }
  net::Task<void> stop_watching() override { co_return; }

 private:
  net::Loop& loop_;
  http::Request request_{"PUT", "/a", {}, {}, false};
  const std::string peer_ = "192.0.2.7";
  int pieces_ = 0;
};

class FailingFlowTest : public testing::Test {
 protected:
  FailingFlowTest() {
    StorageOptions fresh;
    fresh.initialise = true;
    lane_.state = sqlite::open_storage(folder_.file("state.db"), fresh);
    lane_.is_settled = true;
    lanes_.emplace(lane_, 0, 10);
    options_ = UpstreamOptions::from(Url::parse(upstream_.url()), lane_);
  }
  // Runs a flow to its end, and tells what it threw.
  std::exception_ptr run(FailingStream& stream) {
    const ServiceContext context{.metrics = metrics_, .log = log_, .limits = {}};
    UpstreamPool pool{*options_, loop_};
    ProxiedRequest flow{context, *lanes_, pool, stream};
    std::exception_ptr thrown;
    net::asio::co_spawn(loop_->context(), flow.run(), [&](const std::exception_ptr& failure) {
      thrown = failure;
      loop_->context().stop();
    });
    const auto work = net::asio::make_work_guard(loop_->context());
    loop_->context().run_for(http::patience);
    // The loop of a server goes on.
    loop_->context().restart();
    return thrown;
  }
  [[nodiscard]] Ask write(std::int64_t token) {
    return {lanes_->new_ticket(), Kind::write, {{Resource{"a"}, Token{token}, Holder{"h"}, std::nullopt}}};
  }
  // Lets a write in that waits for nothing but the store.
  Ticket enter(std::int64_t token) {
    std::promise<Entry> late;
    Ask ask = write(token);
    const Ticket ticket = ask.ticket;
    auto entry = lanes_->enter(std::move(ask), [&](Entry told) { late.set_value(std::move(told)); });
    if (!entry) entry = late.get_future().get();
    EXPECT_TRUE(std::holds_alternative<EnteredEvent>(*entry)) << token;
    return ticket;
  }

  const test::TempDir folder_;
  const Upstream upstream_;
  LaneOptions lane_;
  std::optional<LaneScheduler> lanes_;
  Metrics metrics_{"http"};
  RefusalLog log_;
  std::optional<UpstreamOptions> options_;
  const std::shared_ptr<net::Loop> loop_ = std::make_shared<net::Loop>();
};

TEST_F(FailingFlowTest, AFailureAfterAWriteWasLetInIsAnUnknownOutcome) {
  (void)lanes_->leave(enter(1), Ending::took_effect, {});
  FailingStream stream{*loop_, 1};
  EXPECT_FALSE(run(stream));
  ASSERT_TRUE(stream.answer);
  EXPECT_EQ(stream.answer->status, 500U);
  EXPECT_EQ(test::verdict(*stream.answer), "unknown");
  EXPECT_EQ(lanes_->figures().closed, 1U);
  EXPECT_EQ(lanes_->figures().in_flight, 0U);
}

TEST_F(FailingFlowTest, AFailureWhileAWriteWaitsToBeLetInWithdrawsIt) {
  const Ticket lower = enter(1);
  // The fence is at 2, so that nothing but the write of 1 is waited for.
  Ask raised = write(2);
  const Ticket raising = raised.ticket;
  EXPECT_FALSE(lanes_->enter(std::move(raised), [](const Entry&) {}));
  EXPECT_TRUE(http::eventually([&] { return lanes_->is_overtaken(Resource{"a"}, Token{1}); }));
  FailingStream stream{*loop_, 2};
  EXPECT_TRUE(run(stream));
  EXPECT_TRUE(lanes_->withdraw(raising));
  EXPECT_EQ(lanes_->figures().waiting, 0U);
  (void)lanes_->leave(lower, Ending::took_effect, {});
  EXPECT_EQ(lanes_->figures().in_flight, 0U);
  (void)lanes_->leave(enter(3), Ending::took_effect, {});
}

}  // namespace
}  // namespace fenceguard::proxy
