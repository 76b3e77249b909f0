#pragma once

// Readers: a few threads, each with a connection of its own, for what only looks. They read beside the
// committer (WAL) and see what was committed before they were asked.
//
// Thread-safe.

#include <atomic>
#include <deque>
#include <string>

#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/database.hpp"
#include "adapters/sqlite/objects/object_table.hpp"
#include "guard/error.hpp"
#include "guard/store/executor.hpp"

namespace fenceguard::sqlite {

// A connection to look through, within one snapshot per call.
struct Snapshot {
  explicit Snapshot(const std::string& path) : database{path, Database::Mode::look} {}

  Database database;
  FenceTable fences{database.handle()};
  ObjectTable objects{database.handle()};
};

class Readers {
 public:
  // Throws Unavailable if the file cannot be opened.
  Readers(const std::string& path, unsigned threads);
  // Finishes what runs and refuses what waits, then ends.
  ~Readers();
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // The log was settled since: at the end it may be copied into the file.
  void note_log_is_settled() noexcept { log_is_settled_ = true; }

  // Runs look(Snapshot&) -> T in one snapshot and answers it; what it throws is answered as unavailable.
  // Where too many wait, the answer comes at once.
  template <class T, class Look>
  void ask(Look look, Done<T> done) {
    auto run = [this, look = std::move(look), done = std::move(done)](std::size_t worker,
                                                                      const Fault* refusal) {
      done(refusal != nullptr ? Outcome<T>{*refusal} : in_snapshot<T>(snapshots_[worker], look));
    };
    executor_.post({.run = std::move(run)});
  }

 private:
  template <class T, class Look>
  static Outcome<T> in_snapshot(Snapshot& snapshot, const Look& look) {
    try {
      execute(snapshot.database.handle(), "BEGIN");
      T answer = look(snapshot);
      rollback(snapshot.database.handle());
      return answer;
    } catch (const std::exception& error) {
      rollback(snapshot.database.handle());
      return Fault{FaultKind::unavailable, error.what()};
    }
  }

  std::atomic<bool> log_is_settled_ = false;
  std::deque<Snapshot> snapshots_;  // one a thread
  Executor executor_;
};

}  // namespace fenceguard::sqlite
