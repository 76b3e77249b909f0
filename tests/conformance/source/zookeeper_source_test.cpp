#include <atomic>

#include "adapters/zookeeper/token_source.hpp"
#include "tests/conformance/source/token_source_suite.hpp"
#include "tests/zookeeper/ensemble.hpp"

namespace fenceguard::test {
namespace {

// One ensemble for all tests; each has a root of its own, and so a namespace.
class OwnRoot : public SourceSpace {
 public:
  OwnRoot(const std::string& user, const std::string& parameters) {
    static const Ensemble ensemble;
    static std::atomic<int> count{0};
    // Leases of a minute want a session of a minute and a half.
    auto rest = "/space#" + parameters + (parameters.empty() ? "?" : "&") + "session_timeout=90s&timeout=60s";
    const auto number = std::to_string(++count);
    for (auto at = rest.find('#'); at != rest.npos; at = rest.find('#')) rest.replace(at, 1, number);
    url_ = ensemble.url(rest);
    url_.insert(url_.find("//") + 2, user);
  }
  std::unique_ptr<TokenSource> open() override { return zookeeper::open_source(Url::parse(url_)); }

 private:
  std::string url_;
};

SourceKind kind(const std::string& name, const std::string& user, const std::string& parameters) {
  return {name, [user, parameters] { return std::make_unique<OwnRoot>(user, parameters); }};
}

INSTANTIATE_TEST_SUITE_P(ZooKeeper, TokenSourceSuite,
                         testing::Values(kind("plain", "", ""), kind("curator", "", "?layout=curator"),
                                         kind("lock_path", "", "?lock_path=/their#/%25s/lock"),
                                         kind("digest", "ann:secret@", "")),
                         source_kind_name);

}  // namespace
}  // namespace fenceguard::test
