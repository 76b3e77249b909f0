#pragma once

// Gates: a real source and a real storage as they are, but for the moment at which an answer is heard and the
// faults that a test puts in. Thread-safe.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "guard/store/storage.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::test {

// A call that waits here, while the gate is closed, on the caller's thread.
class Gate {
 public:
  ~Gate() { open(); }
  void close();
  void open();
  // Waits until calls are held here. False at the limit.
  [[nodiscard]] bool wait_for_calls(int count = 1);
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  int held_ = 0;
};

// A token source as it is, but for gates and for the faults that a test puts in.
class GatedSource : public TokenSource {
 public:
  explicit GatedSource(TokenSource& inner) : inner_{inner} {}
  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                            std::chrono::milliseconds ttl) override;
  Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override;
  Release release(const Claim& claim) override;
  Release end(const Resource& resource) override { return inner_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override {
    showing.pass();
    return inner_.show(resource);
  }
  void raise(const Resource& resource, Token mark) override { inner_.raise(resource, mark); }
  Token draw() override { return inner_.draw(); }
  std::optional<Token> lowest_live() override;

  Gate asking;                                 // before the source is asked for a lease
  Gate renewing;                               // before it is asked to renew one
  Gate showing;                                // before it is asked for the present lease
  Gate releasing;                              // before it is asked to release one
  Gate granted;                                // after the source has decided, before anybody hears of it
  std::atomic<bool> loses_answers{false};      // the grant happens, but its answer is unknown
  std::atomic<bool> delays_requests{false};    // the answer is unknown, and the grant has not happened yet
  std::atomic<bool> loses_renewals{false};     // nobody knows how they end
  std::atomic<bool> refuses_releases{false};   // nothing is released
  std::atomic<bool> counts_separately{false};  // as a source with several counters

 private:
  TokenSource& inner_;
};

// A fence store as it is, but for faults of advances and revokes. The other calls pass.
class GatedFences : public FenceStore {
 public:
  explicit GatedFences(FenceStore& inner) : inner_{inner} {}
  StoreStatus status() const override { return inner_.status(); }
  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override;
  void compact(Token lowest_live, Done<Compaction> done) override {
    inner_.compact(lowest_live, std::move(done));
  }
  void show(Resource resource, Done<FenceView> done) override {
    inner_.show(std::move(resource), std::move(done));
  }
  void list(FenceListing listing, Done<FencePage> done) override {
    inner_.list(std::move(listing), std::move(done));
  }
  void init(std::int64_t floor, Done<std::int64_t> done) override { inner_.init(floor, std::move(done)); }
  void rebase(Rebase rebase, Done<FenceView> done) override {
    inner_.rebase(std::move(rebase), std::move(done));
  }

  // How the next advances and revokes end, instead of being passed on.
  void set_fault(std::optional<FaultKind> kind);

  Gate advancing;  // before the store is asked to advance

  // A revoke closes the fence, and fails then, as where the end of a write was not seen.
  std::atomic<bool> fails_after_revoke{false};

 private:
  std::optional<Fault> fault();

  FenceStore& inner_;
  std::mutex mutex_;
  std::optional<FaultKind> fault_;
};

// An object store as it is, but for faults.
class GatedObjects : public ObjectStore {
 public:
  explicit GatedObjects(ObjectStore& inner) : inner_{inner} {}
  void write(Claim claim, ObjectWrite write, Done<WriteReport> done) override;
  void read(Read read, Done<ReadReport> done) override;

  // How the next calls end, instead of being passed on.
  void set_fault(std::optional<FaultKind> kind);

 private:
  ObjectStore& inner_;
  std::mutex mutex_;
  std::optional<FaultKind> fault_;
};

class GatedStorage : public Storage {
 public:
  explicit GatedStorage(Storage& inner) : fences_{inner.fences()}, objects_{*inner.objects()} {}
  GatedFences& fences() override { return fences_; }
  GatedObjects* objects() override { return &objects_; }

 private:
  GatedFences fences_;
  GatedObjects objects_;
};

}  // namespace fenceguard::test
