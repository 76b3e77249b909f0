#pragma once

// Space: a namespace of its own in an ensemble, initialised, with a folder for the data of a test; and the
// client that looks past every guard.

#include <fmt/format.h>

#include <atomic>
#include <string>

#include "adapters/zookeeper/fences/fence_admin.hpp"
#include "adapters/zookeeper/guard.hpp"
#include "tests/zookeeper/ensemble.hpp"

namespace fenceguard::test {

// What all tests of a program share that break nothing. One server: three of ZooKeeper 3.8.0 now and then
// leave a fast session without an answer, and what several servers do has tests of its own.
inline Ensemble& shared_ensemble() {
  static Ensemble shared{1};
  return shared;
}

class Space {
 public:
  explicit Space(Ensemble& ensemble = shared_ensemble(), std::int64_t floor = 0)
      : ensemble_{ensemble}, root_{fresh_root()}, client_{ensemble.url(root_)} {
    (void)zookeeper::init(client_, floor);
    client_.connection().session->make_path(data(""));
  }

  // The URL of the namespace: rest is "?timeout=2s" or the like.
  [[nodiscard]] std::string url(const std::string& rest = "") const { return ensemble_.url(root_ + rest); }
  // The same through something else that listens on a port.
  [[nodiscard]] std::string url_by(int port, const std::string& rest = "") const {
    return fmt::format("zookeeper://127.0.0.1:{}{}{}", port, root_, rest);
  }
  [[nodiscard]] const std::string& root() const { return root_; }
  // A path of the test's own data; the folder itself for ''.
  [[nodiscard]] std::string data(const std::string& name) const {
    return root_ + "/data" + (name.empty() ? "" : "/" + name);
  }

  [[nodiscard]] zookeeper::Client& client() { return client_; }
  [[nodiscard]] std::shared_ptr<zookeeper::Session> session() { return client_.connection().session; }

  // What the data is, with everything in it that was committed before.
  [[nodiscard]] zookeeper::Answer get(const std::string& path) {
    const auto session = client_.connection().session;
    (void)session->multi({zookeeper::check(client_.paths().floor(), zookeeper::any_version)});
    return session->get(path);
  }
  [[nodiscard]] FenceView fence(const Resource& resource) { return zookeeper::look(client_, resource); }

 private:
  static std::string fresh_root() {
    static std::atomic<int> number{0};
    return fmt::format("/test-{}/app", ++number);
  }

  Ensemble& ensemble_;
  const std::string root_;
  zookeeper::Client client_;
};

inline Claim claim_of(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
  return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
}

}  // namespace fenceguard::test
