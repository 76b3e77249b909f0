#include "guard/store/completion_thread.hpp"

namespace fenceguard {

CompletionThread::CompletionThread() : thread_{[this] { work(); }} {}

CompletionThread::~CompletionThread() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void CompletionThread::post(std::function<void()> answer) {
  const std::scoped_lock lock{mutex_};
  queue_.push_back(std::move(answer));
  wake_.notify_one();
}

void CompletionThread::work() {
  // All that wait are taken at once: a lock for each would have the threads that post and this one take
  // turns.
  std::vector<std::function<void()>> answers;
  for (;;) {
    {
      std::unique_lock lock{mutex_};
      wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      answers.swap(queue_);
    }
    for (auto& answer : answers) {
      try {
        answer();
      } catch (...) {
        // The caller's own affair: the other callers wait for their answers.
      }
      answer = nullptr;  // what it holds goes before the next answer is given
    }
    answers.clear();
  }
}

}  // namespace fenceguard
