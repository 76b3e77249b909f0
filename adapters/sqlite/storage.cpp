#include "adapters/sqlite/storage.hpp"

#include <algorithm>

#include "adapters/sqlite/fences/lane_state.hpp"
#include "adapters/sqlite/fences/resource_depth.hpp"
#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/file/submit.hpp"
#include "adapters/sqlite/objects/object_store.hpp"
#include "adapters/sqlite/token_source.hpp"
#include "guard/store/completion_on_thread.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr unsigned reader_threads = 2;

class EmbeddedStorage : public Storage {
 public:
  EmbeddedStorage(const std::string& path, const StorageOptions& options)
      : lock_{path, GuardLock::Kind::guard, options.lock_wait},
        cache_{options.cache_entries},
        readers_{path, reader_threads},
        fences_{committer_, readers_, cache_, options.jump_max},
        objects_{fences_, committer_, readers_, options.jump_max},
        source_{committer_},
        lane_state_{committer_, path, options.jump_max},
        depth_record_{committer_},
        committer_{[this, path] { return std::make_unique<FenceTransaction>(path, cache_); }, path} {
    readers_.note_log_is_settled();
    if (options.initialise && committer_.status().state == StoreState::uninitialised) initialise();
  }

  FenceStore& fences() override { return answered_; }
  ObjectStore* objects() override { return &objects_; }
  LaneState* lane_state() override { return &lane_state_; }
  DepthRecord* depth_record() override { return &depth_record_; }
  TokenSource* own_source() override { return &source_; }
  bool initialises_itself() const noexcept override { return true; }

 private:
  // New data with numbers of its own: the floor is what the file's own counter has reached, 0 in a new file.
  void initialise() {
    const auto apply = [](FenceTransaction& transaction) -> Outcome<bool> {
      if (!transaction.is_initialised()) transaction.initialise(transaction.leases().last_drawn());
      return true;
    };
    (void)submit_and_wait<bool>(committer_, Needs::nothing, apply);
  }

  CompletionOnThread answered_;  // first, so that it ends last
  GuardLock lock_;
  FenceCache cache_;
  Readers readers_;
  EmbeddedFences fences_;
  EmbeddedObjects objects_;
  LeaseSource source_;
  EmbeddedLaneState lane_state_;
  EmbeddedDepthRecord depth_record_;
  Committer committer_;  // behind these, so that it ends before: what it still answers may use all of them
  CompletionOnThread::Access access_{answered_, fences_};
};

// Looks beside a running guard. Of all changes only the first init is possible, because an uninitialised
// guard has nothing in its cache and looks for it.
class FenceInspector : public FenceStore {
 public:
  explicit FenceInspector(const std::string& path) : path_{path}, readers_{path, 1} {}

  [[nodiscard]] StoreStatus status() const override {
    Database database{path_, Database::Mode::look};
    const auto row = FenceTable{database.handle()}.load_namespace();
    if (!row) return {StoreState::uninitialised, "not initialised", 0, 0, 0};
    return {StoreState::ready, "", row->floor, row->highest, row->resources};
  }
  void advance(Claim, Done<Ruling> done) override { done(refusal()); }
  void revoke(Resource, std::optional<Claim>, Done<FenceView> done) override { done(refusal()); }
  void compact(Token, Done<Compaction> done) override { done(refusal()); }
  void rebase(Rebase, Done<FenceView> done) override { done(refusal()); }
  void show(Resource resource, Done<FenceView> done) override {
    readers_.ask<FenceView>(
        [resource = std::move(resource)](Snapshot& snapshot) { return snapshot.fences.view(resource); },
        std::move(done));
  }
  void list(FenceListing listing, Done<FencePage> done) override {
    readers_.ask<FencePage>(
        [listing = std::move(listing)](Snapshot& snapshot) { return snapshot.fences.list(listing); },
        std::move(done));
  }
  void init(std::int64_t floor, Done<std::int64_t> done) override {
    try {
      done(initialise(floor));
    } catch (const std::exception&) {
      done(current_fault());
    }
  }

 private:
  [[nodiscard]] Outcome<std::int64_t> initialise(std::int64_t floor) {
    Database database{path_, Database::Mode::read_write};
    FenceTable table{database.handle()};
    database.begin();
    if (table.load_namespace()) {
      rollback(database.handle());
      return refusal();
    }
    table.store_namespace(table.fresh_namespace(floor));
    if (database.commit() == CommitEnding::committed) return floor;
    return Fault{FaultKind::unknown, "the commit was begun and its end was not seen: run it again"};
  }

  [[nodiscard]] Fault refusal() const {
    return {FaultKind::unavailable,
            path_ +
                " is only looked at here: its guard may be running; ask that one (--server "
                "http://HOST:PORT), or stop it first"};
  }

  const std::string path_;
  Readers readers_;
};

class InspectorStorage : public Storage {
 public:
  explicit InspectorStorage(const std::string& path) : fences_{path} {}
  FenceStore& fences() override { return answered_; }

 private:
  CompletionOnThread answered_;  // first, so that it ends last
  FenceInspector fences_;
  CompletionOnThread::Access access_{answered_, fences_};
};

}  // namespace

std::unique_ptr<Storage> open_storage(const std::string& path, const StorageOptions& options) {
  if (options.mode == StorageOptions::Mode::inspect) {
    prepare_file(path, Missing::refuse);
    return std::make_unique<InspectorStorage>(path);
  }
  prepare_file(path, Missing::create, options.lock_wait);
  return std::make_unique<EmbeddedStorage>(path, options);
}

}  // namespace fenceguard::sqlite
