#pragma once

// A sidecar that serves a real SQLite storage on free ports in a folder of its own, and clients of it. Faults
// are put in at the seams: the store and the source of the sidecar are the real ones behind gates.

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "guard/store/storage.hpp"
#include "server/http/client.hpp"
#include "server/sidecar.hpp"
#include "tests/http/support.hpp"
#include "tests/sidecar/gates.hpp"

namespace fenceguard::test {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct RunningOptions {
  RunningOptions() {
    storage.initialise = true;
    sidecar.source_wait = std::chrono::minutes{1};  // a busy machine is no source that hangs
  }

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
  const test::TempDir& folder() const { return folder_; }

 private:
  test::TempDir folder_;
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
