#include <atomic>
#include <limits>
#include <optional>

#include "tests/etcd/source/source.hpp"

namespace fenceguard::test {
namespace {

// The cluster is taken back to a snapshot: its revision falls, and with it the tokens, until a raise.
TEST(Restore, LetsTokensFallBackAndARaiseLiftsThem) {
  EtcdCluster cluster{1};
  const auto source = open(cluster.url("?timeout=2s"));
  source->release(take(*source, "first").claim);
  const auto file = cluster.folder() + "/snapshot";
  cluster.save_snapshot(file);
  std::int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const auto grant = take(*source, "holder" + std::to_string(i));
    last = grant.claim.token.value();
    source->release(grant.claim);
  }
  cluster.restore_snapshot(file);
  std::optional<Grant> fallen;
  wait_until([&] {
    try {
      fallen = take(*source, "fallen");
    } catch (const OutcomeUnknown&) {
      // By a connection of before.
    } catch (const Unavailable&) {
    }
    return fallen.has_value();
  });
  EXPECT_LT(fallen->claim.token.value(), last);
  source->raise(resource, Token{last});
  EXPECT_EQ(source->renew(fallen->claim, long_ttl), Renewal::renewed);
  source->release(fallen->claim);
  EXPECT_GT(take(*source, "lifted").claim.token.value(), last);
  EXPECT_GT(source->draw().value(), last);
}

// Draws on many threads while one raises: whoever asks after a raise has returned is above its mark, and no
// token is ever issued twice.
TEST(Raise, ExcludesDraws) {
  EtcdCluster cluster{1};
  std::atomic<std::int64_t> raised{0};
  std::atomic<int> below{0};
  std::vector<std::jthread> takers;
  for (int i = 0; i < 4; ++i) {
    takers.emplace_back([&, i](const std::stop_token& stop) {
      const auto source = open(cluster.url());
      const Resource mine{"mine/" + std::to_string(i)};
      std::int64_t last = 0;
      while (!stop.stop_requested()) {
        const auto mark = raised.load();
        const auto answer = source->try_acquire(mine, Holder::random(), long_ttl);
        const auto& grant = std::get<Grant>(answer);
        const auto token = grant.claim.token.value();
        if (token <= mark || token <= last) ++below;
        last = token;
        source->release(grant.claim);
      }
    });
  }
  const auto source = open(cluster.url());
  for (int i = 1; i <= scaled(200); ++i) {
    const Token mark{source->draw().value() + 1'000};
    source->raise(Resource{"mine/0"}, mark);
    raised = mark.value();
  }
  takers.clear();
  EXPECT_EQ(below, 0);
}

TEST(Raise, LeavesNoRoomUnusedAndSaysSoWhereThereIsNone) {
  EtcdCluster cluster{1};
  const auto source = open(cluster.url());
  const Token last{std::numeric_limits<std::int64_t>::max()};
  source->raise(resource, Token{last.value() - 1'000});
  const auto grant = take(*source, "near-the-end");
  EXPECT_GT(grant.claim.token.value(), last.value() - 1'000);
  EXPECT_EQ(source->show(resource)->claim, grant.claim);
  source->release(grant.claim);
  source->raise(resource, last);
  EXPECT_THROW((void)take(*source, "past-the-end"), Unavailable);
  EXPECT_FALSE(source->show(resource));
}

}  // namespace
}  // namespace fenceguard::test
