#include "guard/fence_workers.hpp"

#include <utility>

namespace fenceguard {
namespace {

constexpr std::size_t queue_max = 10'000;

}  // namespace

FenceWorkers::FenceWorkers(unsigned threads, std::string service) : service_{std::move(service)} {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

FenceWorkers::~FenceWorkers() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    for (auto& task : queue_) refuse_task(std::move(task), {FaultKind::unavailable, "the guard is stopping"});
    queue_.clear();
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void FenceWorkers::enqueue(Task task) {
  const std::scoped_lock lock{mutex_};
  if (is_stopping_ || queue_.size() >= queue_max) {
    return refuse_task(std::move(task), {FaultKind::unavailable, "too many calls wait for " + service_ +
                                                                     ", or the guard is stopping"});
  }
  queue_.push_back(std::move(task));
  wake_.notify_one();
}

void FenceWorkers::refuse_task(Task task, Fault fault) {
  answers_.post([task = std::move(task), fault = std::move(fault)] { task(&fault); });
}

void FenceWorkers::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task(nullptr);
    // What it holds is the caller's, and its end may call here.
    task = nullptr;
    lock.lock();
  }
}

}  // namespace fenceguard
