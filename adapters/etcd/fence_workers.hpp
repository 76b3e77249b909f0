#pragma once

// FenceWorkers: a few threads for calls to etcd that are answered later.
//
// Thread-safe.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard::etcd {

class FenceWorkers {
 public:
  explicit FenceWorkers(unsigned threads);
  // Refuses what is queued and finishes what runs, which the client's time-out bounds.
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
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fenceguard::etcd
