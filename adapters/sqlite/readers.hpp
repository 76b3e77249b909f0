#pragma once

// Readers: a few threads, each with a connection of its own, for what only looks. They read beside the
// committer (WAL) and see what was committed before they were asked.
//
// Thread-safe.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "adapters/sqlite/database.hpp"
#include "adapters/sqlite/fence_table.hpp"
#include "adapters/sqlite/object_table.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {

// A connection to look through, within one snapshot per call.
struct Snapshot {
  Database& database;
  FenceTable& fences;
  ObjectTable& objects;
};

class Readers {
 public:
  // Throws Unavailable if the file cannot be opened.
  Readers(const std::string& path, unsigned threads);
  // Answers what is queued, then ends.
  ~Readers();
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // The log was settled since: at the end it may be copied into the file.
  void note_log_is_settled() noexcept { log_is_settled_ = true; }

  // Runs look(Snapshot&) -> T in one snapshot and answers it; what it throws is answered as unavailable.
  template <class T, class Look>
  void ask(Look look, Done<T> done) {
    enqueue([look = std::move(look), done = std::move(done)](Snapshot* snapshot) {
      done([&]() -> Outcome<T> {
        if (snapshot == nullptr)
          return Fault{FaultKind::unavailable, "too many reads are waiting: try again later"};
        try {
          return in_snapshot<T>(*snapshot, look);
        } catch (const std::exception& error) {
          rollback(snapshot->database.handle());
          return Fault{FaultKind::unavailable, error.what()};
        }
      }());
    });
  }

 private:
  // Called with null, at once, if the queue is full.
  using Task = std::function<void(Snapshot*)>;

  template <class T, class Look>
  static T in_snapshot(Snapshot& snapshot, const Look& look) {
    execute(snapshot.database.handle(), "BEGIN");
    T answer = look(snapshot);
    rollback(snapshot.database.handle());
    return answer;
  }

  void enqueue(Task task);
  void run(Database& database);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  bool is_stopping_ = false;
  std::atomic<bool> log_is_settled_ = false;
  std::vector<std::unique_ptr<Database>> databases_;
  std::vector<std::thread> threads_;
};

}  // namespace fenceguard::sqlite
