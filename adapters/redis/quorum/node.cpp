#include "adapters/redis/quorum/node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "adapters/redis/quorum/wire.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis::quorum {
namespace {

using Ms = std::chrono::milliseconds;

constexpr Ms pause_min{20};
constexpr Ms pause_max{500};
constexpr Ms retry_pause{100};
constexpr Ms trusted{100};  // not looked at again when it was used so shortly before
constexpr std::size_t idle_max = 64;
constexpr std::size_t tasks_max = 10'000;

// A server that may not be used, however well it answers.
class Unfit : public Unavailable {
 public:
  using Unavailable::Unavailable;
};

std::string setting(Connection& connection, std::string_view name) {
  const std::string_view words[] = {"CONFIG", "GET", name};
  const auto reply = connection.call(words);
  if (reply.is_error()) return {};
  return reply.elements.size() == 2 ? reply.elements[1].text : std::string{};
}

// The counters must survive a crash, or a number is granted twice.
void require_persistence(Connection& connection, const std::string& name) {
  for (const auto& [what, wanted] : {std::pair{"appendonly", "yes"}, std::pair{"appendfsync", "always"},
                                     std::pair{"no-appendfsync-on-rewrite", "no"}}) {
    const auto found = setting(connection, what);
    if (found == wanted) continue;
    throw Unfit(fmt::format(
        "Redis at {} {}, and a quorum's counters must survive a crash: set '{} {}' there{}, or say "
        "?unsafe_persistence=1 if a number granted twice does no harm",
        name,
        found.empty() ? fmt::format("does not tell its '{}'", what) : fmt::format("has '{} {}'", what, found),
        what, wanted, found.empty() ? " and let the user call CONFIG GET" : ""));
  }
}

// A promoted replica has what its master had sent, which may be less than what the master answered. A plain
// restart leaves no second offset: with an append-only file the server then has a new history of its own.
void require_own_history(Connection& connection, const std::string& name) {
  const std::string_view words[] = {"INFO", "replication"};
  const auto reply = connection.call(words);
  const std::string_view field = "second_repl_offset:";
  const auto at = reply.text.find(field);
  if (reply.is_error() || at == reply.text.npos) {
    throw Unfit(fmt::format(
        "Redis at {} does not tell whether it was a replica, and such a one has not all that its master "
        "answered: let the user call INFO, or say ?unsafe_persistence=1 if a number granted twice does no "
        "harm",
        name));
  }
  if (reply.text.compare(at + field.size(), 2, "-1") == 0) return;
  throw Unfit(
      fmt::format("Redis at {} was a replica and then promoted, and may not have all that its master "
                  "answered: delete its "
                  "key quorum:marker under the prefix, restart it, and run 'fenceguard lease raise'",
                  name));
}

}  // namespace

Node::Node(Options options)
    : options_{std::move(options)},
      name_{to_string(options_.address.endpoints.front())},
      worker_{[this](const std::stop_token& stop) { work(stop); }} {}

Node::~Node() {
  worker_.request_stop();
  worker_.join();
  do_tasks();
}

Node::State Node::state() const {
  const std::scoped_lock lock{mutex_};
  return state_;
}

std::string Node::reason() const {
  const std::scoped_lock lock{mutex_};
  return reason_;
}

void Node::wait_until_known(BootClock::time_point until) const {
  std::unique_lock lock{mutex_};
  changed_.wait_until(lock, {}, until, [this] { return state_ != State::unknown; });
}

std::unique_ptr<Connection> Node::open(Ms limit) const {
  auto address = options_.address;
  address.connect_timeout = limit;
  address.timeout = limit;
  auto connection = std::make_unique<Connection>(address);
  if (connection->server().is_cluster)
    throw Unfit(fmt::format("Redis at {} is a node of a cluster; a quorum needs independent servers", name_));
  if (connection->server().is_replica)
    throw Unfit(fmt::format("Redis at {} is a replica; a quorum needs independent servers", name_));
  if (!options_.is_unsafe_persistence_fine) {
    require_persistence(*connection, name_);
    require_own_history(*connection, name_);
  }
  connection->set_timeout(options_.node_timeout);
  return connection;
}

std::unique_ptr<Connection> Node::take() {
  {
    const std::scoped_lock lock{mutex_};
    if (state_ != State::in) return nullptr;
    while (!idle_.empty()) {
      auto [connection, since] = std::move(idle_.back());
      idle_.pop_back();
      if (BootClock::now() - since < trusted || connection->is_usable()) return std::move(connection);
    }
  }
  try {
    return open(options_.node_timeout);
  } catch (const Error& error) {
    put_out(error.what());
    return nullptr;
  }
}

void Node::give_back(std::unique_ptr<Connection> connection) {
  const std::scoped_lock lock{mutex_};
  if (state_ == State::in && idle_.size() < idle_max)
    idle_.push_back({std::move(connection), BootClock::now()});
}

void Node::put_out(const std::string& reason) {
  const std::scoped_lock lock{mutex_};
  if (state_ == State::in) state_ = State::out;
  reason_ = reason;
  idle_.clear();
  changed_.notify_all();
}

void Node::later(Request request, BootClock::time_point until) {
  const std::scoped_lock lock{mutex_};
  if (tasks_.size() >= tasks_max) tasks_.pop_front();  // the time to live ends it as well
  tasks_.push_back({std::move(request), until});
  changed_.notify_all();
}

void Node::work(const std::stop_token& stop) {
  auto pause = pause_min;
  while (!stop.stop_requested()) {
    if (state() != State::in) reconnect();
    const bool is_in = state() == State::in;
    if (is_in) do_tasks();
    std::unique_lock lock{mutex_};
    if (is_in && tasks_.empty()) {
      pause = pause_min;
      changed_.wait(lock, stop, [this] { return state_ != State::in || !tasks_.empty(); });
    } else {
      changed_.wait_until(lock, stop, BootClock::now() + (is_in ? retry_pause : pause), [] { return false; });
      pause = std::min(pause * 2, pause_max);
    }
  }
}

void Node::reconnect() {
  auto next = State::out;
  std::string reason;
  std::unique_ptr<Connection> connection;
  try {
    connection = open(std::min(options_.address.connect_timeout, options_.address.timeout));
    next = State::in;
  } catch (const Unfit& error) {
    next = State::unfit;
    reason = error.what();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  const std::scoped_lock lock{mutex_};
  state_ = next;
  reason_ = reason;
  if (connection) idle_.push_back({std::move(connection), BootClock::now()});
  changed_.notify_all();
}

void Node::do_tasks() {
  std::deque<Task> tasks;
  {
    const std::scoped_lock lock{mutex_};
    tasks.swap(tasks_);
  }
  std::erase_if(tasks, [this](const Task& task) { return task.until < BootClock::now() || do_now(task); });
  const std::scoped_lock lock{mutex_};
  tasks_.insert(tasks_.begin(), tasks.begin(), tasks.end());
}

bool Node::do_now(const Task& task) {
  auto connection = take();
  if (!connection) return false;
  try {
    const auto call = [&](bool by_hash) {
      connection->queue_encoded(encoded(prefix(), task.request, by_hash));
      connection->send();
      return connection->receive();
    };
    auto reply = call(true);
    if (is_unknown_script(reply)) reply = call(false);
    const bool is_done = !reply.is_error();
    give_back(std::move(connection));
    return is_done;
  } catch (const Error& error) {
    put_out(error.what());
    return false;
  }
}

}  // namespace fenceguard::redis::quorum
