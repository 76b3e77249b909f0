#include "adapters/redis/lock/release_subscriber.hpp"

#include <hiredis/hiredis.h>
#include <hiredis/read.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "adapters/redis/wire/connection.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds reopen_after{200};
constexpr milliseconds look_unheard{250};  // while releases are not heard
constexpr milliseconds idle_max{2'000};    // a channel without waiters is kept for
constexpr milliseconds tick{1'000};
constexpr milliseconds silence_max{5'000};  // then the server is asked whether it is still there

int make_eventfd() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error{errno, std::generic_category(), "eventfd"};
  return fd;
}

}  // namespace

struct ReleaseSubscriber::WaitQueue {
  std::list<Waiter*> places;
  bool is_asked_for = false;  // SUBSCRIBE was sent
  bool is_listening = false;  // and confirmed
  bool is_heard = false;      // something was heard since the first one last looked
  BootClock::time_point looked_at{};
  BootClock::time_point look_at{};
  BootClock::time_point idle_since{};
  unsigned settings = 0;  // how often look_at was set
};

// The connection that listens. Connection's own receive() would wait for a whole answer; here what has come
// is taken, and nothing is waited for.
class ReleaseSubscriber::Subscription {
 public:
  explicit Subscription(const Address& address) : connection_{open(address)} {}

  [[nodiscard]] int socket() const { return connection_.socket(); }

  void send(std::string_view word, const std::vector<std::string>& rest) {
    std::vector<std::string_view> words{word};
    words.insert(words.end(), rest.begin(), rest.end());
    connection_.queue(words);
    connection_.send();
  }

  // Everything that has come. Throws Unavailable at the end of the connection.
  void take(ReleaseSubscriber& waiters) {
    char buffer[16 * 1024];
    const auto size = recv(socket(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0 || redisReaderFeed(reader_.get(), buffer, static_cast<std::size_t>(size)) != REDIS_OK)
      throw Unavailable("the connection that hears of releases is lost");
    for (;;) {
      void* raw = nullptr;
      if (redisReaderGetReply(reader_.get(), &raw) != REDIS_OK)
        throw Unavailable("what was heard is no Redis");
      if (raw == nullptr) return;
      const std::unique_ptr<void, void (*)(void*)> owner{raw, freeReplyObject};
      handle(*static_cast<const redisReply*>(raw), waiters);
    }
  }

 private:
  // Under Redis Cluster any node hears of everything.
  static Connection open(const Address& address) {
    for (std::size_t i = 0; i + 1 < address.endpoints.size(); ++i) {
      try {
        return Connection{address.at(address.endpoints[i])};
      } catch (const Unavailable&) {
        continue;
      }
    }
    return Connection{address.at(address.endpoints.back())};
  }

  static std::string text_of(const redisReply& reply) {
    return reply.str == nullptr ? std::string{} : std::string{reply.str, reply.len};
  }

  static void handle(const redisReply& reply, ReleaseSubscriber& waiters) {
    if (reply.type == REDIS_REPLY_ERROR) throw Unavailable(text_of(reply));
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements < 3) return;
    const auto kind = text_of(*reply.element[0]);
    const auto channel = text_of(*reply.element[1]);
    if (kind == "subscribe") waiters.subscribed(channel);
    if (kind == "message") waiters.heard(channel, text_of(*reply.element[2]));
  }

  Connection connection_;
  std::unique_ptr<redisReader, void (*)(redisReader*)> reader_{redisReaderCreate(), redisReaderFree};
};

ReleaseSubscriber::ReleaseSubscriber(Address address)
    : address_{std::move(address)}, wake_fd_{make_eventfd()} {}

ReleaseSubscriber::~ReleaseSubscriber() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  close(wake_fd_);
}

void ReleaseSubscriber::wake_thread() const {
  const std::uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
}

void ReleaseSubscriber::run(const std::stop_token& stop) {
  const std::stop_callback wake{stop, [this] { wake_thread(); }};
  while (!stop.stop_requested()) {
    try {
      listen(stop);
    } catch (const std::exception&) {
      // Lost, not to be had, or not allowed: the waiters go by the clock meanwhile.
    }
    lost();
    std::unique_lock lock{mutex_};
    changed_.wait_until(lock, stop, BootClock::now() + reopen_after, [] { return false; });
    changed_.wait(lock, stop, [this] {
      return std::ranges::any_of(lines_, [](const auto& entry) { return !entry.second.places.empty(); });
    });
  }
}

void ReleaseSubscriber::listen(const std::stop_token& stop) {
  Subscription link{address_};
  auto heard_at = BootClock::now();
  bool is_asked = false;  // whether the server is still there
  while (!stop.stop_requested()) {
    subscribe(link);
    pollfd both[]{{link.socket(), POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    (void)poll(both, 2, static_cast<int>(tick.count()));
    if (both[1].revents != 0) {
      std::uint64_t count = 0;
      (void)!read(wake_fd_, &count, sizeof count);
    }
    const auto now = BootClock::now();
    if (both[0].revents != 0) {
      link.take(*this);
      heard_at = now;
      is_asked = false;
    } else if (now - heard_at > silence_max) {
      if (is_asked) throw Unavailable("the connection that hears of releases is dead");
      link.send("PING", {});
      is_asked = true;
      heard_at = now;
    }
    drop_idle(link);
  }
}

void ReleaseSubscriber::subscribe(Subscription& link) {
  std::vector<std::string> channels;
  {
    const std::scoped_lock lock{mutex_};
    for (auto& [channel, line] : lines_) {
      if (line.is_asked_for) continue;
      line.is_asked_for = true;
      channels.push_back(channel);
    }
  }
  if (!channels.empty()) link.send("SUBSCRIBE", channels);
}

void ReleaseSubscriber::drop_idle(Subscription& link) {
  std::vector<std::string> channels;
  {
    const std::scoped_lock lock{mutex_};
    const auto now = BootClock::now();
    for (auto entry = lines_.begin(); entry != lines_.end();) {
      const auto& line = entry->second;
      if (!line.is_listening || !line.places.empty() || now - line.idle_since < idle_max) {
        ++entry;
        continue;
      }
      channels.push_back(entry->first);
      entry = lines_.erase(entry);
    }
  }
  if (!channels.empty()) link.send("UNSUBSCRIBE", channels);
}

void ReleaseSubscriber::wake_first(WaitQueue& line) {
  line.is_heard = true;
  if (!line.places.empty()) line.places.front()->woken_.notify_all();
}

void ReleaseSubscriber::heard(const std::string& channel, const std::string& id) {
  const std::scoped_lock lock{mutex_};
  const auto entry = lines_.find(channel);
  if (entry == lines_.end()) return;
  auto& places = entry->second.places;
  const auto named = std::ranges::find_if(places, [&](const Waiter* place) { return place->id_ == id; });
  if (!id.empty() && named != places.end()) {
    (*named)->is_called_ = true;
    (*named)->woken_.notify_all();
  } else if (id.empty() || (!places.empty() && places.front()->id_.empty())) {
    wake_first(entry->second);
  }
}

void ReleaseSubscriber::subscribed(const std::string& channel) {
  const std::scoped_lock lock{mutex_};
  const auto entry = lines_.find(channel);
  if (entry == lines_.end()) return;
  entry->second.is_listening = true;
  wake_first(entry->second);  // for what was missed before
}

void ReleaseSubscriber::lost() {
  const std::scoped_lock lock{mutex_};
  for (auto entry = lines_.begin(); entry != lines_.end();) {
    entry->second.is_asked_for = false;
    entry->second.is_listening = false;
    wake_first(entry->second);
    entry = entry->second.places.empty() ? lines_.erase(entry) : std::next(entry);
  }
}

ReleaseSubscriber::Waiter::Waiter(ReleaseSubscriber& waiters, const std::string& channel, std::string id,
                                  std::stop_token stop)
    : subscriber_{waiters}, id_{std::move(id)}, stop_{std::move(stop)} {
  const std::scoped_lock lock{subscriber_.mutex_};
  if (!subscriber_.thread_.joinable())
    subscriber_.thread_ = std::jthread{[&all = subscriber_](const std::stop_token& over) { all.run(over); }};
  auto& line = subscriber_.lines_[channel];
  line_ = &line;
  if (line.places.empty()) {
    // What was heard while no thread waited is of the past, but so may be what this one saw of the lock.
    line.is_heard = line.is_listening;
    line.looked_at = BootClock::now();
    line.look_at = BootClock::time_point::max();
  }
  at_ = line.places.insert(line.places.end(), this);
  if (!line.is_asked_for) subscriber_.wake_thread();
  subscriber_.changed_.notify_all();
}

ReleaseSubscriber::Waiter::~Waiter() {
  const std::scoped_lock lock{subscriber_.mutex_};
  line_->places.erase(at_);
  line_->idle_since = BootClock::now();
  if (owes_look_) line_->is_heard = true;
  if (!line_->places.empty()) line_->places.front()->woken_.notify_all();
}

bool ReleaseSubscriber::Waiter::is_first() const {
  return line_->places.front() == this;
}

bool ReleaseSubscriber::Waiter::is_due(BootClock::time_point now) const {
  if (is_called_) return true;
  if (!is_first()) return false;
  return line_->is_heard || now >= line_->look_at ||
         (!line_->is_listening && now - line_->looked_at >= look_unheard);
}

BootClock::time_point ReleaseSubscriber::Waiter::wakes_at(BootClock::time_point deadline) const {
  auto until = deadline;
  if (is_first()) {
    until = std::min(until, line_->look_at);
    if (!line_->is_listening) until = std::min<BootClock::time_point>(until, line_->looked_at + look_unheard);
  }
  return until;
}

ReleaseSubscriber::Waiter::Wake ReleaseSubscriber::Waiter::wait(BootClock::time_point deadline) {
  std::unique_lock lock{subscriber_.mutex_};
  for (;;) {
    const auto now = BootClock::now();
    if (stop_.stop_requested() || now >= deadline) return Wake::over;
    if (is_due(now)) break;
    const auto seen = line_->settings;
    const bool was_first = is_first();
    woken_.wait_until(lock, stop_, wakes_at(deadline), [&] {
      return is_due(BootClock::now()) || is_first() != was_first || line_->settings != seen;
    });
  }
  owes_look_ = true;
  if (is_first()) {
    line_->is_heard = false;
    line_->looked_at = BootClock::now();
  }
  return std::exchange(is_called_, false) ? Wake::called : Wake::first;
}

void ReleaseSubscriber::Waiter::look_after(milliseconds duration) {
  const std::scoped_lock lock{subscriber_.mutex_};
  owes_look_ = false;
  line_->looked_at = BootClock::now();
  line_->look_at = line_->looked_at + duration;
  ++line_->settings;
  // The first waiter may sleep with another time in mind.
  if (!is_first()) line_->places.front()->woken_.notify_all();
}

void ReleaseSubscriber::Waiter::look_no_later(milliseconds duration) {
  const std::scoped_lock lock{subscriber_.mutex_};
  line_->look_at = std::min<BootClock::time_point>(line_->look_at, BootClock::now() + duration);
  ++line_->settings;
  line_->places.front()->woken_.notify_all();
}

std::vector<std::string> ReleaseSubscriber::Waiter::ids() const {
  const std::scoped_lock lock{subscriber_.mutex_};
  std::vector<std::string> result;
  for (const auto* place : line_->places) result.push_back(place->id_);
  return result;
}

void ReleaseSubscriber::Waiter::call(const std::string& id) {
  const std::scoped_lock lock{subscriber_.mutex_};
  for (auto* place : line_->places) {
    if (place->id_ != id) continue;
    place->is_called_ = true;
    place->woken_.notify_all();
  }
}

}  // namespace fenceguard::redis
