#pragma once

// FastSession: a session while no coroutine runs for it: between requests, and during those of the fast path
// (fast_path.hpp). Its socket is the loop's poller's then. Limits, deadlines, drain and cut are the
// session's, as with a coroutine.
//
// Thread safety: the loop's thread only.

#include <cstddef>
#include <memory>
#include <string>

#include "server/http/fast_path.hpp"
#include "server/http/limits.hpp"
#include "server/http/stream.hpp"
#include "server/net/connection.hpp"
#include "server/net/poller.hpp"

namespace fenceguard::http {

class FastSession final : public net::Poller::Watcher, public net::Poller::Deferred, public FastClient {
 public:
  // The session that it is of.
  class Owner {
   public:
    enum class Next { request, linger, end };

    virtual ~Owner() = default;
    [[nodiscard]] virtual std::shared_ptr<void> keep_alive() = 0;
    [[nodiscard]] virtual net::Connection& connection() noexcept = 0;
    [[nodiscard]] virtual const Limits& limits() const noexcept = 0;
    // Null: all is for the coroutine.
    [[nodiscard]] virtual StreamHandler* fast_handler() const noexcept = 0;
    [[nodiscard]] virtual const std::string& peer() const noexcept = 0;
    [[nodiscard]] virtual bool is_local() const noexcept = 0;
    [[nodiscard]] virtual bool is_tls() const noexcept = 0;
    // It serves at most what has come.
    [[nodiscard]] virtual bool is_ending() const noexcept = 0;
    // It is among those that wait for a request, or no longer.
    virtual void begin_waiting() = 0;
    virtual void stop_waiting() = 0;
    // request, which has come to its end, is the present one.
    virtual void begin_plain(const PlainRequest& request) noexcept = 0;
    // Takes the head of the present one over, for a coroutine, and out of the connection's buffer.
    virtual void keep_plain(const PlainRequest& request) = 0;
    [[nodiscard]] virtual Framing frame(bool closes) = 0;
    [[nodiscard]] virtual std::string& out() noexcept = 0;
    [[nodiscard]] virtual Next next_after_answer(bool is_sent) noexcept = 0;
    // Goes on in a coroutine, with the request that was kept or the next one. Or first of all with the rest
    // of the present answer, which is in out().
    virtual void spawn(bool owes_answer) noexcept = 0;
    virtual void finish() = 0;
  };

  // owner outlives it.
  explicit FastSession(Owner& owner) : owner_{owner} {}

  // Takes the connection over before its next request, and keeps the session alive; its coroutine must end
  // then. False: that goes on, because the handler has no fast path, the connection ends, or its requests are
  // not plain.
  [[nodiscard]] bool enter();
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  // A coroutine has begun, or the session is over: it need not be kept alive from here any more.
  [[nodiscard]] std::shared_ptr<void> let_go() noexcept { return std::move(kept_); }

  // Has it look soon at what has changed: the deadline, a drain, a cut.
  void wake() noexcept;

  [[nodiscard]] FastExchangePtr take_begun() noexcept { return std::move(exchange_); }

  // As a watcher, and as an action.
  void ready(bool has_ended) noexcept override;
  void run_deferred() noexcept override;

  // As a client.
  [[nodiscard]] net::Loop& loop() noexcept override;
  [[nodiscard]] const std::string& peer() const noexcept override;
  [[nodiscard]] bool is_local() const noexcept override;
  [[nodiscard]] bool is_tls() const noexcept override;
  [[nodiscard]] Framing frame_answer() override;
  [[nodiscard]] std::string& out() noexcept override;
  void send_answer(std::string_view body) noexcept override;
  void fall_back() noexcept override;

 private:
  // Each of these may end the session, and this with it.
  void next();
  void read();
  void serve();
  void end_answer(bool is_sent) noexcept;
  // Has a coroutine serve the present request, which was read. is_odd: so it may be with the next ones.
  void give_up(const PlainRequest& request, bool is_odd);
  void skip_some() noexcept;

  void wait();
  [[nodiscard]] bool is_last() const noexcept;
  [[nodiscard]] bool send(std::string_view& head, std::string_view& body);
  // Gives the connection to a coroutine.
  void leave(bool owes_answer) noexcept;

  Owner& owner_;
  std::shared_ptr<void> kept_;
  FastExchangePtr exchange_;
  std::size_t request_bytes_ = 0;  // of the one that was begun, which stays in the buffer
  unsigned slow_left_ = 0;         // requests that a coroutine serves before it is tried again
  unsigned fall_backs_ = 0;        // since the last answer
  bool is_on_ = false;
  bool is_idle_ = false;      // waits for the first byte of a request
  bool is_readable_ = false;  // something may be in the socket
  bool has_ended_ = false;    // and nothing comes behind it
};

}  // namespace fenceguard::http
