#pragma once

// PendingRequest: one request that a handler has, seen from the handler's side. It is the Caller, it is what
// a Reply leads to, and it counts the request as in flight. It outlives its session, and its server, for as
// long as the handler holds it; it then leads nowhere. Forgotten without a reply, it answers for the handler,
// so that no connection waits for ever.
//
// Thread safety: reply(), watch() and the destructor from any thread, tell_gone() from the loop's.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "server/http/net.hpp"
#include "server/http/wire/message.hpp"
#include "server/net/loop.hpp"

namespace fenceguard::http {

class PendingRequest final : public Caller, public std::enable_shared_from_this<PendingRequest> {
 public:
  // The session that handed it out. number tells a late call for an earlier request from one for the present.
  class Owner {
   public:
    virtual ~Owner() = default;
    [[nodiscard]] virtual bool is_waiting(std::uint64_t number) const noexcept = 0;
    [[nodiscard]] virtual bool is_dispatching(std::uint64_t number) const noexcept = 0;
    virtual void take_answer(Response& response) = 0;
    virtual void take_failure(std::uint64_t number, std::string_view why) = 0;
    virtual void watch(std::uint64_t number) = 0;
  };

  // number: which request of the session this is.
  PendingRequest(std::shared_ptr<Loop> loop, std::weak_ptr<Owner> session, std::uint64_t number);
  ~PendingRequest() override;
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  void watch(std::function<void()> gone) override;
  // The second and every later call does nothing.
  void reply(Response response);
  // The client went away: calls what watch() was given, now or later.
  void tell_gone();

 private:
  // Hands response to the session, which may be over by then.
  static void deliver(const std::weak_ptr<Owner>& session, std::uint64_t number, Response response);

  // What watch() was given may hold the reply, and with it this exchange.
  void forget_gone();

  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<Owner> session_;
  const std::uint64_t number_;
  std::atomic<bool> is_answered_{false};

  std::mutex mutex_;  // guards the rest
  std::function<void()> gone_;
  bool is_gone_ = false;
};

}  // namespace fenceguard::http
