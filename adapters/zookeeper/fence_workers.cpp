#include "adapters/zookeeper/fence_workers.hpp"

#include <utility>

namespace fenceguard::zookeeper {
namespace {

constexpr std::size_t queue_max = 10'000;

}  // namespace

FenceWorkers::FenceWorkers(unsigned threads) : refuser_{[this] { work_refusals(); }} {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

FenceWorkers::~FenceWorkers() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    for (auto& task : queue_)
      refusals_.push_back({{FaultKind::unavailable, "the guard is stopping"}, std::move(task)});
    queue_.clear();
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
  {
    const std::scoped_lock lock{mutex_};
    is_over_ = true;
  }
  wake_.notify_all();
  refuser_.join();
}

void FenceWorkers::enqueue(Task task) {
  {
    const std::scoped_lock lock{mutex_};
    if (!is_stopping_ && queue_.size() < queue_max) {
      queue_.push_back(std::move(task));
      wake_.notify_all();
      return;
    }
  }
  enqueue_refusal({{FaultKind::unavailable, "too many calls wait for ZooKeeper, or the guard is stopping"},
                   std::move(task)});
}

void FenceWorkers::enqueue_refusal(Refusal refusal) {
  const std::scoped_lock lock{mutex_};
  refusals_.push_back(std::move(refusal));
  wake_.notify_all();
}

// A task is run and destroyed without the lock: both are the caller's code.
void FenceWorkers::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task(nullptr);
    task = nullptr;
    lock.lock();
  }
}

void FenceWorkers::work_refusals() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_over_ || !refusals_.empty(); });
    if (refusals_.empty()) return;
    auto refusal = std::move(refusals_.front());
    refusals_.pop_front();
    lock.unlock();
    refusal.task(&refusal.fault);
    refusal.task = nullptr;
    lock.lock();
  }
}

}  // namespace fenceguard::zookeeper
