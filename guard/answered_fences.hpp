#pragma once

// AnsweredFences: a fence store for one that answers where it likes (from a cache, on the thread of whoever
// ended what was waited for), as FenceStore promises it: on a thread of its own, after the call.
//
// Thread-safe.

#include "guard/answer_thread.hpp"
#include "guard/fence_store.hpp"

namespace fenceguard {

class AnsweredFences : public FenceStore {
 public:
  // REQUIRES: store outlives it, and answers whatever is called in its lifetime before it ends.
  // answers outlives store.
  AnsweredFences(FenceStore& store, AnswerThread& answers) : store_{store}, answers_{answers} {}

  [[nodiscard]] StoreStatus status() const override { return store_.status(); }
  void advance(Claim claim, Done<Ruling> done) override {
    store_.advance(std::move(claim), answers_.wrap(std::move(done)));
  }
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override {
    store_.revoke(std::move(resource), std::move(lease), answers_.wrap(std::move(done)));
  }
  void compact(Token lowest_live, Done<Compaction> done) override {
    store_.compact(lowest_live, answers_.wrap(std::move(done)));
  }
  void show(Resource resource, Done<FenceView> done) override {
    store_.show(std::move(resource), answers_.wrap(std::move(done)));
  }
  void list(FenceListing listing, Done<FencePage> done) override {
    store_.list(std::move(listing), answers_.wrap(std::move(done)));
  }
  void init(std::int64_t floor, Done<std::int64_t> done) override {
    store_.init(floor, answers_.wrap(std::move(done)));
  }
  void rebase(Rebase rebase, Done<FenceView> done) override {
    store_.rebase(std::move(rebase), answers_.wrap(std::move(done)));
  }

 private:
  FenceStore& store_;
  AnswerThread& answers_;
};

}  // namespace fenceguard
