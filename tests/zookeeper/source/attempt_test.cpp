// An entry that is made and placed in one round trip, and what others do about it meanwhile.

#include <gtest/gtest.h>

#include <atomic>

#include "adapters/zookeeper/token_source.hpp"
#include "guard/error.hpp"
#include "tests/process/proxy.hpp"
#include "tests/zookeeper/source/space.hpp"

namespace fenceguard::zookeeper {
namespace {

using test::eventually;
using test::observer;
using test::Proxy;
using Ms = std::chrono::milliseconds;

const Resource r{"accounts/42"};
constexpr Ms ttl{60'000};

class AttemptTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> entries() const { return observer().get_children(path_).children; }
  [[nodiscard]] std::unique_ptr<TokenSource> open_at(int port) const {
    return open_source(Url::parse("zookeeper://127.0.0.1:" + std::to_string(port) + root_ +
                                  "?session_timeout=90s&timeout=20s"));
  }
  // The lock's nodes are made by then.
  void make_namespace() {
    const auto source = open_at(port_);
    (void)source->release(std::get<Grant>(source->try_acquire(r, Holder{"first"}, ttl)).claim);
  }

  const int port_ = test::shared_ensemble().node(0).port();
  const std::string root_ = test::fresh_root();
  const std::string path_ = root_ + "/locks/accounts/42";
};

// The answer to the create is lost, and a second entry of the same GUID is there when it is looked for, as if
// the create had been sent again. One of them is granted, and the other does not stand in the way.
TEST_F(AttemptTest, OfTwoEntriesOfOneGuidOneIsGrantedAndNoneIsLeft) {
  make_namespace();
  for (int others = 1; others <= 3; ++others) {
    std::atomic<bool> is_armed{true};
    Proxy proxy{port_, [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                  if (!is_armed || direction != Proxy::Direction::to_client) return piece.size();
                  const auto made = entries();
                  if (made.empty()) return piece.size();
                  is_armed = false;
                  const auto name = made[0].substr(0, made[0].find("__lock__")) + "__lock__";
                  for (int i = 0; i < others; ++i) {
                    (void)observer().create(path_ + "/" + name, "again 0", Mode::ephemeral_sequential);
                  }
                  return std::size_t{0};
                }};
    const auto source = open_at(proxy.port());
    const auto grant = std::get<Grant>(source->try_acquire(r, Holder{"holder"}, ttl));
    EXPECT_FALSE(is_armed);
    EXPECT_TRUE(eventually([&] { return entries().size() == 1; }));
    EXPECT_EQ(source->renew(grant.claim, ttl), Renewal::renewed);
    EXPECT_EQ(source->show(r)->claim, grant.claim);
    EXPECT_EQ(source->release(grant.claim), Release::released);
    EXPECT_TRUE(entries().empty());
  }
}

// The same where the caller is gone by then: nothing is left.
TEST_F(AttemptTest, EntriesWhoseAnswerIsLostAreRemovedWhereTheAskFails) {
  make_namespace();
  const auto holder = open_at(port_);
  const auto held = std::get<Grant>(holder->try_acquire(r, Holder{"holder"}, ttl));
  std::atomic<bool> is_armed{true};
  Proxy proxy{port_, [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (!is_armed || direction != Proxy::Direction::to_client || entries().size() < 2)
                  return piece.size();
                is_armed = false;
                return std::size_t{0};
              }};
  const auto source = open_at(proxy.port());
  EXPECT_TRUE(std::holds_alternative<LockBusy>(source->try_acquire(r, Holder{"other"}, ttl)));
  EXPECT_FALSE(is_armed);
  EXPECT_TRUE(eventually([&] { return entries().size() == 1; }));
  EXPECT_EQ(holder->release(held.claim), Release::released);
}

// The answer to the watch is not waited for. The node goes before the watch is set: the lease is lost all the
// same, or it is another node's.
TEST_F(AttemptTest, ANodeThatGoesBeforeItsWatchIsSetEndsTheLease) {
  make_namespace();
  std::atomic<bool> is_armed{true};
  Proxy proxy{port_, [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (!is_armed || direction != Proxy::Direction::to_server) return piece.size();
                const auto made = entries();
                if (made.empty()) return piece.size();
                is_armed = false;
                EXPECT_EQ(observer().remove(path_ + "/" + made[0]).code, Code::ok);
                return piece.size();
              }};
  const auto source = open_at(proxy.port());
  const auto grant = std::get<Grant>(source->try_acquire(r, Holder{"holder"}, ttl));
  EXPECT_TRUE(eventually([&] { return !is_armed; }));
  EXPECT_TRUE(eventually([&] {
    const auto made = entries();
    const bool is_there =
        !made.empty() && observer().get(path_ + "/" + made[0]).stat.czxid == grant.claim.token.value();
    return is_there || source->lost(grant.claim).stop_requested();
  }));
}

// A raise excludes a draw that is under way with the offset of before.
TEST_F(AttemptTest, AnEntryMadeWithAnOutdatedOffsetIsNone) {
  make_namespace();
  const auto source = open_at(port_);
  const auto other = open_at(port_);
  auto last = std::get<Grant>(source->try_acquire(r, Holder{"holder"}, ttl)).claim;
  EXPECT_EQ(source->release(last), Release::released);
  for (std::int64_t mark = 5'000'000'000; mark <= 20'000'000'000; mark += 5'000'000'000) {
    other->raise(r, Token{mark});
    const auto claim = std::get<Grant>(source->try_acquire(r, Holder{"holder"}, ttl)).claim;
    EXPECT_GT(claim.token.value(), mark);
    const auto node = observer().get(path_ + "/" + entries().at(0));
    EXPECT_EQ(claim.token.value() - node.stat.czxid, std::stoll(node.data.substr(node.data.rfind(' '))));
    EXPECT_EQ(source->release(claim), Release::released);
  }
}

}  // namespace
}  // namespace fenceguard::zookeeper
