#pragma once

// A proxy before a server that breaks connections at a chosen statement. The first message of a client that
// holds the word is handed on or not, and its connection is then closed before the client hears of the
// answer.
//
// Thread-safe.

#include <mutex>
#include <optional>
#include <string>

#include "tests/process/proxy.hpp"

namespace fenceguard::postgres::test {

class Proxy {
  using Tcp = fenceguard::test::Proxy;

 public:
  explicit Proxy(int server_port)
      : proxy_{server_port, [this](std::size_t connection, Tcp::Direction direction, std::string_view piece) {
                 return pass(connection, direction, piece);
               }} {}

  [[nodiscard]] int port() const noexcept { return proxy_.port(); }

  enum class Cut { before_server_sees_it, after_server_answered };
  // Breaks the next connection that sends the word, once.
  void cut_at(std::string word, Cut cut) {
    const std::scoped_lock lock{mutex_};
    word_ = std::move(word);
    cut_ = cut;
  }

 private:
  std::size_t pass(std::size_t connection, Tcp::Direction direction, std::string_view piece) {
    const std::scoped_lock lock{mutex_};
    if (direction == Tcp::Direction::to_client) return connection == unanswered_ ? 0 : piece.size();
    if (word_.empty() || piece.find(word_) == piece.npos) return piece.size();
    word_.clear();
    if (cut_ == Cut::before_server_sees_it) return 0;
    unanswered_ = connection;
    return piece.size();
  }

  std::mutex mutex_;  // guards the following
  std::string word_;
  Cut cut_{};
  std::optional<std::size_t> unanswered_;
  Tcp proxy_;
};

}  // namespace fenceguard::postgres::test
