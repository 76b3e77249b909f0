#pragma once

// FenceWorkers: a few threads for calls that are answered later. The calls share one client.
//
// Thread-safe.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {

class FenceWorkers {
 public:
  explicit FenceWorkers(unsigned threads);
  // Refuses what is queued and finishes what runs, which the address's time-out bounds.
  ~FenceWorkers();
  FenceWorkers(const FenceWorkers&) = delete;
  FenceWorkers& operator=(const FenceWorkers&) = delete;

  // function() -> T on some thread; its exceptions are the answer's fault.
  template <class T, class Function>
  void ask(Function function, Done<T> done) {
    enqueue([function = std::move(function), done = std::move(done)](const Fault* refusal) {
      done(refusal != nullptr ? Outcome<T>{*refusal} : answer<T>(function));
    });
  }

  // Answers with fault, on a thread of ours as well.
  template <class T>
  void refuse(Fault fault, Done<T> done) {
    enqueue_refusal({std::move(fault), [done = std::move(done)](const Fault* refusal) { done(*refusal); }});
  }

 private:
  // Called with the reason where it is refused.
  using Task = std::function<void(const Fault*)>;

  template <class T, class Function>
  static Outcome<T> answer(const Function& function) {
    try {
      return function();
    } catch (...) {
      return current_fault();
    }
  }

  struct Refusal {
    Fault fault;
    Task task;
  };

  void enqueue(Task task);
  void enqueue_refusal(Refusal refusal);
  void work();
  void work_refusals();

  std::mutex mutex_;  // guards the following
  std::condition_variable wake_;
  std::deque<Task> queue_;
  std::deque<Refusal> refusals_;
  bool is_stopping_ = false;
  bool is_over_ = false;  // no call runs any more

  std::vector<std::thread> threads_;
  std::thread refuser_;  // never waits for ZooKeeper
};

}  // namespace fenceguard::zookeeper
