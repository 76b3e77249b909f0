#pragma once

// Workers: a few threads, each with a session of its own, for calls that are answered later. Calls in one
// order run one after another, in the order in which they came; all others side by side. So an advance that
// waits in the database for older writes holds up those of its own resource, and no others while a thread is
// free.
//
// Thread-safe.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "adapters/postgres/session.hpp"
#include "guard/answer_thread.hpp"

namespace fenceguard::postgres {

// What a call is, apart from what it does.
struct Call {
  std::string doing;       // begins its messages: 'advancing accounts/42'
  std::string order = {};  // the calls that it must not overtake; empty: none
  Needs needs = Needs::fences;
};

class Workers {
 public:
  // REQUIRES: the address outlives the workers.
  Workers(const Address& address, unsigned threads);
  // Refuses what is queued and answers what runs; what is not over after a grace loses its connection.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // function(tx) -> T in a transaction, see Session::run(); it is run again, a few times, where it throws
  // RolledBack.
  template <class T, class Function>
  void ask(Call call, Function function, Done<T> done) {
    std::string order = call.order;
    enqueue({std::move(order),
             [call = std::move(call), function = std::move(function),
              done = std::move(done)](Session* session) { done(answer<T>(session, call, function)); }});
  }

  // The answer is fault.
  template <class T>
  void refuse(Fault fault, Done<T> done) {
    answers_.give<T>(std::move(fault), std::move(done));
  }

  // See Session::break_off_after().
  void break_off_after(std::chrono::milliseconds limit);

 private:
  static constexpr int attempts_max = 4;

  struct Task {
    std::string order;
    std::function<void(Session*)> run;  // called with null if it was refused
  };

  template <class T, class Function>
  static Outcome<T> answer(Session* session, const Call& call, const Function& function) {
    if (session == nullptr) {
      return Fault{FaultKind::unavailable,
                   call.doing + ": too many calls wait for the database, or the guard is stopping"};
    }
    for (int attempt = 1;; ++attempt) {
      try {
        return session->run(call.doing, call.needs, function);
      } catch (const RolledBack&) {
        if (attempt == attempts_max) return one_line_fault();
      } catch (...) {
        return one_line_fault();
      }
    }
  }

  void enqueue(Task task);
  void refuse_task(Task task);
  void work(Session& session);
  // The next task whose order is not at work, if there is one. REQUIRES: the mutex is held.
  [[nodiscard]] std::deque<Task>::iterator next();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  std::unordered_set<std::string> at_work_;
  std::size_t running_ = 0;
  bool is_stopping_ = false;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::thread> threads_;
  AnswerThread answers_;  // last, so that it ends first: what it still gives may call here
};

}  // namespace fenceguard::postgres
