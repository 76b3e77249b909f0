#pragma once

// A sidecar that serves a real SQLite storage on free ports in a folder of its own, and clients of it. Faults
// are put in at the seams: the store and the source of the sidecar are the real ones behind gates.

#include <boost/json/value.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "guard/http/client.hpp"
#include "guard/scheme.hpp"
#include "guard/sidecar/sidecar.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::test {

using Pairs = std::vector<std::pair<std::string, std::string>>;

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

// A token source as it is, but for a gate before the answer to try_acquire and a fault to throw from it.
class GatedSource : public TokenSource {
 public:
  explicit GatedSource(TokenSource& inner) : inner_{inner} {}
  std::variant<Grant, Held> try_acquire(const Resource& resource, const Holder& holder,
                                        std::chrono::milliseconds ttl) override;
  Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override {
    return inner_.renew(claim, ttl);
  }
  Release release(const Claim& claim) override { return inner_.release(claim); }
  Release end(const Resource& resource) override { return inner_.end(resource); }
  std::optional<LeaseRecord> show(const Resource& resource) override { return inner_.show(resource); }
  void raise(const Resource& resource, Token mark) override { inner_.raise(resource, mark); }
  Token draw() override { return inner_.draw(); }
  std::optional<Token> lowest_live() override;

  Gate granted;                                // after the source has decided, before anybody hears of it
  std::atomic<bool> loses_answers{false};      // the grant happens, but its answer is unknown
  std::atomic<bool> counts_separately{false};  // as a source with several counters

 private:
  TokenSource& inner_;
};

// A fence store as it is, but for faults and a hook of advances. The other calls pass.
class GatedFences : public FenceStore {
 public:
  explicit GatedFences(FenceStore& inner) : inner_{inner} {}
  StoreStatus status() const override { return inner_.status(); }
  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override {
    inner_.revoke(std::move(resource), std::move(lease), std::move(done));
  }
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

  // How the next advances end, instead of being passed on.
  void set_fault(std::optional<FaultKind> kind);

 private:
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

struct RunningOptions {
  RunningOptions() { storage.initialise = true; }

  SidecarOptions sidecar;
  StorageOptions storage;
  bool has_source = true;
  bool has_own_source = true;  // false: a source in a file of its own, which can fall behind
};

class Running {
 public:
  explicit Running(RunningOptions options = {});
  ~Running();

  // One request on a connection of its own.
  http::Response data(const std::string& method, const std::string& target, const Pairs& fields = {},
                      const std::string& body = {}) const;
  http::Response control(const std::string& method, const std::string& target, const std::string& json = {},
                         const Pairs& fields = {}) const;
  // A lease as POST /v1/leases gives it; members as JSON without braces.
  http::Response acquire(const std::string& members) const {
    return control("POST", "/v1/leases", "{" + members + "}");
  }
  http::Response release(const std::string& resource, const Pairs& claim) const {
    return control("DELETE", "/v1/leases/" + resource, {}, claim);
  }
  // The value behind NAME in the metrics, labels included in NAME; 0 if there is none.
  double metric(const std::string& name) const;
  // The lease that the source has, if any.
  std::optional<LeaseRecord> lease(const std::string& resource) const;

  Sidecar& sidecar() const { return *sidecar_; }
  GatedSource& source() { return *source_; }
  GatedFences& fences() { return storage_->fences(); }
  GatedObjects& objects() { return *storage_->objects(); }
  const http::TemporaryFolder& folder() const { return folder_; }

 private:
  http::TemporaryFolder folder_;
  std::unique_ptr<Storage> real_storage_;
  std::unique_ptr<TokenSource> other_source_;
  std::unique_ptr<GatedStorage> storage_;
  std::unique_ptr<GatedSource> source_;
  std::unique_ptr<Sidecar> sidecar_;
};

// How a client is told where ADDRESS is.
[[nodiscard]] std::string server_url(const std::string& address);

[[nodiscard]] Pairs claim_fields(std::int64_t token, const std::string& holder = "h");
[[nodiscard]] std::string field(const http::Response& response, const std::string& name);
[[nodiscard]] boost::json::value json_of(const http::Response& response);
// The NAME of urn:fenceguard:problem:NAME; empty if the body is no problem.
[[nodiscard]] std::string problem_of(const http::Response& response);
// The token and holder that a lease's answer grants, as header fields.
[[nodiscard]] Pairs granted_claim(const http::Response& response);

}  // namespace fenceguard::test
