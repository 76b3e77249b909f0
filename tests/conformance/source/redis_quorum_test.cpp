#include <chrono>
#include <memory>
#include <string>

#include "adapters/redis/quorum/source.hpp"
#include "tests/conformance/source/token_source_suite.hpp"
#include "tests/redis/quorum/servers.hpp"

namespace fenceguard::test {
namespace {

// Five servers, which every handle reaches by connections of its own.
class OwnQuorum : public SourceSpace {
 public:
  explicit OwnQuorum(int size) : servers_{size} { (void)open()->draw(); }
  std::unique_ptr<TokenSource> open() override {
    return redis::open_quorum_source(Url::parse(servers_.url("?node_timeout=5s")));
  }

 private:
  QuorumServers servers_;
};

// An exchange with the servers may take a quarter of it, and each of them writes to its disk within that.
constexpr std::chrono::milliseconds least_ttl{2'000};

SourceKind kind(const std::string& name, int size) {
  SourceKind kind{name, [size] { return std::make_unique<OwnQuorum>(size); }, false};
  kind.short_ttl = least_ttl;
  kind.lists = false;
  return kind;
}

INSTANTIATE_TEST_SUITE_P(RedisQuorum, TokenSourceSuite, testing::Values(kind("five", 5), kind("one", 1)),
                         source_kind_name);

}  // namespace
}  // namespace fenceguard::test
