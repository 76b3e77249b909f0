#include "guard/store/answer_thread.hpp"

namespace fenceguard {

AnswerThread::AnswerThread() : thread_{[this] { work(); }} {}

AnswerThread::~AnswerThread() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void AnswerThread::post(std::function<void()> answer) {
  const std::scoped_lock lock{mutex_};
  queue_.push_back(std::move(answer));
  wake_.notify_one();
}

void AnswerThread::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto answer = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      answer();
    } catch (...) {
      // The caller's own affair: the other callers wait for their answers.
    }
    // Destroy what the answer holds without the lock: its destructor may call here.
    answer = nullptr;
    lock.lock();
  }
}

}  // namespace fenceguard
