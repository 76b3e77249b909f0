#pragma once

// Committer: the one thread that writes to a file. Whatever waits is applied in one transaction and made
// durable by one fsync (group commit), and is answered after that; so no verdict rests on an advance that is
// not yet durable, and no write under a lower token is ever under way while a higher one is judged: the queue
// is the drain.
//
// A transaction that fails before its COMMIT was certainly not applied: its works are answered 'unavailable'.
// One whose COMMIT fails is unknown; then nothing is written any more until the file was closed, opened again
// and its log settled (FenceTransaction), which is tried five times a second.
//
// Thread safety: submit() and status() from any thread.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "adapters/sqlite/file/fence_transaction.hpp"
#include "guard/error.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::sqlite {

// One thing to be done in a shared transaction.
class Work {
 public:
  virtual ~Work() = default;
  // In the transaction, on the committer's thread. What it throws fails this work alone. May be called again
  // after a rollback, so it keeps its answer to itself until finish().
  virtual void apply(FenceTransaction& transaction) = 0;
  // After the commit (no fault), or after the failure. Must not throw.
  virtual void finish(const Fault* fault) = 0;
  // Size of the payload, against an unlimited queue.
  [[nodiscard]] virtual std::size_t bytes() const { return 0; }
  // Whether it needs the namespace to be initialised.
  [[nodiscard]] virtual bool needs_namespace() const { return true; }
};

class Committer {
 public:
  using Open = std::function<std::unique_ptr<FenceTransaction>()>;

  // path is for sentences. Opens through open, in the calling thread; what it throws passes through. It is
  // called again after a failure.
  explicit Committer(Open open, const std::string& path);
  // Applies what is queued, then ends.
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Queues work; it is finished exactly once, on the committer's thread, or at once in the calling one if the
  // queue is full or the store has failed.
  void submit(std::unique_ptr<Work> work);

  // Never blocks for I/O.
  [[nodiscard]] StoreStatus status() const;
  [[nodiscard]] bool is_ready() const noexcept {
    return state_.load(std::memory_order_acquire) == StoreState::ready;
  }
  [[nodiscard]] std::int64_t floor() const noexcept { return floor_.load(std::memory_order_acquire); }

 private:
  using Batch = std::vector<std::unique_ptr<Work>>;

  void run();
  [[nodiscard]] Batch next_batch();
  [[nodiscard]] CommitEnding commit_timed();
  void look_after_state();
  void commit_batch(Batch batch);
  [[nodiscard]] std::optional<Fault> commit_part(Batch& part);
  [[nodiscard]] bool apply_all(Batch& batch);
  void finish_all(Batch& batch, const Fault* fault);
  static void finish(Work& work, const Fault* fault) noexcept;
  void fail(const std::string& reason);
  void publish();
  void checkpoint_if_due();

  // The log is emptied, which waits for readers a little, when it has this many pages.
  static constexpr int truncate_pages_min = 40'000;
  int truncate_pages_ = truncate_pages_min;

  const Open open_;
  const std::string not_initialised_;  // the sentence
  std::unique_ptr<FenceTransaction> transaction_;
  std::atomic<StoreState> state_{StoreState::ready};
  std::atomic<std::int64_t> floor_{0};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Batch queue_;
  std::size_t queue_bytes_ = 0;
  std::size_t works_wanted_ = 0;        // how many wake the thread; 0: it does not wait
  std::size_t works_last_ = 0;          // in the last batch
  std::chrono::nanoseconds linger_{0};  // how long a batch may wait to become as large as the last one
  bool is_stopping_ = false;
  StoreStatus status_;
  std::thread thread_;
};

}  // namespace fenceguard::sqlite
