#include "adapters/etcd/fence_workers.hpp"

#include <utility>

namespace fenceguard::etcd {
namespace {

constexpr std::size_t queue_max = 10'000;

}  // namespace

FenceWorkers::FenceWorkers(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

FenceWorkers::~FenceWorkers() {
  std::deque<Task> refused;
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    refused.swap(queue_);
  }
  wake_.notify_all();
  const Fault stopping{FaultKind::unavailable, "the guard is stopping"};
  for (const auto& task : refused) task(&stopping);
  for (auto& thread : threads_) thread.join();
}

void FenceWorkers::enqueue(Task task) {
  {
    const std::scoped_lock lock{mutex_};
    if (!is_stopping_ && queue_.size() < queue_max) {
      queue_.push_back(std::move(task));
      wake_.notify_one();
      return;
    }
  }
  const Fault busy{FaultKind::unavailable, "too many calls wait for etcd, or the guard is stopping"};
  task(&busy);
}

void FenceWorkers::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task(nullptr);
    lock.lock();
  }
}

}  // namespace fenceguard::etcd
