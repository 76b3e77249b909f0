#include "server/demo/crowd.hpp"

#include <algorithm>

#include "guard/error.hpp"

namespace fenceguard::demo {

using zookeeper::Answer;
using zookeeper::Code;
using zookeeper::Mode;
using zookeeper::Pending;
using zookeeper::Session;

namespace {

constexpr std::chrono::milliseconds session_timeout{30'000};
constexpr const char* lock = "/herd/lock";
constexpr const char* line = "/herd/line";

class Herd : public Crowd {
 public:
  Herd(Harness& harness, const ZooKeeperServer& server, std::size_t clients)
      : Crowd{harness, server, clients} {
    session(0).make_path("/herd");
  }

  void line_up() override {
    std::vector<std::size_t> all(size());
    for (std::size_t i = 0; i < size(); ++i) all[i] = i;
    race(all);
  }

  std::size_t hand_over() override {
    if (session(holder_).remove(lock).code != Code::ok) throw Unavailable("the holder's node was not there");
    harness().wait_until([&] { return woken() == size() - 1; }, "a wake-up of every watch");
    hear_all();
    auto racing = take_woken();
    const auto count = racing.size();
    racing.push_back(holder_);
    race(racing);
    return count;
  }

 private:
  // All of these try to create the node; who does not get it watches it.
  void race(const std::vector<std::size_t>& racing) {
    std::vector<Pending<Answer>> tries;
    for (const auto client : racing) tries.push_back(session(client).begin_create(lock, "", Mode::ephemeral));
    std::size_t winners = 0;
    std::vector<Pending<Answer>> looks;
    for (std::size_t i = 0; i < racing.size(); ++i) {
      const auto code = tries[i].get().code;
      if (code == Code::ok) {
        holder_ = racing[i];
        ++winners;
      } else {
        looks.push_back(session(racing[i]).begin_exists(lock, watch_of(racing[i])));
      }
    }
    for (auto& look : looks)
      if (look.get().code != Code::ok) throw Unavailable("the lock was given back before its time");
    if (winners != 1) throw Unavailable("an ephemeral node was created twice, or not at all");
  }

  std::size_t holder_ = 0;
};

class Queue : public Crowd {
 public:
  Queue(Harness& harness, const ZooKeeperServer& server, std::size_t clients)
      : Crowd{harness, server, clients}, names_(clients) {
    session(0).make_path(line);
  }

  void line_up() override {
    std::vector<Pending<Answer>> creations;
    for (std::size_t i = 0; i < size(); ++i) creations.push_back(begin_joining(i));
    for (std::size_t i = 0; i < size(); ++i) names_[i] = name_of(creations[i].get());
    std::vector<Pending<Answer>> lists;
    for (std::size_t i = 0; i < size(); ++i) lists.push_back(session(i).begin_get_children(line));
    for (std::size_t i = 0; i < size(); ++i) wait_for_turn(i, lists[i].get());
  }

  std::size_t hand_over() override {
    const auto leaving = holder_;
    if (session(leaving).remove(path_of(names_[leaving])).code != Code::ok)
      throw Unavailable("the holder's node was not there");
    harness().wait_until([&] { return woken() > 0; }, "a wake-up of the next one");
    hear_all();
    const auto next = take_woken();
    for (const auto client : next) wait_for_turn(client, session(client).get_children(line));
    if (holder_ == leaving) throw Unavailable("no client came to hold the lock");
    names_[leaving] = name_of(begin_joining(leaving).get());
    wait_for_turn(leaving, session(leaving).get_children(line));
    return next.size();
  }

 private:
  Pending<Answer> begin_joining(std::size_t client) {
    return session(client).begin_create(path_of("lock-"), "", Mode::ephemeral_sequential);
  }

  // Holds the lock if its node is the first, and watches the one before it otherwise.
  void wait_for_turn(std::size_t client, Answer list) {
    auto& names = list.children;
    std::ranges::sort(names);
    const auto own = std::ranges::find(names, names_[client]);
    if (own == names.end()) throw Unavailable("a node of the line is gone");
    if (own == names.begin()) {
      holder_ = client;
    } else if (session(client).exists(path_of(*(own - 1)), watch_of(client)).code != Code::ok) {
      throw Unavailable("a node of the line is gone");
    }
  }

  static std::string path_of(const std::string& name) { return std::string{line} + '/' + name; }

  static std::string name_of(const Answer& created) {
    if (created.code != Code::ok) throw Unavailable("a sequential node was not created");
    return created.path.substr(created.path.rfind('/') + 1);
  }

  std::vector<std::string> names_;  // of the node of each
  std::size_t holder_ = 0;
};

}  // namespace

Crowd::Crowd(Harness& harness, const ZooKeeperServer& server, std::size_t clients) : harness_{harness} {
  const auto address = zookeeper::address_of(Url::parse(server.url()));
  for (std::size_t i = 0; i < clients; ++i)
    sessions_.push_back(std::make_unique<Session>(address, session_timeout));
  harness.wait_until(
      [&] {
        return std::ranges::all_of(
            sessions_, [](const auto& session) { return session->state() == Session::State::connected; });
      },
      "a session for each client");
}

Session::Watch Crowd::watch_of(std::size_t client) {
  return [this, client](bool gone) {
    if (!gone) return;
    const std::lock_guard lock{alarm_.mutex};
    alarm_.woken.push_back(client);
  };
}

std::vector<std::size_t> Crowd::take_woken() {
  const std::lock_guard lock{alarm_.mutex};
  return std::exchange(alarm_.woken, {});
}

std::size_t Crowd::woken() const {
  const std::lock_guard lock{alarm_.mutex};
  return alarm_.woken.size();
}

void Crowd::hear_all() {
  std::vector<Pending<Answer>> looks;
  for (auto& session : sessions_) looks.push_back(session->begin_exists("/"));
  for (auto& look : looks) (void)look.get();
}

std::unique_ptr<Crowd> herd_of(Harness& harness, const ZooKeeperServer& server, std::size_t clients) {
  return std::make_unique<Herd>(harness, server, clients);
}

std::unique_ptr<Crowd> queue_of(Harness& harness, const ZooKeeperServer& server, std::size_t clients) {
  return std::make_unique<Queue>(harness, server, clients);
}

}  // namespace fenceguard::demo
