#include "adapters/postgres/session.hpp"

#include <sys/socket.h>

#include "adapters/postgres/fences/schema.hpp"
#include "adapters/postgres/pqxx_versions.hpp"

namespace fenceguard::postgres {
namespace {

// A peer that is gone without a word is noticed within about 15 s.
constexpr std::pair<const char*, const char*> limits[] = {{"keepalives_idle", "5"},
                                                          {"keepalives_interval", "3"},
                                                          {"keepalives_count", "3"},
                                                          {"tcp_user_timeout", "15000"}};

}  // namespace

Address address_with_limits(Url url, std::initializer_list<std::string_view> own) {
  std::string shown = url.redacted();
  for (const auto& [name, value] : limits) url.parameters.try_emplace(name, value);
  Address address = address_of(url, own);
  address.shown = std::move(shown);
  return address;
}

Session::Running::Running(Session& running) : session{running} {
  const std::scoped_lock lock{session.mutex_};
  session.running_since_ = BootClock::now();
}

Session::Running::~Running() {
  const std::scoped_lock lock{session.mutex_};
  session.running_since_.reset();
}

void Session::break_off_after(std::chrono::milliseconds limit) {
  const std::scoped_lock lock{mutex_};
  if (socket_ < 0 || !running_since_ || BootClock::now() - *running_since_ < limit) return;
  ::shutdown(socket_, SHUT_RDWR);
}

std::unique_ptr<pqxx::work> Session::begin(Needs needs) {
  const bool was_open = connection_ != nullptr;
  if (!was_open) open();
  try {
    auto tx = std::make_unique<pqxx::work>(*connection_);
    tx->exec(std::string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "} + hear_warnings_sql);
    if (needs == Needs::fences && !is_checked_) {
      require_installed(*tx);
      is_checked_ = true;
    }
    return tx;
  } catch (const pqxx::failure&) {
    if (!was_open || connection_->is_open()) throw;
  }
  // It broke while it was idle: nothing was asked on it.
  close();
  return begin(needs);
}

void Session::open() {
  connection_ = connect(address_);
  quiet_ = std::make_unique<Quiet>(*connection_);
  is_checked_ = false;
  const std::scoped_lock lock{mutex_};
  socket_ = connection_->sock();
}

void Session::close() {
  {
    const std::scoped_lock lock{mutex_};
    socket_ = -1;
  }
  quiet_.reset();
  connection_.reset();
}

}  // namespace fenceguard::postgres
