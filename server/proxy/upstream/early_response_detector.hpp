#pragma once

// EarlyResponseDetector: while bytes wait to be taken by the upstream, notices that the upstream speaks or
// goes away, and ends the wait. In the clear only: under TLS, what comes need not be an answer.
//
// Thread safety: the loop's thread only.

#include <memory>

#include "server/net/transport.hpp"

namespace fenceguard::proxy {

class EarlyResponseDetector {
 public:
  // transport outlives the watch. Nothing else reads from it meanwhile.
  explicit EarlyResponseDetector(net::Transport& transport);
  // REQUIRES: nothing waits on the transport.
  ~EarlyResponseDetector();
  EarlyResponseDetector(const EarlyResponseDetector&) = delete;
  EarlyResponseDetector& operator=(const EarlyResponseDetector&) = delete;

  [[nodiscard]] bool has_fired() const noexcept { return state_ && state_->has_fired; }

 private:
  struct State {
    net::Transport* transport;
    bool has_fired = false;
  };
  std::shared_ptr<State> state_;  // the wait's too, which ends later than the watch
};

}  // namespace fenceguard::proxy
