#include <atomic>

#include "adapters/etcd/token_source.hpp"
#include "tests/conformance/source/token_source_suite.hpp"
#include "tests/etcd/cluster.hpp"

namespace fenceguard::test {
namespace {

// etcd counts in seconds.
constexpr std::chrono::milliseconds least_ttl{1'000};

// One of each kind for all tests; each has a prefix of its own, and so a namespace. One member each: it
// elects no other leader when the machine is busy.
EtcdCluster& plain_cluster() {
  static EtcdCluster cluster{1};
  return cluster;
}

EtcdCluster& closed_cluster() {
  static EtcdCluster cluster{1};
  static const bool is_closed = (cluster.enable_auth("app", "se:cr/et", "spaces/"), true);
  (void)is_closed;
  return cluster;
}

EtcdCluster& tls_cluster() {
  static EtcdCluster cluster{1, {.arguments = {}, .tls = true}};
  return cluster;
}

class OwnPrefix : public SourceSpace {
 public:
  // url_of makes a URL of a prefix.
  explicit OwnPrefix(const std::function<std::string(const std::string&)>& url_of) {
    static std::atomic<int> count{0};
    url_ = url_of("/spaces/" + std::to_string(++count));
  }
  std::unique_ptr<TokenSource> open() override { return etcd::open_source(Url::parse(url_)); }

 private:
  std::string url_;
};

SourceKind kind(const std::string& name, std::function<std::string(const std::string&)> url_of) {
  SourceKind kind{name, [url_of] { return std::make_unique<OwnPrefix>(url_of); }};
  kind.short_ttl = least_ttl;
  return kind;
}

std::string plain(const std::string& prefix) {
  return plain_cluster().url(prefix);
}

std::string with_lock_key(const std::string& prefix) {
  return plain_cluster().url(prefix + "?lock_key=their" + prefix + "/%25s/lock");
}

std::string with_password(const std::string& prefix) {
  return closed_cluster().url(prefix, "app:se%3Acr%2Fet@");
}

std::string by_tls(const std::string& prefix) {
  return tls_cluster().url(prefix + "?" + tls_cluster().tls_parameters());
}

INSTANTIATE_TEST_SUITE_P(Etcd, TokenSourceSuite,
                         testing::Values(kind("plain", plain), kind("lock_key", with_lock_key),
                                         kind("auth", with_password), kind("tls", by_tls)),
                         source_kind_name);

}  // namespace
}  // namespace fenceguard::test
