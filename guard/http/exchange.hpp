#pragma once

// Exchange: one request that a handler has, seen from the handler's side. It is the Caller, it is what a
// Reply leads to, and it counts the request as in flight. It outlives its session, and its server, for as
// long as the handler holds it; it then leads nowhere. Forgotten without a reply, it answers for the handler,
// so that no connection waits for ever.
//
// Thread safety: reply(), watch() and the destructor from any thread, tell_gone() from the loop's.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "guard/http/loop.hpp"
#include "guard/http/message.hpp"

namespace fenceguard::http {

class Exchange final : public Caller, public std::enable_shared_from_this<Exchange> {
 public:
  // number: which request of the session this is.
  Exchange(std::shared_ptr<Loop> loop, std::weak_ptr<Session> session, std::uint64_t number);
  ~Exchange() override;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void watch(std::function<void()> gone) override;
  // The second and every later call does nothing.
  void reply(Response response);
  // The client went away: calls what watch() was given, now or later.
  void tell_gone();

 private:
  // Hands response to the session, which may be over by then.
  static void deliver(const std::weak_ptr<Session>& session, std::uint64_t number, Response response);

  // What watch() was given may hold the reply, and with it this exchange.
  void forget_gone();

  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<Session> session_;
  const std::uint64_t number_;
  std::atomic<bool> is_answered_{false};

  std::mutex mutex_;  // guards the rest
  std::function<void()> gone_;
  bool is_gone_ = false;
};

// Calls action, which belongs to a handler, and swallows what it throws: a loop goes on for its other
// connections.
void call_safely(const std::function<void()>& action) noexcept;

}  // namespace fenceguard::http
