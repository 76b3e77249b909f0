#include "adapters/zookeeper/client.hpp"

#include <utility>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr std::chrono::milliseconds session_timeout_default{10'000};

bool is_over(Session::State state) {
  return state == Session::State::expired || state == Session::State::refused;
}

}  // namespace

Address address_beside_source(const Url& url) {
  return address_of(url, {"layout", "lock_path"});
}

Client::Client(std::string_view url) : Client{address_beside_source(Url::parse(url))} {}

Client::Client(Address address) : address_{std::move(address)}, paths_{address_.root} {}

std::shared_ptr<Session> Client::living_session() {
  std::shared_ptr<Session> over;  // ends outside of the lock
  const std::scoped_lock lock{mutex_};
  if (session_ && !is_over(session_->state())) return session_;
  over = std::exchange(session_, nullptr);
  session_ = std::make_shared<Session>(address_, address_.session_timeout.value_or(session_timeout_default));
  return session_;
}

Client::Connection Client::connection() {
  auto session = living_session();
  // It may turn out only now that the servers have ended it meanwhile.
  try {
    session->wait_until_connected();
  } catch (const Unavailable&) {
    if (session->state() != Session::State::expired) throw;
    session = living_session();
    session->wait_until_connected();
  }
  const auto generation = session->generation();
  return {std::move(session), generation};
}

}  // namespace fenceguard::zookeeper
