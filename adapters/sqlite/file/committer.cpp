#include "adapters/sqlite/file/committer.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace fenceguard::sqlite {
namespace {

constexpr std::size_t batch_works_max = 1024;
constexpr std::size_t queue_works_max = 100'000;
constexpr std::size_t queue_bytes_max = 256UL * 1024 * 1024;
constexpr std::chrono::milliseconds look_again_after{200};
// The log is copied into the file when it has about this many pages.
constexpr int checkpoint_pages = 4000;
// On a slow disk a batch waits for the callers whose answers just went out and that will soon ask again:
// otherwise two halves of them take turns, and each sync serves only one half. On a fast one the halves keep
// two processors busy, and waiting costs more than it brings.
constexpr std::chrono::microseconds slow_sync{200};
constexpr int linger_divisor = 4;
constexpr std::chrono::nanoseconds linger_max{5'000'000};

// Processor time of the calling thread.
std::chrono::nanoseconds worked() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

}  // namespace

Committer::Committer(Open open, const std::string& path)
    : open_{std::move(open)},
      not_initialised_{
          fmt::format("no state was found in {0} (namespace not initialised: claims are refused): run "
                      "'fenceguard fence init --storage sqlite:{0}' with --source, or --floor N (or start "
                      "'fenceguard serve' with --init)",
                      path)},
      transaction_{open_()} {
  publish();
  thread_ = std::thread{[this] { run(); }};
}

Committer::~Committer() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Committer::submit(std::unique_ptr<Work> work) {
  std::optional<Fault> fault;
  {
    const std::scoped_lock lock{mutex_};
    const std::size_t bytes = work->bytes();
    if (status_.state == StoreState::failed) {
      fault = Fault{FaultKind::unavailable, status_.reason};
    } else if (status_.state == StoreState::uninitialised && work->needs_namespace()) {
      fault = Fault{FaultKind::unavailable, status_.reason};
    } else if (queue_.size() >= queue_works_max || queue_bytes_ + bytes > queue_bytes_max) {
      fault = Fault{FaultKind::unavailable, "too many writes are waiting for the disk: try again later"};
    } else {
      queue_.push_back(std::move(work));
      queue_bytes_ += bytes;
      if (works_wanted_ > 0 && queue_.size() >= works_wanted_) wake_.notify_one();
      return;
    }
  }
  work->finish(&*fault);
}

StoreStatus Committer::status() const {
  const std::scoped_lock lock{mutex_};
  return status_;
}

void Committer::run() {
  for (;;) {
    Batch batch = next_batch();
    look_after_state();
    if (!batch.empty()) {
      commit_batch(std::move(batch));
      continue;
    }
    const std::scoped_lock lock{mutex_};
    if (is_stopping_ && queue_.empty()) return;
  }
}

// Waits for works. Empty after a while if there are none and the state wants looking after, or at the end.
Committer::Batch Committer::next_batch() {
  std::unique_lock lock{mutex_};
  works_wanted_ = 1;
  const auto has_work = [this] { return !queue_.empty() || is_stopping_; };
  if (status_.state == StoreState::ready) {
    wake_.wait(lock, has_work);
  } else {
    wake_.wait_for(lock, look_again_after, has_work);
  }
  if (queue_.size() < works_last_ && linger_.count() > 0) {
    works_wanted_ = works_last_;
    wake_.wait_for(lock, linger_, [this] { return queue_.size() >= works_wanted_ || is_stopping_; });
  }
  works_wanted_ = 0;
  works_last_ = queue_.size();
  queue_bytes_ = 0;
  return std::exchange(queue_, {});
}

// Another process may have initialised the namespace; a store that failed is opened again.
void Committer::look_after_state() {
  const StoreState state = state_.load();
  if (state == StoreState::ready) return;
  try {
    if (state == StoreState::failed) {
      transaction_.reset();
      transaction_ = open_();
    } else {
      transaction_->look_again();
    }
    publish();
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Committer::commit_batch(Batch batch) {
  while (!batch.empty()) {
    const auto part_end =
        batch.begin() + static_cast<std::ptrdiff_t>(std::min(batch.size(), batch_works_max));
    Batch part{std::make_move_iterator(batch.begin()), std::make_move_iterator(part_end)};
    batch.erase(batch.begin(), part_end);
    const auto fault = commit_part(part);
    const bool is_committed = !fault && !part.empty();
    finish_all(part, fault ? &*fault : nullptr);
    if (is_committed) checkpoint_if_due();
  }
}

// Applies and commits; the works that stay in the batch are still to be answered, with this fault if there is
// one.
std::optional<Fault> Committer::commit_part(Batch& part) {
  if (state_.load() == StoreState::failed) return Fault{FaultKind::unavailable, status().reason};
  bool is_committed = false;
  try {
    while (!apply_all(part)) {
    }
    if (part.empty()) return std::nullopt;
    is_committed = commit_timed() == CommitEnding::committed;
  } catch (const std::exception& error) {
    transaction_->rollback();
    return Fault{FaultKind::unavailable, error.what()};
  }
  if (is_committed) {
    publish();
    return std::nullopt;
  }
  fail(
      "a commit's end was not seen, so nothing is written until the file was opened again and its log "
      "settled");
  return Fault{FaultKind::unknown,
               "the commit was begun and its end was not seen: the write may or may not have taken effect"};
}

// Notes how long the disk kept the commit waiting: its time without that in which it was working.
CommitEnding Committer::commit_timed() {
  const auto start = std::chrono::steady_clock::now();
  const auto worked_before = worked();
  const auto ending = transaction_->commit();
  const auto waited = std::chrono::steady_clock::now() - start - (worked() - worked_before);
  linger_ = waited < slow_sync ? std::chrono::nanoseconds{0} : std::min(linger_max, waited / linger_divisor);
  return ending;
}

// Applies the works in one transaction, which stays open. False if one of them failed: it was answered and
// taken out, everything was rolled back, and the rest is to be applied again. Throws if the transaction
// itself is at fault.
bool Committer::apply_all(Batch& batch) {
  if (batch.empty()) return true;
  transaction_->begin();
  for (auto work = batch.begin(); work != batch.end(); ++work) {
    try {
      if ((*work)->needs_namespace() && !transaction_->is_initialised()) throw Unavailable(not_initialised_);
      (*work)->apply(*transaction_);
    } catch (const std::exception& error) {
      transaction_->rollback();
      const Fault fault{FaultKind::unavailable, error.what()};
      finish(**work, &fault);
      batch.erase(work);
      return false;
    }
  }
  return true;
}

void Committer::finish_all(Batch& batch, const Fault* fault) {
  for (auto& work : batch) finish(*work, fault);
  batch.clear();
}

void Committer::finish(Work& work, const Fault* fault) noexcept {
  work.finish(fault);
}

void Committer::fail(const std::string& reason) {
  const std::scoped_lock lock{mutex_};
  status_.state = StoreState::failed;
  status_.reason = reason;
  state_.store(StoreState::failed, std::memory_order_release);
}

void Committer::publish() {
  StoreStatus status;
  if (transaction_->is_initialised()) {
    const NamespaceRow& row = transaction_->row();
    status = {StoreState::ready, "", row.floor, row.highest, row.resources};
  } else {
    status.state = StoreState::uninitialised;
    status.reason = not_initialised_;
  }
  floor_.store(status.floor, std::memory_order_release);
  const std::scoped_lock lock{mutex_};
  status_ = std::move(status);
  state_.store(status_.state, std::memory_order_release);
}

// Without waiting for readers as a rule. Where they keep the log from shrinking, it waits for them a little
// in the end, and if that is in vain not again before the log has doubled: a reader that was stopped must not
// hold up every commit. What fails is tried again after the next commit: until it succeeds the log keeps
// everything.
void Committer::checkpoint_if_due() {
  const int pages = transaction_->database().log_pages();
  if (pages < checkpoint_pages) {
    truncate_pages_ = truncate_pages_min;
    return;
  }
  const bool truncate = pages >= truncate_pages_;
  const int code = truncate ? transaction_->database().truncate_log() : transaction_->database().checkpoint();
  if (truncate && code != SQLITE_OK)
    truncate_pages_ = 2 * std::min(pages, std::numeric_limits<int>::max() / 2);
}

}  // namespace fenceguard::sqlite
