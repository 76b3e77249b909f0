#pragma once

// Proxy: stands between clients and a server of 127.0.0.1, so that a test can cut a connection at a chosen
// byte, cut all of them, or stop passing anything on, as a broken network does.
//
// Thread-safe. The filter is called on the proxy's own thread.

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/process/loopback.hpp"

namespace fenceguard::test {

class Proxy {
 public:
  enum class Direction { to_server, to_client };
  // How many bytes of this piece are passed on; fewer than all of them, or all_and_cut: then the connection
  // is cut, with what was sent before still on its way. connection counts from 0. byte_cut.hpp and
  // message_cut.hpp have filters.
  using Filter = std::function<std::size_t(std::size_t connection, Direction, std::string_view piece)>;

  static constexpr std::size_t all_and_cut = ~std::size_t{0};
  // The connection is cut towards its client, and the piece is on its way until arrive().
  static constexpr std::size_t late = all_and_cut - 1;

  static constexpr std::size_t buffer_bytes = 16'384;

  // piece_bytes_max, at most buffer_bytes: a filter that acts on a message's bytes acts before the message's
  // end, and after the end of the one before it.
  explicit Proxy(int server_port, Filter filter = {}, std::size_t piece_bytes_max = buffer_bytes);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] int port() const noexcept { return listener_.port(); }
  // Connections that were accepted so far.
  [[nodiscard]] std::size_t connections() const noexcept { return accepted_; }

  // open: passes on. closed: cuts every connection, and each new one at once. silent: keeps them, and
  // accepts, but passes nothing on, and loses nothing.
  enum class Way { open, closed, silent };
  // Returns once nothing is done in the old way any more; from the filter at once.
  void set(Way way);
  // What is late is sent to the server.
  void arrive();
  // Connections that come from now on lead to another server.
  void lead_to(int server_port) { server_port_ = server_port; }

 private:
  struct Pair {
    std::size_t number;
    int client;
    int server;
  };

  void run(const std::stop_token& stop);
  void accept_one();
  [[nodiscard]] bool pass(const Pair& pair, Direction direction);
  static void close_both(const Pair& pair);
  void keep(const Pair& pair, std::string_view piece);

  std::atomic<int> server_port_;
  const Filter filter_;
  const std::size_t piece_bytes_max_;
  Loopback listener_;
  std::atomic<Way> way_{Way::open};
  std::atomic<std::size_t> turn_{0};  // of run()
  std::atomic<std::size_t> accepted_{0};
  std::vector<Pair> pairs_;  // of the thread
  std::mutex late_mutex_;
  std::vector<std::pair<int, std::string>> late_;  // connections to the server, and what they are sent
  std::jthread thread_;
};

}  // namespace fenceguard::test
