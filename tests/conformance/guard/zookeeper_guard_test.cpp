#include <fmt/format.h>

#include <atomic>
#include <sstream>

#include "adapters/zookeeper/guard.hpp"
#include "tests/conformance/guard/guard_suite.hpp"
#include "tests/zookeeper/ensemble.hpp"

namespace fenceguard::test {
namespace {

// How a service writes: each of the ways must give the same rulings.
enum class Way { one_claim, two_claims, two_sessions };

Ensemble& ensemble() {
  // One server: in an ensemble of 3.8.0 a session that writes fast is now and then left without any answer,
  // pings included, until it breaks, and that is an outcome unknown. Here the rulings are looked at.
  static Ensemble shared{1};
  return shared;
}

const Claim& bystander() {
  static const Claim claim{Resource{"bystander"}, Token{INT64_MAX}, Holder{"o"}, {}};
  return claim;
}

// A record in its only spelling, written here once more, so that the adapter's own words are tested too.
std::string text_of(const Fence& fence) {
  return fmt::format("{} {} {} {}", fence.token.value(), fence.sequence ? to_string(*fence.sequence) : "-",
                     fence.closed ? "closed" : "open", fence.holder.id());
}

Fence fence_of(const std::string& text) {
  std::istringstream words{text};
  std::string token, sequence, state, holder;
  words >> token >> sequence >> state >> holder;
  return {Token::parse(token).value(), Holder::parse(holder).value_or(Holder{}), Sequence::parse(sequence),
          state == "closed"};
}

// One client of the service, with the values below its root.
class ServiceConnection : public GuardConnection {
 public:
  ServiceConnection(Way way, const std::string& url)
      : way_{way}, clients_{{zookeeper::Client{url}, zookeeper::Client{url}}} {}

  Ruling advance(const Claim& claim) override { return guard().advance(claim); }

  // Whether the value's node is there already it does not know.
  Ruling write(const Claim& claim, const std::string& value) override {
    const auto path = path_of(claim.resource);
    for (;;) {
      for (const auto& op : {zookeeper::set(path, value), zookeeper::create(path, value)}) {
        auto written = write_op(claim, op);
        if (!written.result || written.result->is_ok()) return written.ruling;
      }
    }
  }

  std::string read(const Resource& resource) override {
    const auto session = clients_[0].connection().session;
    // Behind a call that goes through the ensemble's log a read sees what others wrote before.
    (void)session->multi({zookeeper::check(clients_[0].paths().floor(), zookeeper::any_version)});
    return session->get(path_of(resource)).data;
  }

 private:
  zookeeper::Guard& guard() {
    if (way_ == Way::two_sessions) turn_ = 1 - turn_;
    return guards_[turn_];
  }

  zookeeper::WriteResult write_op(const Claim& claim, const zookeeper::Op& op) {
    if (way_ != Way::two_claims) return guard().write(claim, {op});
    const Claim both[] = {bystander(), claim};
    auto all = guard().write_all(both, {op, zookeeper::set(path_of(bystander().resource), op.data)});
    EXPECT_EQ(all.rulings.front().verdict, Verdict::admitted);
    return {std::move(all.rulings.back()), std::move(all.result)};
  }

  [[nodiscard]] std::string path_of(const Resource& resource) const {
    return clients_[0].paths().root() + "/values/" + zookeeper::segment_of(resource);
  }

  Way way_;
  std::size_t turn_ = 0;
  std::array<zookeeper::Client, 2> clients_;
  std::array<zookeeper::Guard, 2> guards_{{zookeeper::Guard{clients_[0]}, zookeeper::Guard{clients_[1]}}};
};

class ServiceSpace : public GuardSpace {
 public:
  ServiceSpace(Way way, const GuardKind::Start& start) : way_{way}, url_{fresh_url()}, client_{url_} {
    const auto& paths = client_.paths();
    auto& session = *client_.connection().session;
    session.make_path(paths.fences());
    session.make_path(paths.root() + "/values");
    (void)session.create(paths.floor(), std::to_string(start.floor));
    for (const auto& [resource, fence] : start.records)
      (void)session.create(paths.fence(resource), text_of(fence));
    const auto& other = bystander();
    (void)session.create(paths.fence(other.resource), text_of(Fence{other.token, other.holder, {}}));
    (void)session.create(paths.root() + "/values/" + zookeeper::segment_of(other.resource), "");
  }

  std::unique_ptr<GuardConnection> connect() override {
    return std::make_unique<ServiceConnection>(way_, url_);
  }

  FenceView fence(const Resource& resource) override {
    const auto& paths = client_.paths();
    auto& session = *client_.connection().session;
    (void)session.multi({zookeeper::check(paths.floor(), zookeeper::any_version)});
    FenceView view;
    view.floor = parse_decimal(session.get(paths.floor()).data).value();
    const auto answer = session.get(paths.fence(resource));
    if (answer.code == zookeeper::Code::ok) view.record = fence_of(answer.data);
    return view;
  }

 private:
  static std::string fresh_url() {
    static std::atomic<int> number{0};
    return ensemble().url(fmt::format("/space-{}?session_timeout=60s&timeout=60s", ++number));
  }

  Way way_;
  std::string url_;
  zookeeper::Client client_;
};

GuardKind kind(const std::string& name, Way way) {
  return {name, [way](const GuardKind::Start& start) { return std::make_unique<ServiceSpace>(way, start); }};
}

INSTANTIATE_TEST_SUITE_P(ZooKeeper, GuardSuite,
                         testing::Values(kind("one_claim", Way::one_claim),
                                         kind("two_claims", Way::two_claims),
                                         kind("two_sessions", Way::two_sessions)),
                         guard_kind_name);

}  // namespace
}  // namespace fenceguard::test
