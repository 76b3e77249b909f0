#include "adapters/http/early_watch.hpp"

namespace fenceguard::proxy {

EarlyWatch::EarlyWatch(http::Channel& channel) {
  if (channel.is_tls()) return;
  state_ = std::make_shared<State>(State{&channel});
  channel.socket().async_wait(http::Socket::wait_read,
                              [state = state_](const boost::system::error_code& error) {
                                if (error || state->channel == nullptr) return;
                                state->has_fired = true;
                                state->channel->cancel();
                              });
}

EarlyWatch::~EarlyWatch() {
  if (!state_) return;
  auto* channel = std::exchange(state_->channel, nullptr);
  if (!state_->has_fired && channel->is_open()) channel->cancel();
}

}  // namespace fenceguard::proxy
