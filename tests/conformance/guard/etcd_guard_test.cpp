#include <fmt/format.h>

#include <atomic>

#include "adapters/etcd/fences/fence_keys.hpp"
#include "adapters/etcd/guard.hpp"
#include "tests/conformance/guard/guard_suite.hpp"
#include "tests/etcd/cluster.hpp"

namespace fenceguard::test {
namespace {

// How a service writes: each of the ways must give the same rulings.
enum class Way { write, several_claims, own_transaction };

// One member elects no other leader when the machine is busy.
etcd::Address address(const std::string& prefix) {
  static const EtcdCluster cluster{1};
  return etcd::address_of(Url::parse(cluster.url("/" + prefix)));
}

// A namespace of its own on a cluster that all share.
class EtcdSpace : public GuardSpace {
 public:
  EtcdSpace(Way way, const GuardKind::Start& start) : way_{way}, client_{address(next_prefix())} {
    const auto set = [&](const std::string& key, const std::string& value) {
      (void)client_.txn({{}, {etcd::put(key, value)}, {}});
    };
    set(keys_.floor(), std::to_string(start.floor));
    for (const auto& [resource, fence] : start.records) set(keys_.fence(resource), text_of(fence));
    set(keys_.fence(other().resource), text_of({other().token, other().holder, {}}));
  }

  std::unique_ptr<GuardConnection> connect() override {
    return std::make_unique<Connection>(way_, client_.address());
  }

  FenceView fence(const Resource& resource) override {
    return {etcd::fence_in(client_.range(etcd::get(keys_.fence(resource))), resource),
            etcd::floor_in(client_.range(etcd::get(keys_.floor()))).value()};
  }

 private:
  // A claim of another resource, which is good whatever becomes of the one beside it.
  static Claim other() { return {Resource{"other"}, Token{INT64_MAX}, Holder{"o"}, {}}; }

  static std::string next_prefix() {
    static std::atomic<int> number{0};
    return fmt::format("space-{}", ++number);
  }

  class Connection : public GuardConnection {
   public:
    Connection(Way way, const etcd::Address& address) : way_{way}, client_{address}, guard_{client_} {}

    Ruling advance(const Claim& claim) override { return guard_.advance(claim); }

    Ruling write(const Claim& claim, const std::string& value) override {
      const auto op = etcd::put(key_of(claim.resource), value);
      if (way_ == Way::own_transaction) return write_in_own(claim, op);
      if (way_ == Way::write) return guard_.write(claim, {op}).ruling;
      const Claim claims[]{other(), claim};
      const auto written = guard_.write_all(claims, {op});
      EXPECT_EQ(written.rulings.at(0).verdict, Verdict::admitted);
      EXPECT_EQ(written.is_done, written.rulings.at(1).verdict == Verdict::admitted);
      return written.rulings.at(1);
    }

    std::string read(const Resource& resource) override {
      const auto found = client_.range(etcd::get(key_of(resource))).found;
      return found.empty() ? std::string{} : found.front().value;
    }

   private:
    // Not below the prefix with its slash, which is the guard's own.
    [[nodiscard]] std::string key_of(const Resource& resource) const {
      return client_.address().prefix + "-values/" + resource.name();
    }

    Ruling write_in_own(const Claim& claim, const etcd::Op& op) {
      for (;;) {
        etcd::Txn txn{{}, {op}, {}};
        const auto admission = guard_.admit_in(claim, txn);
        const auto answer = guard_.ruling_of(admission, client_.txn(txn));
        if (answer.ending == etcd::Admission::Ending::again) continue;
        EXPECT_EQ(answer.ending == etcd::Admission::Ending::done, answer.ruling.verdict == Verdict::admitted);
        return answer.ruling;
      }
    }

    Way way_;
    etcd::Client client_;
    etcd::Guard guard_;
  };

  Way way_;
  etcd::Client client_;
  etcd::FenceKeys keys_{client_.address().prefix};
};

GuardKind kind(const std::string& name, Way way) {
  return {name, [=](const GuardKind::Start& start) { return std::make_unique<EtcdSpace>(way, start); }};
}

INSTANTIATE_TEST_SUITE_P(Etcd, GuardSuite,
                         testing::Values(kind("write", Way::write),
                                         kind("several_claims", Way::several_claims),
                                         kind("own_transaction", Way::own_transaction)),
                         guard_kind_name);

}  // namespace
}  // namespace fenceguard::test
