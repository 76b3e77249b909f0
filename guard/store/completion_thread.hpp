#pragma once

// CompletionThread: a thread of its own that gives answers, one after another, so that no caller is answered
// before its call has returned, or on a thread of the caller's.
//
// Thread-safe.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard {

class CompletionThread {
 public:
  CompletionThread();
  // Gives the answers that are left first, and those that are posted meanwhile.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  template <class T>
  void give(Outcome<T> outcome, Done<T> done) {
    post([outcome = std::move(outcome), done = std::move(done)]() mutable { done(std::move(outcome)); });
  }

  // May be called once, on any thread; done is called here. REQUIRES: this outlives it.
  template <class T>
  [[nodiscard]] Done<T> wrap(Done<T> done) {
    return [this, done = std::move(done)](Outcome<T> outcome) mutable {
      give<T>(std::move(outcome), std::move(done));
    };
  }

  void post(std::function<void()> answer);

 private:
  void work();

  std::mutex mutex_;  // guards the following but the thread
  std::condition_variable wake_;
  std::vector<std::function<void()>> queue_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace fenceguard
