#include "server/proxy/upstream/early_response_detector.hpp"

namespace fenceguard::proxy {

EarlyResponseDetector::EarlyResponseDetector(net::Transport& transport) {
  if (transport.is_tls()) return;
  state_ = std::make_shared<State>(State{&transport});
  transport.socket().async_wait(net::Socket::wait_read,
                                [state = state_](const boost::system::error_code& error) {
                                  if (error || state->transport == nullptr) return;
                                  state->has_fired = true;
                                  state->transport->cancel();
                                });
}

EarlyResponseDetector::~EarlyResponseDetector() {
  if (!state_) return;
  auto* transport = std::exchange(state_->transport, nullptr);
  if (!state_->has_fired && transport->is_open()) transport->cancel();
}

}  // namespace fenceguard::proxy
