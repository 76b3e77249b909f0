#pragma once

// Executor: a few threads for calls that block. Calls of one order run one after another, in the order in
// which they came; all others run side by side, as far as threads are free.
//
// Thread-safe.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard {

class Executor {
 public:
  static constexpr std::size_t queue_max_default = 10'000;

  struct Call {
    // Runs the call on a thread of the executor, which is the worker of that number, from 0 on; or learns why
    // it is refused, in post() or stop(). Must not throw.
    std::function<void(std::size_t worker, const Fault* refusal)> run;
    std::string order = {};  // empty: none
  };

  // service: what the calls wait for, as a message names it.
  Executor(std::size_t threads, std::string service, std::size_t queue_max = queue_max_default);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Refuses the call where queue_max calls wait, and after stop().
  void post(Call call);
  // Refuses what waits and what comes from now on. What runs goes on.
  void stop();
  // Returns when what runs is over. REQUIRES: stop() was called.
  void join();
  // Whether no call runs any more; waits for that until limit.
  [[nodiscard]] bool wait_until_idle(std::chrono::milliseconds limit);

 private:
  void work(std::size_t worker);
  // Lets the next call of this order run. REQUIRES: the mutex is held.
  void release(const std::string& order);

  const std::string service_;
  const std::size_t queue_max_;
  std::mutex mutex_;  // guards the following but the threads
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Call> ready_;
  // Of each order that has a call that is ready or runs: the calls behind that one.
  std::unordered_map<std::string, std::deque<Call>> behind_;
  std::size_t waiting_ = 0;  // ready, or behind another
  std::size_t running_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fenceguard
