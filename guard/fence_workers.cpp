#include "guard/fence_workers.hpp"

#include <utility>

namespace fenceguard {
namespace {

constexpr std::size_t queue_max = 10'000;

}  // namespace

FenceWorkers::FenceWorkers(unsigned threads, std::string service) : service_{std::move(service)} {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  refuser_ = std::thread{[this] { answer_refusals(); }};
}

FenceWorkers::~FenceWorkers() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    for (auto& task : queue_) add_refusal(std::move(task), {FaultKind::unavailable, "the guard is stopping"});
    queue_.clear();
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
  {
    const std::scoped_lock lock{mutex_};
    is_over_ = true;
  }
  wake_refuser_.notify_one();
  refuser_.join();
}

void FenceWorkers::enqueue(Task task) {
  const std::scoped_lock lock{mutex_};
  if (is_stopping_ || queue_.size() >= queue_max) {
    return add_refusal(std::move(task), {FaultKind::unavailable, "too many calls wait for " + service_ +
                                                                     ", or the guard is stopping"});
  }
  queue_.push_back(std::move(task));
  wake_.notify_one();
}

void FenceWorkers::add_refusal(Task task, Fault fault) {
  refusals_.push_back({std::move(task), std::move(fault)});
  wake_refuser_.notify_one();
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

void FenceWorkers::answer_refusals() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_refuser_.wait(lock, [this] { return is_over_ || !refusals_.empty(); });
    if (refusals_.empty()) return;
    auto refusal = std::move(refusals_.front());
    refusals_.pop_front();
    lock.unlock();
    refusal.task(&refusal.fault);
    refusal.task = nullptr;
    lock.lock();
  }
}

}  // namespace fenceguard
