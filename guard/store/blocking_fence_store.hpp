#pragma once

// BlockingFenceStore: a FenceStore of blocking drivers, with a driver for each of its threads. Changes and
// looks have threads of their own, so that advances that wait for older writes do not hold up looks. Changes
// of one resource are made one after another, in the order of their calls. All answers come on one more
// thread of the store's.
//
// status() is as last seen, at most a second or so ago; it is 'failed' once a look has no reply within 5 s.
// A store that is inspecting refuses every change.
//
// Thread-safe.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "guard/store/completion_thread.hpp"
#include "guard/store/executor.hpp"
#include "guard/store/fence_driver.hpp"
#include "guard/store/storage.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard {

class BlockingFenceStore : public FenceStore {
 public:
  struct Setup {
    std::string shown;  // the server, for messages: a URL without its password
    StorageOptions::Mode mode = StorageOptions::Mode::guard;
    std::function<std::unique_ptr<FenceDriver>()> make_driver;
    std::function<std::string(const Resource&)> objection{};  // see FenceStore; null: to none
  };

  // Throws what FenceDriver::connect() throws. Later the server may come and go.
  explicit BlockingFenceStore(const Setup& setup);
  // Refuses what waits; gives what runs a grace, and then cancels it.
  ~BlockingFenceStore() override;

  [[nodiscard]] std::string objection_to(const Resource& resource) const override {
    return objection_ ? objection_(resource) : std::string{};
  }
  [[nodiscard]] StoreStatus status() const override;
  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override;
  void compact(Token lowest_live, Done<Compaction> done) override;
  void show(Resource resource, Done<FenceView> done) override;
  void list(FenceListing listing, Done<FencePage> done) override;
  void init(std::int64_t floor, Done<std::int64_t> done) override;
  void rebase(Rebase rebase, Done<FenceView> done) override;

 private:
  // Threads with a driver each.
  struct Workers {
    Workers(std::size_t threads, const Setup& setup);
    void cancel_older_than(std::chrono::milliseconds limit);
    void end();

    std::vector<std::unique_ptr<FenceDriver>> drivers;
    Executor executor;
  };

  // What the looks at the server have shown. Of two that go side by side the one that began later counts.
  class SeenStatus {
   public:
    [[nodiscard]] const StoreStatus& status() const { return status_; }
    // The number of a look that begins now, for show().
    [[nodiscard]] std::int64_t begin_look() { return ++looks_begun_; }
    void show(std::int64_t look, Outcome<StoreStatus> seen);
    // A token that an advance has left there. It is shown at once, and a look that began before it may miss
    // it.
    void note_highest(std::int64_t token);
    void fail(std::string reason);

   private:
    StoreStatus status_;
    std::int64_t looks_begun_ = 0;
    std::int64_t look_shown_ = 0;     // the one that status_ is of
    std::int64_t noted_after_ = 0;    // the look that had begun last when a token was noted last
    std::int64_t noted_highest_ = 0;  // of the tokens noted since that look began
  };

  // Answers call(driver) -> T, or its exception as a fault.
  template <class T, class Call>
  void submit(Workers& workers, Call call, Done<T> done, std::string order = {});
  template <class T, class Call>
  void change(Call call, Done<T> done, std::string order = {});

  void look(FenceDriver& driver);
  void note_highest(std::int64_t token);
  void keep_status();

  const std::string shown_;
  const bool is_inspecting_;
  const std::function<std::string(const Resource&)> objection_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable wake_;
  SeenStatus seen_;
  std::optional<BootClock::time_point> asked_at_;  // the look that is under way every second
  bool is_stopping_ = false;

  Workers changes_;
  Workers looks_;
  Workers status_looks_;  // one, beside the shows and lists, which may hang
  std::thread keeper_;
  CompletionThread answers_;  // last, so that it ends first: what it still gives may call here
};

// A storage whose clients write to the server themselves: there are fences and a token source here, and no
// objects. The source is opened after the fences, and not at all where they are inspected.
struct ServerStorageSetup {
  BlockingFenceStore::Setup fences;
  std::function<std::unique_ptr<TokenSource>()> open_source;
  bool initialises_itself = false;
};
[[nodiscard]] std::unique_ptr<Storage> open_server_storage(const ServerStorageSetup& setup);

}  // namespace fenceguard
