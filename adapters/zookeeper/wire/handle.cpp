#include "adapters/zookeeper/wire/handle.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace fenceguard::zookeeper {
namespace {

using State = SessionState;

// Of all sessions of this process.
std::atomic<std::uint64_t> last_generation{0};

void no_log(const char* /*message*/) {}

State state_of(int state) {
  if (state == ZOO_CONNECTED_STATE) return State::connected;
  if (state == ZOO_EXPIRED_SESSION_STATE) return State::expired;
  if (state == ZOO_AUTH_FAILED_STATE) return State::refused;
  return State::connecting;
}

bool is_over(State state) {
  return state == State::expired || state == State::refused;
}

std::string_view word_of(State state) {
  switch (state) {
    case State::connected:
      return "it is connected";
    case State::connecting:
      return "it is not connected";
    case State::expired:
      return "it is over";
    case State::refused:
      return "its credentials were refused";
  }
  return {};
}

}  // namespace

SessionHandle::SessionHandle(const Address& address, std::chrono::milliseconds session_timeout,
                             Listener listener)
    : address_{address}, listener_{std::move(listener)} {
  const auto bounded = std::min<std::int64_t>(session_timeout.count(), std::numeric_limits<int>::max());
  handle_ = zookeeper_init2(address_.hosts.c_str(), on_session, static_cast<int>(bounded), nullptr, this,
                            ZOO_NO_LOG_CLIENTENV, no_log);
  if (handle_ == nullptr) {
    throw Unavailable(
        fmt::format("opening {}: the client could not begin ({}); are the names of its hosts known?",
                    address_.shown, std::generic_category().message(errno)));
  }
  if (address_.user.empty()) return;
  const auto credentials = address_.user + ":" + address_.password;
  // A refusal comes as a change of state.
  const int code = zoo_add_auth(handle_, "digest", credentials.data(), static_cast<int>(credentials.size()),
                                nullptr, nullptr);
  if (code != ZOK) {
    zookeeper_close(handle_);
    raise_fault(fault_of(code, Access::read, "authenticating at " + address_.shown));
  }
}

SessionHandle::~SessionHandle() {
  {
    const std::scoped_lock lock{mutex_};
    is_closing_ = true;
  }
  zookeeper_close(handle_);
  // The C client's threads are gone; not all of what it took off its list was answered.
  for (const auto& [key, call] : calls_) call->fail(fault_of(ZCLOSING, call->access, call->doing));
  end_watches();
}

SessionState SessionHandle::state() const {
  const std::scoped_lock lock{mutex_};
  return state_;
}

std::uint64_t SessionHandle::generation() const {
  const std::scoped_lock lock{mutex_};
  return generation_;
}

bool SessionHandle::connects_within(std::chrono::milliseconds wait) const {
  std::unique_lock lock{mutex_};
  changed_.wait_until(lock, std::chrono::steady_clock::now() + wait,
                      [this] { return state_ != State::connecting; });
  return state_ == State::connected;
}

void SessionHandle::require_connected() const {
  const auto state = this->state();
  if (state == State::connected) return;
  if (state == State::refused) {
    throw Unavailable(
        fmt::format("opening {}: the credentials were refused; do the servers take digest "
                    "authentication?",
                    address_.shown));
  }
  if (state == State::expired) {
    throw Unavailable(fmt::format("the session at {} is over", address_.shown));
  }
  throw Unavailable(
      fmt::format("opening {}: no server of {} took a session within {} ms; do they run, and have they a "
                  "quorum? (echo srvr "
                  "| nc HOST PORT)",
                  address_.shown, address_.hosts, address_.timeout.count()));
}

const ACL_vector* SessionHandle::acl() const noexcept {
  static ACL readable[] = {{ZOO_PERM_ALL, ZOO_AUTH_IDS}, {ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE}};
  static const ACL_vector readable_acl{2, readable};
  if (address_.acl == Acl::open) return &ZOO_OPEN_ACL_UNSAFE;
  return address_.acl == Acl::read ? &readable_acl : &ZOO_CREATOR_ALL_ACL;
}

std::uintptr_t SessionHandle::add_watch(Watch watch) {
  if (!watch) return 0;
  const std::scoped_lock lock{mutex_};
  watches_.emplace(++last_watch_, std::move(watch));
  return last_watch_;
}

// Of a node's watch the C client tells every change of the session's state as well, which on_session() hears.
void SessionHandle::on_watch(zhandle_t* handle, int type, int /*state*/, const char* /*path*/, void* number) {
  if (type == ZOO_SESSION_EVENT) return;
  // zoo_get_context() takes no const handle.
  auto& self = *static_cast<SessionHandle*>(const_cast<void*>(zoo_get_context(handle)));
  Watch watch;
  {
    const std::scoped_lock lock{self.mutex_};
    const auto found = self.watches_.find(reinterpret_cast<std::uintptr_t>(number));
    if (found == self.watches_.end()) return;
    watch = std::move(found->second);
    self.watches_.erase(found);
  }
  watch(type == ZOO_DELETED_EVENT);
}

void SessionHandle::on_session(zhandle_t* /*handle*/, int type, int state, const char* /*path*/, void* self) {
  if (type == ZOO_SESSION_EVENT) static_cast<SessionHandle*>(self)->changed_to(state_of(state));
}

void SessionHandle::changed_to(State state) {
  {
    const std::scoped_lock lock{mutex_};
    if (is_closing_ || state == state_) return;
    state_ = state;
    generation_ = state == State::connected ? ++last_generation : 0;
    changed_.notify_all();
  }
  if (listener_) listener_(state);
  if (is_over(state)) end_watches();
}

void SessionHandle::end_watches() {
  std::map<std::uintptr_t, Watch> watches;
  {
    const std::scoped_lock lock{mutex_};
    watches.swap(watches_);
  }
  for (const auto& [number, watch] : watches) watch(false);
}

// False: it has failed, because the session is not connected, or not by the connection that was asked for.
bool SessionHandle::keep(std::unique_ptr<Call> call) {
  std::unique_lock lock{mutex_};
  const bool is_pinned_elsewhere = call->generation && call->generation != generation_;
  if (state_ == State::connected && !is_pinned_elsewhere) {
    const auto* key = call.get();
    calls_.emplace(key, std::move(call));
    return true;
  }
  watches_.erase(call->watch);
  const auto state = state_;
  lock.unlock();
  const auto why = state == State::connected ? "its connection is another by now; try again" : word_of(state);
  call->fail({FaultKind::unavailable, fmt::format("{}: the session cannot be used, {}", call->doing, why)});
  return false;
}

std::unique_ptr<SessionHandle::Call> SessionHandle::take(Call& call, int code) {
  std::unique_ptr<Call> kept;
  Watch absent;
  {
    const std::scoped_lock lock{mutex_};
    // A failed call set no watch.
    const bool is_set = code == ZOK || (code == ZNONODE && call.watches_absent);
    if (!is_set) {
      auto watch = watches_.extract(call.watch);
      if (code == ZNONODE && !watch.empty()) absent = std::move(watch.mapped());
    }
    auto found = calls_.extract(&call);
    kept = std::move(found.mapped());
  }
  if (absent) absent(true);
  return kept;
}

void SessionHandle::not_sent(Call& call, int code) {
  const auto kept = take(call, code);
  call.fail(fault_of(code, call.access, call.doing));
}

}  // namespace fenceguard::zookeeper
