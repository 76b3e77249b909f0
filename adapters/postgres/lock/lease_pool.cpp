#include "adapters/postgres/lock/lease_pool.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <optional>
#include <thread>

#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/fences/commit_warning.hpp"
#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

template <class Semaphore>
class Slot {
 public:
  explicit Slot(Semaphore& calls) : calls_{calls} { calls_.acquire(); }
  ~Slot() { calls_.release(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

 private:
  Semaphore& calls_;
};

// Breaks a connection off when its time is over: the thread that waits for its answer then gets none. By a
// descriptor of its own, because libpq may close the connection's at any moment.
class TimeLimit {
 public:
  TimeLimit(int socket, std::chrono::milliseconds limit)
      : socket_{::dup(socket)}, thread_{[this, limit](const std::stop_token& stop) { run(limit, stop); }} {}
  ~TimeLimit() {
    thread_.request_stop();
    thread_.join();
    ::close(socket_);
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  [[nodiscard]] bool was_hit() const noexcept { return was_hit_; }

 private:
  void run(std::chrono::milliseconds limit, const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock{mutex};
    std::condition_variable_any().wait_for(lock, stop, limit, [] { return false; });
    if (stop.stop_requested()) return;
    was_hit_ = true;
    ::shutdown(socket_, SHUT_RDWR);
  }

  const int socket_;
  std::atomic<bool> was_hit_{false};
  std::jthread thread_;
};

// The server says nothing on an idle connection but that it is over.
bool is_sound(const pqxx::connection& connection) {
  if (!connection.is_open()) return false;
  pollfd socket{connection.sock(), POLLIN, 0};
  return poll(&socket, 1, 0) == 0;
}

}  // namespace

pqxx::result Pool::call(std::string_view doing, const Statement& statement, const TookEffect& took_effect) {
  const Slot slot{others_};
  auto connection = take();
  auto result = exchange(connection, doing, statement, took_effect);
  if (connection) give_back(std::move(connection));
  return result;
}

pqxx::result Pool::call_renewal(std::string_view doing, const Statement& statement,
                                const TookEffect& took_effect, std::chrono::milliseconds limit) {
  const Slot slot{renewals_};
  for (std::size_t hosts_left = addresses_.size();; --hosts_left) {
    const auto host = host_in_use();
    auto connection = take();
    std::optional<TimeLimit> time_limit;
    if (addresses_.size() > 1) time_limit.emplace(connection->sock(), limit);
    try {
      auto result = exchange(connection, doing, statement, took_effect);
      // Where the limit broke it off in the last moment, the next take() finds out.
      if (connection) give_back(std::move(connection));
      return result;
    } catch (const Error&) {
      if (!time_limit || !time_limit->was_hit()) throw;
      turn_away_from(host);
      if (hosts_left == 1) throw;
    }
  }
}

std::size_t Pool::host_in_use() {
  const std::scoped_lock lock{mutex_};
  return in_use_;
}

void Pool::turn_away_from(std::size_t host) {
  std::vector<Connection> dropped;
  const std::scoped_lock lock{mutex_};
  if (in_use_ != host) return;  // another call found out before
  in_use_ = (in_use_ + 1) % addresses_.size();
  dropped.swap(idle_);
}

pqxx::result Pool::exchange(Connection& connection, std::string_view doing, const Statement& statement,
                            const TookEffect& took_effect) {
  const auto result = mapped(Stage::before_commit, doing, [&] {
    const auto text = statement(*connection);
    pqxx::nontransaction tx{*connection};
    return tx.exec(std::string{begin_sql}.append(text));
  });
  if (took_effect(result)) {
    mapped(Stage::at_commit, doing, [&] {
      pqxx::nontransaction tx{*connection};
      unless_warned(*connection, [&tx] { tx.exec("COMMIT"); });
    });
    return result;
  }
  try {
    pqxx::nontransaction tx{*connection};
    tx.exec("ROLLBACK");
  } catch (const std::exception&) {
    // The transaction ends with its connection.
    connection.reset();
  }
  return result;
}

Connection Pool::take() {
  for (;;) {
    Connection connection;
    {
      const std::scoped_lock lock{mutex_};
      if (idle_.empty()) break;
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    if (is_sound(*connection)) return connection;
  }
  return connect(addresses_[host_in_use()]);
}

void Pool::give_back(Connection connection) noexcept {
  const std::scoped_lock lock{mutex_};
  if (idle_.size() < idle_max) idle_.push_back(std::move(connection));
}

}  // namespace fenceguard::postgres
