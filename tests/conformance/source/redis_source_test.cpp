#include <atomic>

#include "adapters/redis/token_source.hpp"
#include "tests/conformance/source/token_source_suite.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::test {
namespace {

// One for all tests; each has a prefix of its own, and so a namespace.
std::string url_of_shared_server(const std::string& rest) {
  static const RedisServer server;
  return server.url(rest);
}

std::string url_of_shared_cluster(const std::string& rest) {
  static const RedisCluster cluster;
  return cluster.url(rest);
}

class OwnPrefix : public SourceSpace {
 public:
  using UrlOf = std::function<std::string(const std::string&)>;
  OwnPrefix(const UrlOf& url_of, const std::string& parameters) {
    static std::atomic<int> count{0};
    const auto number = std::to_string(++count);
    auto rest = "/?prefix=space" + number + ":" + parameters;
    if (const auto at = rest.find('#'); at != rest.npos) rest.replace(at, 1, number);
    url_ = url_of(rest);
  }
  std::unique_ptr<TokenSource> open() override { return redis::open_source(Url::parse(url_)); }

 private:
  std::string url_;
};

SourceKind kind(const std::string& name, const std::string& parameters) {
  return {name, [parameters] { return std::make_unique<OwnPrefix>(url_of_shared_server, parameters); }};
}

SourceKind kind_in_cluster(const std::string& name, const std::string& parameters) {
  return {name,
          [parameters] { return std::make_unique<OwnPrefix>(url_of_shared_cluster, parameters); },
          false,
          false,
          std::chrono::milliseconds{300},
          false};
}

INSTANTIATE_TEST_SUITE_P(Redis, TokenSourceSuite,
                         testing::Values(kind("plain", ""), kind("fair", "&fair=1"),
                                         kind("lock_key", "&lock_key=their#:%25s:lock"),
                                         kind("fair_lock_key", "&fair=1&lock_key=their#:%25s"),
                                         kind_in_cluster("cluster", ""),
                                         kind_in_cluster("cluster_fair", "&fair=1")),
                         source_kind_name);

}  // namespace
}  // namespace fenceguard::test
