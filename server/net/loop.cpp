#include "server/net/loop.hpp"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <csignal>

namespace fenceguard::net {
namespace {

thread_local const Loop* current_loop = nullptr;

constexpr std::chrono::milliseconds sweep_apart_min{20};

// Signals are for the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Loop::Loop() : alarm_{context_, sweep_apart_min, [this](SteadyTime now) { return sweep(now); }} {}

Loop::~Loop() {
  stop();
}

void Loop::start() {
  const SignalsBlocked blocked;
  thread_ = std::thread{[this] { run(); }};
}

void Loop::stop() {
  {
    const std::lock_guard lock{mutex_};
    is_stopped_ = true;
  }
  context_.stop();
  if (thread_.joinable()) thread_.join();
  std::vector<std::function<void()>> dropped;
  const std::lock_guard lock{mutex_};
  dropped.swap(inbox_);
}

void Loop::run() {
  current_loop = this;
  const auto work = asio::make_work_guard(context_);
  while (!context_.stopped()) {
    try {
      context_.run();
    } catch (...) {
      // A session turns what its handler throws into an answer; what is left concerns that one connection
      // only.
    }
  }
}

void Loop::post(std::function<void()> action) {
  const std::lock_guard lock{mutex_};
  if (is_stopped_) return;
  inbox_.push_back(std::move(action));
  if (inbox_.size() > 1) return;
  try {
    asio::post(context_, [this] { run_inbox(); });
  } catch (...) {
    // What stays behind would keep every later post from waking the loop.
    inbox_.pop_back();
    throw;
  }
}

void Loop::run_inbox() {
  {
    const std::lock_guard lock{mutex_};
    running_.swap(inbox_);
  }
  for (auto& action : running_) {
    try {
      action();
    } catch (...) {
      // The rest of the inbox is for other connections.
    }
  }
  running_.clear();
}

bool Loop::is_current() const noexcept {
  return current_loop == this;
}

void Loop::add(Session& session) {
  sessions_.push_back(&session);
  session.place_in_loop = sessions_.size() - 1;
}

void Loop::remove(Session& session) {
  if (session.place_in_loop == Session::nowhere) return;
  sessions_.back()->place_in_loop = session.place_in_loop;
  std::swap(sessions_[session.place_in_loop], sessions_.back());
  sessions_.pop_back();
}

void Loop::add_waiting(Session& session) {
  waiting_.push_back(session);
}

bool Loop::end_longest_waiting(const Service& service) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Session& session) { return &session.service() == &service; });
  if (found == waiting_.end()) return false;
  found->end_waiting();
  return true;
}

SteadyTime Loop::sweep(SteadyTime now) {
  auto earliest = SteadyTime::max();
  for (auto* session : sessions_) {
    session->expire(now);
    earliest = std::min(earliest, session->deadline());
  }
  return earliest;
}

std::vector<std::shared_ptr<Session>> Loop::sessions() const {
  std::vector<std::shared_ptr<Session>> copies;
  copies.reserve(sessions_.size());
  for (auto* session : sessions_) copies.push_back(session->shared_from_this());
  return copies;
}

void Loop::begin_drain() {
  is_draining_ = true;
  for (const auto& session : sessions()) session->begin_drain();
}

void Loop::cut() {
  is_draining_ = true;
  for (const auto& session : sessions()) session->cut();
}

void Loop::look_at_loans() {
  for (const auto& session : sessions()) session->look_at_loan();
}

void call_safely(const std::function<void()>& action) noexcept {
  try {
    if (action) action();
  } catch (...) {
    // See the declaration.
  }
}

}  // namespace fenceguard::net
