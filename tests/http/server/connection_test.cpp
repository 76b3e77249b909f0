// A deadline that has passed ends every wait, not only the one that it happened to meet.

#include "server/net/connection.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

using Arrival = Connection::Arrival;

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    int ends[2];
    ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    peer_ = ends[1];
    Socket socket{loop_->context()};
    socket.assign(asio::generic::stream_protocol{AF_UNIX, 0}, ends[0]);
    connection_.emplace(*loop_, Transport{std::move(socket)});
  }
  ~ConnectionTest() override { ::close(peer_); }

  void say(std::size_t bytes) const {
    const std::string data(bytes, 'x');
    EXPECT_EQ(::send(peer_, data.data(), bytes, MSG_DONTWAIT), static_cast<ssize_t>(bytes));
  }
  // Its work, up to where it waits.
  void run() const {
    loop_->context().restart();
    loop_->context().poll();
  }

  std::shared_ptr<Loop> loop_ = std::make_shared<Loop>();
  std::optional<Connection> connection_;
  int peer_ = -1;
};

TEST_F(ConnectionTest, ADeadlineThatPassesBetweenTwoWaitsEndsTheNextOne) {
  std::vector<Arrival> seen;
  const auto wait_once = [&]() -> Task<void> {
    const auto read = co_await connection_->fill();
    seen.push_back(connection_->filled(read));
  };
  const auto now = std::chrono::steady_clock::now() + 1s;
  connection_->set_deadline(0ms);
  connection_->expire(now);  // meets no wait
  asio::co_spawn(loop_->context(), wait_once(), asio::detached);
  run();
  EXPECT_TRUE(seen.empty());
  ASSERT_LT(connection_->deadline(), now + 1s);
  connection_->expire(now + 1s);
  run();
  EXPECT_EQ(seen, std::vector<Arrival>{Arrival::late});
  connection_->set_deadline(1h);
  EXPECT_FALSE(connection_->is_late());
}

TEST_F(ConnectionTest, ALingerEndsAtItsDeadlineAlsoWhereDataIsAlwaysThere) {
  bool is_over = false;
  const auto linger = [&]() -> Task<void> {
    co_await connection_->linger();
    is_over = true;
  };
  say(100'000);
  asio::co_spawn(loop_->context(), linger(), asio::detached);
  loop_->context().run_one();
  loop_->context().run_one();
  // The present read is done, and nobody has been told: the cancel meets nothing.
  connection_->expire(std::chrono::steady_clock::now() + 1h);
  EXPECT_FALSE(is_over);
  run();
  EXPECT_TRUE(is_over);
}

}  // namespace
}  // namespace fenceguard::http
