#pragma once

// FenceWorkers: a few threads for a fence store whose calls block, as it owes them: answered after the call,
// on a thread of its own. One more thread gives the answers that need no call.
//
// Thread-safe.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "guard/answer_thread.hpp"
#include "guard/error.hpp"

namespace fenceguard {

class FenceWorkers {
 public:
  // service: what the calls wait for, as a message names it: 'etcd'.
  FenceWorkers(unsigned threads, std::string service);
  // Refuses what is queued and finishes what runs, which must come to an end. All is answered then.
  ~FenceWorkers();
  FenceWorkers(const FenceWorkers&) = delete;
  FenceWorkers& operator=(const FenceWorkers&) = delete;

  // function() -> T on some thread; its exceptions are the answer's fault. Refused where too many calls wait.
  template <class T, class Function>
  void ask(Function function, Done<T> done) {
    enqueue([function = std::move(function), done = std::move(done)](const Fault* refusal) {
      done(refusal != nullptr ? Outcome<T>{*refusal} : answer<T>(function));
    });
  }

  // The answer is fault.
  template <class T>
  void refuse(Fault fault, Done<T> done) {
    answers_.give<T>(std::move(fault), std::move(done));
  }

 private:
  // Called with null, or with the reason where it is refused.
  using Task = std::function<void(const Fault*)>;

  template <class T, class Function>
  static Outcome<T> answer(const Function& function) {
    try {
      return function();
    } catch (...) {
      return current_fault();
    }
  }

  void enqueue(Task task);
  void refuse_task(Task task, Fault fault);
  void work();

  const std::string service_;
  std::mutex mutex_;  // guards the following but the threads
  std::condition_variable wake_;
  std::deque<Task> queue_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
  AnswerThread answers_;  // last, so that it ends first: what it still gives may call here
};

}  // namespace fenceguard
