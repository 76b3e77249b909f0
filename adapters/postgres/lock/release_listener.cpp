#include "adapters/postgres/lock/release_listener.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "adapters/postgres/lock/lease_pool.hpp"
#include "adapters/postgres/pqxx_versions.hpp"

namespace fenceguard::postgres {
namespace {

constexpr std::chrono::seconds reopen_after{1};

int make_eventfd() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error{errno, std::generic_category(), "eventfd"};
  return fd;
}

// Until there is something to read, or the event came.
void wait_for_either(int socket, int event) {
  pollfd both[]{{socket, POLLIN, 0}, {event, POLLIN, 0}};
  (void)poll(both, 2, -1);
}

}  // namespace

ReleaseListener::ReleaseListener(Address address) : address_{std::move(address)}, wake_fd_{make_eventfd()} {}

ReleaseListener::~ReleaseListener() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  close(wake_fd_);
}

void ReleaseListener::run(const std::stop_token& stop) {
  const std::stop_callback wake{stop, [this] {
                                  const std::uint64_t one = 1;
                                  (void)!write(wake_fd_, &one, sizeof one);
                                }};
  while (!stop.stop_requested()) {
    enter(State::opening);
    try {
      listen(stop);
    } catch (const std::exception&) {
      // Lost, or not to be had: the waiting go by the clock meanwhile.
    }
    std::unique_lock lock{mutex_};
    if (state_ == State::useless) return;
    state_ = State::failed;
    changed_.notify_all();
    changed_.wait_until(lock, stop, BootClock::now() + reopen_after, [] { return false; });
    changed_.wait(lock, stop, [this] { return !watches_.empty(); });
  }
}

void ReleaseListener::listen(const std::stop_token& stop) {
  const auto connection = connect(address_);
  if (is_pooled(*connection)) return enter(State::useless);
  {
    pqxx::nontransaction tx{*connection};
    tx.exec(
        "SELECT pg_catalog.set_config('idle_session_timeout', '0', false) "
        "WHERE pg_catalog.current_setting('idle_session_timeout', true) IS NOT NULL");
  }
  const Listener listener{*connection, "fenceguard_released",
                          [this](const std::string& resource) { heard(resource); }};
  enter(State::listening);
  while (!stop.stop_requested() && connection->is_open()) {
    connection->get_notifs();
    if (connection->is_open()) wait_for_either(connection->sock(), wake_fd_);
  }
}

void ReleaseListener::enter(State state) {
  const std::scoped_lock lock{mutex_};
  state_ = state;
  if (state == State::listening) {
    for (auto& [resource, watch] : watches_) watch->heard_ = true;
  }
  changed_.notify_all();
}

void ReleaseListener::heard(const std::string& resource) {
  const std::scoped_lock lock{mutex_};
  const auto [begin, end] = watches_.equal_range(resource);
  std::for_each(begin, end, [](auto& entry) { entry.second->heard_ = true; });
  if (begin != end) changed_.notify_all();
}

ReleaseListener::Watch::Watch(ReleaseListener& releases, const Resource& resource,
                              BootClock::time_point until, std::stop_token stop)
    : listener_{releases}, stop_{std::move(stop)} {
  std::unique_lock lock{listener_.mutex_};
  if (!listener_.thread_.joinable()) {
    listener_.state_ = State::opening;
    listener_.thread_ =
        std::jthread{[&source = listener_](const std::stop_token& over) { source.run(over); }};
  }
  place_ = listener_.watches_.emplace(resource.name(), this);
  listener_.changed_.notify_all();
  listener_.changed_.wait_until(lock, stop_, until, [this] { return listener_.state_ != State::opening; });
}

ReleaseListener::Watch::~Watch() {
  const std::scoped_lock lock{listener_.mutex_};
  listener_.watches_.erase(place_);
}

void ReleaseListener::Watch::wait(BootClock::time_point until) {
  std::unique_lock lock{listener_.mutex_};
  listener_.changed_.wait_until(lock, stop_, until, [this] { return heard_; });
  heard_ = false;
}

}  // namespace fenceguard::postgres
