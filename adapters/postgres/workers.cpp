#include "adapters/postgres/workers.hpp"

#include <algorithm>

namespace fenceguard::postgres {
namespace {

constexpr std::size_t queue_max = 10'000;
constexpr std::chrono::seconds grace{5};

}  // namespace

Workers::Workers(const Address& address, unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) sessions_.push_back(std::make_unique<Session>(address));
  for (auto& session : sessions_) threads_.emplace_back([this, &session] { work(*session); });
}

Workers::~Workers() {
  std::deque<Task> refused;
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    refused.swap(queue_);
  }
  wake_.notify_all();
  for (auto& task : refused) refuse_task(std::move(task));
  std::unique_lock lock{mutex_};
  // A connection that is only being made has limits of its own, and is broken off when it is there.
  for (auto wait = std::chrono::milliseconds{grace}; running_ > 0; wait = std::chrono::milliseconds{100}) {
    if (wake_.wait_for(lock, wait, [this] { return running_ == 0; })) break;
    for (auto& session : sessions_) session->break_off_after(std::chrono::milliseconds{0});
  }
  lock.unlock();
  for (auto& thread : threads_) thread.join();
}

void Workers::break_off_after(std::chrono::milliseconds limit) {
  for (auto& session : sessions_) session->break_off_after(limit);
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
  refuse_task(std::move(task));
}

void Workers::refuse_task(Task task) {
  answers_.post([task = std::move(task)] { task.run(nullptr); });
}

std::deque<Workers::Task>::iterator Workers::next() {
  return std::ranges::find_if(
      queue_, [this](const Task& task) { return task.order.empty() || !at_work_.contains(task.order); });
}

void Workers::work(Session& session) {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || next() != queue_.end(); });
    if (is_stopping_) return;
    const auto position = next();
    Task task = std::move(*position);
    queue_.erase(position);
    if (!task.order.empty()) at_work_.insert(task.order);
    ++running_;
    lock.unlock();
    task.run(&session);
    task.run = nullptr;  // what it holds ends here, without the lock
    lock.lock();
    --running_;
    at_work_.erase(task.order);
    wake_.notify_all();
  }
}

}  // namespace fenceguard::postgres
