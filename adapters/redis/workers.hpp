#pragma once

// Workers: a few threads, each with a client of its own, for calls that are answered later.
//
// Thread-safe.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "adapters/redis/client.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {

class Workers {
 public:
  Workers(Address address, unsigned threads);
  // Refuses what is queued and finishes what runs, which the address's time-out bounds.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // function(client) -> T on some thread; its exceptions are the answer's fault.
  template <class T, class Function>
  void ask(Function function, Done<T> done) {
    enqueue([function = std::move(function), done = std::move(done)](Client* client, const Fault& refusal) {
      done(client == nullptr ? Outcome<T>{refusal} : answer<T>(*client, function));
    });
  }

 private:
  // Called with null and the reason where it is refused.
  using Task = std::function<void(Client*, const Fault&)>;

  template <class T, class Function>
  static Outcome<T> answer(Client& client, const Function& function) {
    try {
      return function(client);
    } catch (...) {
      return current_fault();
    }
  }

  void enqueue(Task task);
  void work();
  void run(std::optional<Client>& client, const Task& task);

  const Address address_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fenceguard::redis
