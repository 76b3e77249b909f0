#pragma once

// Wakeup: lets a coroutine wait until other code on its thread wakes it. (Asio's any_completion_handler,
// which would hold the coroutine, constructs itself without end in Boost 1.81.)
//
// Thread safety: the loop's thread only.

#include <memory>
#include <utility>

#include "server/net/net.hpp"

namespace fenceguard::net {

class Wakeup {
 public:
  // Suspends the coroutine until wake(). One coroutine at a time. It must look again at what it waits for:
  // any wake() may have been meant for something else, and none is remembered.
  [[nodiscard]] auto wait() {
    return asio::async_initiate<const asio::deferred_t, void()>(
        [this](auto handler) { waiting_ = std::make_unique<Waiting<decltype(handler)>>(std::move(handler)); },
        asio::deferred);
  }

  // Resumes the coroutine, inside this call, if one waits.
  void wake() {
    if (const auto waiting = std::exchange(waiting_, nullptr)) waiting->resume();
  }

 private:
  struct Resumable {
    virtual ~Resumable() = default;
    virtual void resume() = 0;
  };

  template <class Handler>
  struct Waiting final : Resumable {
    explicit Waiting(Handler resumed) : handler{std::move(resumed)} {}
    void resume() override { std::move(handler)(); }
    Handler handler;
  };

  std::unique_ptr<Resumable> waiting_;
};

}  // namespace fenceguard::net
