#pragma once

// EarlyWatch: while bytes wait to be taken by the upstream, notices that the upstream speaks or goes away,
// and ends the wait. In the clear only: under TLS, what comes need not be an answer.
//
// Thread safety: the loop's thread only.

#include <memory>

#include "guard/http/channel.hpp"

namespace fenceguard::proxy {

class EarlyWatch {
 public:
  // channel outlives the watch. Nothing else reads from it meanwhile.
  explicit EarlyWatch(http::Channel& channel);
  // REQUIRES: nothing waits on the channel.
  ~EarlyWatch();
  EarlyWatch(const EarlyWatch&) = delete;
  EarlyWatch& operator=(const EarlyWatch&) = delete;

  [[nodiscard]] bool has_fired() const noexcept { return state_ && state_->has_fired; }

 private:
  struct State {
    http::Channel* channel;
    bool has_fired = false;
  };
  std::shared_ptr<State> state_;  // the wait's too, which ends later than the watch
};

}  // namespace fenceguard::proxy
