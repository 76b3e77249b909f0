#pragma once

// Pool: clients for calls that come from many threads. A call has a client to itself; those that are not at
// work are kept for the next ones.
//
// Thread-safe.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "adapters/redis/client.hpp"

namespace fenceguard::redis {

class Pool {
 public:
  explicit Pool(Address address) : address_{std::move(address)} {}

  // Connects once, so that a wrong address shows now. Whether it is a Redis Cluster. Throws Unavailable.
  // REQUIRES: no other call before it has returned.
  bool connect() {
    give_back(take());
    return is_cluster_ = idle_.front()->is_cluster();
  }

  [[nodiscard]] const Address& address() const noexcept { return address_; }
  // As it was when it was connected.
  [[nodiscard]] bool is_cluster() const noexcept { return is_cluster_; }

  // function(client); what it throws passes through.
  template <class Function>
  auto with(Function&& function) {
    Loan loan{*this, take()};
    return std::forward<Function>(function)(*loan.client);
  }

 private:
  static constexpr std::size_t idle_max = 64;

  struct Loan {
    Pool& pool;
    std::unique_ptr<Client> client;
    ~Loan() { pool.give_back(std::move(client)); }
  };

  std::unique_ptr<Client> take() {
    {
      const std::scoped_lock lock{mutex_};
      if (!idle_.empty()) {
        auto client = std::move(idle_.back());
        idle_.pop_back();
        return client;
      }
    }
    return std::make_unique<Client>(address_, commands_);
  }

  void give_back(std::unique_ptr<Client> client) {
    const std::scoped_lock lock{mutex_};
    if (client && idle_.size() < idle_max) idle_.push_back(std::move(client));
  }

  const Address address_;
  const std::shared_ptr<CommandTable> commands_ = std::make_shared<CommandTable>();
  bool is_cluster_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Client>> idle_;
};

}  // namespace fenceguard::redis
