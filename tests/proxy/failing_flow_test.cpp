// What the guard itself fails at, once a write was let in: its client is told that the outcome is unknown,
// and the lane closes first.

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <new>

#include "adapters/http/flow.hpp"
#include "adapters/sqlite/storage.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream.hpp"

namespace fenceguard::proxy {
namespace {

using test::Upstream;
using namespace std::chrono_literals;

// A PUT whose body fails within, as it does where no memory is left.
class FailingStream : public http::Stream {
 public:
  explicit FailingStream(http::Loop& loop) : loop_{loop} {
    for (const auto& [name, value] : test::claim(1, {{"Host", "guard"}})) request_.fields.add(name, value);
  }
  std::optional<http::Response> answer;

  const http::Request& request() const noexcept override { return request_; }
  bool has_body() const noexcept override { return true; }
  std::optional<std::uint64_t> body_bytes() const noexcept override { return 1'000'000; }
  bool expects_continue() const noexcept override { return false; }
  bool is_tls() const noexcept override { return false; }
  const std::string& peer() const noexcept override { return peer_; }
  http::Loop& loop() noexcept override { return loop_; }
  bool take_whole_body(std::string&) override { return false; }
  http::Task<http::Piece> read_body(std::string& out, std::size_t bytes_max) override {
    if (++pieces_ > 1) throw std::bad_alloc{};
    out.append(bytes_max, 'x');
    co_return http::Piece::some;
  }
  void limit_body(std::chrono::milliseconds, http::SteadyTime) override {}
  http::Response refused() const override { return {}; }
  http::Task<bool> respond(http::Response response) override {
    answer = std::move(response);
    co_return true;
  }
  http::Task<bool> begin(http::Response, std::optional<std::uint64_t>) override { co_return false; }
  http::Task<bool> write(std::string_view) override { co_return false; }
  http::Task<bool> finish() override { co_return false; }
  void limit_write(std::chrono::milliseconds) override {}
  void watch(std::function<void()>) override {}
  http::Task<void> stop_watching() override { co_return; }

 private:
  http::Loop& loop_;
  http::Request request_{"PUT", "/a", {}, {}, false};
  const std::string peer_ = "192.0.2.7";
  int pieces_ = 0;
};

TEST(FailingFlowTest, AFailureAfterAWriteWasLetInIsAnUnknownOutcome) {
  const test::TempDir folder;
  const Upstream upstream;
  StorageOptions fresh;
  fresh.initialise = true;
  LaneOptions lane;
  lane.state = sqlite::open_storage(folder.file("state.db"), fresh);
  Lanes lanes{lane, 0, 10};
  Metrics metrics{"http"};
  RefusalLog log;
  const ServiceContext context{.metrics = metrics, .log = log, .limits = {}};
  const auto options = UpstreamOptions::from(Url::parse(upstream.url()), lane);
  const auto loop = std::make_shared<http::Loop>();
  UpstreamPool pool{options, loop};
  FailingStream stream{*loop};
  {
    Flow flow{context, lanes, pool, stream};
    std::exception_ptr thrown;
    http::asio::co_spawn(loop->context(), flow.run(), [&](const std::exception_ptr& failure) {
      thrown = failure;
      loop->context().stop();
    });
    const auto work = http::asio::make_work_guard(loop->context());
    loop->context().run_for(http::patience);
    EXPECT_FALSE(thrown);
  }
  ASSERT_TRUE(stream.answer);
  EXPECT_EQ(stream.answer->status, 500U);
  EXPECT_EQ(test::verdict(*stream.answer), "unknown");
  EXPECT_EQ(lanes.figures().closed, 1U);
  EXPECT_EQ(lanes.figures().in_flight, 0U);
}

}  // namespace
}  // namespace fenceguard::proxy
