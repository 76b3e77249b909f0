#include "guard/store/executor.hpp"

#include <iterator>
#include <utility>

namespace fenceguard {

Executor::Executor(std::size_t threads, std::string service, std::size_t queue_max)
    : service_{std::move(service)}, queue_max_{queue_max} {
  for (std::size_t worker = 0; worker < threads; ++worker)
    threads_.emplace_back([this, worker] { work(worker); });
}

Executor::~Executor() {
  stop();
  join();
}

void Executor::post(Call call) {
  Fault refusal{FaultKind::unavailable, "the guard is stopping"};
  {
    const std::scoped_lock lock{mutex_};
    if (!is_stopping_ && (waiting_ < queue_max_)) {
      ++waiting_;
      if (!call.order.empty()) {
        const auto [place, is_first] = behind_.try_emplace(call.order);
        if (!is_first) return place->second.push_back(std::move(call));
      }
      ready_.push_back(std::move(call));
      return wake_.notify_one();
    }
    if (!is_stopping_) refusal.message = "too many calls wait for " + service_;
  }
  call.run(0, &refusal);
}

void Executor::stop() {
  std::deque<Call> refused;
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
    waiting_ = 0;
    refused.swap(ready_);
    for (auto& [order, calls] : behind_)
      refused.insert(refused.end(), std::move_iterator{calls.begin()}, std::move_iterator{calls.end()});
    behind_.clear();
  }
  wake_.notify_all();
  const Fault refusal{FaultKind::unavailable, "the guard is stopping"};
  for (auto& call : refused) call.run(0, &refusal);
}

void Executor::join() {
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

bool Executor::wait_until_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock{mutex_};
  return idle_.wait_for(lock, limit, [this] { return running_ == 0; });
}

void Executor::release(const std::string& order) {
  const auto place = behind_.find(order);
  if (place == behind_.end()) return;
  if (place->second.empty()) {
    behind_.erase(place);
    return;
  }
  ready_.push_back(std::move(place->second.front()));
  place->second.pop_front();
}

void Executor::work(std::size_t worker) {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || !ready_.empty(); });
    if (ready_.empty()) return;
    Call call = std::move(ready_.front());
    ready_.pop_front();
    --waiting_;
    ++running_;
    lock.unlock();
    call.run(worker, nullptr);
    call.run = nullptr;  // what it holds is the caller's, and its end may call here
    lock.lock();
    release(call.order);
    if (--running_ == 0) idle_.notify_all();
  }
}

}  // namespace fenceguard
