#pragma once

// CompletionOnThread: makes FenceStore's promise good for a store that answers on any thread, also before the
// call has returned (from a cache, from a committer): all its answers come after the call, on a thread of
// their own.
//
// It outlives that store, because an answer that is still to be given may call again: such a call is refused.
// In a storage it is declared before the store and what the store needs, and its Access after them:
//   CompletionOnThread answered_;
//   SomeFences fences_;
//   CompletionOnThread::Access access_{answered_, fences_};
//
// Thread-safe.

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "guard/store/completion_thread.hpp"
#include "guard/store/fence_store.hpp"

namespace fenceguard {

class CompletionOnThread : public FenceStore {
 public:
  // Lets calls through to a store for as long as it lives. REQUIRES: one at a time; the store outlives it,
  // and answers every call before its own end.
  class Access {
   public:
    Access(CompletionOnThread& fences, FenceStore& store) : fences_{fences} {
      fences_.let_through_to(&store);
    }
    // Waits until the calls under way have returned, not for their answers.
    ~Access() { fences_.let_through_to(nullptr); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    CompletionOnThread& fences_;
  };

  [[nodiscard]] StoreStatus status() const override {
    const std::shared_lock lock{mutex_};
    if (store_ == nullptr) return {StoreState::failed, stopping};
    return store_->status();
  }
  void advance(Claim claim, Done<Ruling> done) override {
    if (const auto call = begin(done)) call.store->advance(std::move(claim), std::move(done));
  }
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override {
    if (const auto call = begin(done))
      call.store->revoke(std::move(resource), std::move(lease), std::move(done));
  }
  void compact(Token lowest_live, Done<Compaction> done) override {
    if (const auto call = begin(done)) call.store->compact(lowest_live, std::move(done));
  }
  void show(Resource resource, Done<FenceView> done) override {
    if (const auto call = begin(done)) call.store->show(std::move(resource), std::move(done));
  }
  void list(FenceListing listing, Done<FencePage> done) override {
    if (const auto call = begin(done)) call.store->list(std::move(listing), std::move(done));
  }
  void init(std::int64_t floor, Done<std::int64_t> done) override {
    if (const auto call = begin(done)) call.store->init(floor, std::move(done));
  }
  void rebase(Rebase rebase, Done<FenceView> done) override {
    if (const auto call = begin(done)) call.store->rebase(std::move(rebase), std::move(done));
  }

 private:
  static constexpr const char* stopping = "the guard is stopping";

  void let_through_to(FenceStore* store) {
    const std::unique_lock lock{mutex_};
    store_ = store;
  }

  // The store, which does not end meanwhile; null: it has ended.
  struct Call {
    std::shared_lock<std::shared_mutex> lock;
    FenceStore* store;
    explicit operator bool() const { return store != nullptr; }
  };

  // Lets done be called on the thread of the answers; refuses the call where there is no store.
  template <class T>
  [[nodiscard]] Call begin(Done<T>& done) {
    Call call{std::shared_lock{mutex_}, store_};
    done = answers_.wrap<T>(std::move(done));
    if (!call) done(Fault{FaultKind::unavailable, stopping});
    return call;
  }

  mutable std::shared_mutex mutex_;
  FenceStore* store_ = nullptr;  // guarded by mutex_
  CompletionThread answers_;     // last, so that it ends first: what it still gives may call here
};

}  // namespace fenceguard
