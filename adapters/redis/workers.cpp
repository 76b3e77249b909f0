#include "adapters/redis/workers.hpp"

#include <utility>

namespace fenceguard::redis {
namespace {

constexpr std::size_t queue_max = 10'000;

}  // namespace

Workers::Workers(Address address, unsigned threads) : address_{std::move(address)} {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Workers::~Workers() {
  std::deque<Task> refused;
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    refused.swap(queue_);
  }
  wake_.notify_all();
  for (const auto& task : refused) task(nullptr, {FaultKind::unavailable, "the guard is stopping"});
  for (auto& thread : threads_) thread.join();
}

void Workers::enqueue(Task task) {
  {
    const std::scoped_lock lock{mutex_};
    if (!is_stopping_ && queue_.size() < queue_max) {
      queue_.push_back(std::move(task));
      wake_.notify_one();
      return;
    }
  }
  task(nullptr, {FaultKind::unavailable, "too many calls wait for Redis, or the guard is stopping"});
}

void Workers::work() {
  std::optional<Client> client;
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    run(client, task);
    lock.lock();
  }
}

void Workers::run(std::optional<Client>& client, const Task& task) {
  try {
    if (!client) client.emplace(address_);
  } catch (...) {
    task(nullptr, current_fault());
    return;
  }
  task(&*client, {});
}

}  // namespace fenceguard::redis
