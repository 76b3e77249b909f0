#include <vector>

#include "adapters/redis/quorum/source.hpp"
#include "tests/conformance/token_source_suite.hpp"
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

SourceKind kind(const std::string& name, int size) {
  return {name, [size] { return std::make_unique<OwnQuorum>(size); }, false};
}

INSTANTIATE_TEST_SUITE_P(RedisQuorum, TokenSourceSuite, testing::Values(kind("five", 5), kind("one", 1)),
                         source_kind_name);

}  // namespace
}  // namespace fenceguard::test
