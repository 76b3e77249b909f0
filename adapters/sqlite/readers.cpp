#include "adapters/sqlite/readers.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr std::size_t queue_max = 100'000;

}  // namespace

Readers::Readers(const std::string& path, unsigned threads) {
  for (unsigned i = 0; i < threads; ++i)
    databases_.push_back(std::make_unique<Database>(path, Database::Mode::look));
  for (auto& database : databases_) threads_.emplace_back([this, &database] { run(*database); });
}

Readers::~Readers() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
  if (log_is_settled_) {
    for (auto& database : databases_) database->copy_log_at_close(true);
  }
}

void Readers::enqueue(Task task) {
  {
    const std::scoped_lock lock{mutex_};
    if (queue_.size() < queue_max) {
      queue_.push_back(std::move(task));
      wake_.notify_one();
      return;
    }
  }
  task(nullptr);
}

void Readers::run(Database& database) {
  FenceTable fences{database.handle()};
  ObjectTable objects{database.handle()};
  Snapshot snapshot{database, fences, objects};
  for (;;) {
    Task task;
    {
      std::unique_lock lock{mutex_};
      wake_.wait(lock, [this] { return !queue_.empty() || is_stopping_; });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task(&snapshot);
  }
}

}  // namespace fenceguard::sqlite
