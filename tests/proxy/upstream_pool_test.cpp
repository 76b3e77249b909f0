// How connections to the upstream end: with the process, whatever our kernel still holds of what was sent;
// in order, where everything was taken.

#include "server/proxy/upstream/upstream_pool.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <thread>

#include "tests/http/support.hpp"

namespace {
std::atomic<int> option_that_fails{0};  // of TCP
}  // namespace

// In the place of the C library's.
extern "C" int setsockopt(int socket, int level, int name, const void* value, socklen_t bytes) noexcept {
  if (level == IPPROTO_TCP && name == option_that_fails) {
    errno = ENOPROTOOPT;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_setsockopt, socket, level, name, value, bytes));
}

namespace fenceguard::proxy {
namespace {

using namespace std::chrono_literals;

// An upstream that takes little, and nothing unless it is asked to.
class SlowReader {
 public:
  SlowReader() {
    const int bytes = 16 * 1024;
    ::setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 1);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    options_.endpoints.emplace_back(
        net::asio::ip::tcp::endpoint{net::asio::ip::address_v4::loopback(), ntohs(address.sin_port)});
  }
  ~SlowReader() {
    ::close(listener_);
    ::close(connection_);
  }
  SlowReader(const SlowReader&) = delete;
  SlowReader& operator=(const SlowReader&) = delete;

  void accept() { connection_ = ::accept(listener_, nullptr, nullptr); }
  [[nodiscard]] std::size_t bytes_there() const {
    int bytes = 0;
    ::ioctl(connection_, FIONREAD, &bytes);
    return static_cast<std::size_t>(bytes);
  }
  // Slowly, to the end; how it ended: 0 in order, or errno.
  [[nodiscard]] int read_to_end(std::size_t& total) const {
    std::array<char, 4096> piece;
    for (;;) {
      const auto bytes = ::recv(connection_, piece.data(), piece.size(), 0);
      if (bytes <= 0) return bytes == 0 ? 0 : errno;
      total += static_cast<std::size_t>(bytes);
      std::this_thread::sleep_for(1ms);
    }
  }
  [[nodiscard]] const UpstreamOptions& options() const noexcept { return options_; }

 private:
  UpstreamOptions options_;
  int listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int connection_ = -1;
};

net::Task<void> send_all_that_is_taken(UpstreamPool& pool, std::string bytes, std::function<void()> sent) {
  const auto connection = co_await pool.connect(std::chrono::steady_clock::now() + http::patience);
  std::string_view none;
  for (net::Transport::Error error; connection && !error;) {
    std::string_view rest = bytes;
    error = connection->transport().write_now(rest, none);
    if (bytes.size() < 100) break;
  }
  sent();
}

void run_client(const UpstreamOptions& options, const std::string& bytes, std::function<void()> sent) {
  const auto loop = std::make_shared<net::Loop>();
  UpstreamPool pool{options, loop};
  net::asio::co_spawn(loop->context(), send_all_that_is_taken(pool, bytes, std::move(sent)),
                      [&](const std::exception_ptr&) { loop->context().stop(); });
  loop->context().run_for(http::patience);
}

TEST(UpstreamPoolTest, NothingArrivesAfterTheProcessWasKilledHoweverMuchItHadSent) {
  SlowReader upstream;
  std::array<int, 2> full{};
  ASSERT_EQ(::pipe(full.data()), 0);
  const auto child = ::fork();
  if (child == 0) {
    run_client(upstream.options(), std::string(65536, 'x'), [&] {
      (void)!::write(full[1], "f", 1);
      ::pause();
    });
    ::_exit(1);
  }
  upstream.accept();
  char byte = 0;
  ASSERT_EQ(::read(full[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto arrived = upstream.bytes_there();
  std::size_t total = 0;
  EXPECT_EQ(upstream.read_to_end(total), ECONNRESET);
  EXPECT_EQ(total, arrived);
  EXPECT_GT(total, 0U);
  ::close(full[0]);
  ::close(full[1]);
}

// Without it our kernel would go on delivering a request that was given up.
TEST(UpstreamPoolTest, AConnectionWithoutADeliveryTimeoutIsNotUsed) {
  SlowReader upstream;
  const auto is_connected = [&] {
    const auto loop = std::make_shared<net::Loop>();
    UpstreamPool pool{upstream.options(), loop};
    bool is_there = false;
    const auto connect = [&]() -> net::Task<void> {
      const auto connection = co_await pool.connect(std::chrono::steady_clock::now() + http::patience);
      is_there = connection != nullptr;
    };
    net::asio::co_spawn(loop->context(), connect(),
                        [&](const std::exception_ptr&) { loop->context().stop(); });
    loop->context().run_for(http::patience);
    return is_there;
  };
  option_that_fails = TCP_USER_TIMEOUT;
  EXPECT_FALSE(is_connected());
  option_that_fails = 0;
  EXPECT_TRUE(is_connected());
}

TEST(UpstreamPoolTest, AConnectionWhoseBytesWereAllTakenEndsInOrder) {
  SlowReader upstream;
  run_client(upstream.options(), "all", [&] { upstream.accept(); });
  std::size_t total = 0;
  EXPECT_EQ(upstream.read_to_end(total), 0);
  EXPECT_EQ(total, 3U);
}

}  // namespace
}  // namespace fenceguard::proxy
