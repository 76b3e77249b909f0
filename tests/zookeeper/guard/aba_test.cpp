// Fences that come and go between a guard's look and its write.

#include <gtest/gtest.h>

#include "tests/zookeeper/guard/frame_hook.hpp"
#include "tests/zookeeper/guard/space.hpp"

namespace fenceguard::test {
namespace {

struct Service {
  explicit Service(const std::string& url) : client{url}, guard{client} {}
  zookeeper::Client client;
  zookeeper::Guard guard;

  [[nodiscard]] Verdict write(const Claim& claim, const std::string& path, const std::string& value) {
    return guard.write(claim, {zookeeper::set(path, value)}).ruling.verdict;
  }
};

// The fence that the first guard remembers has version 0; so has the one that stands there later, of another
// holder.
class Aba : public testing::Test {
 protected:
  Aba() {
    (void)space.session()->create(path, "");
    EXPECT_EQ(first.write(claim_of("r", 10, "first"), path, "by first"), Verdict::admitted);
    const auto compaction = zookeeper::compact(compacting.client, Token{20});
    EXPECT_EQ(compaction.dropped, 1);
    EXPECT_EQ(compaction.floor, 10);
    EXPECT_EQ(second.write(claim_of("r", 30, "second"), path, "by second"), Verdict::admitted);
    const auto fence = space.get(space.client().paths().fence(Resource{"r"}));
    EXPECT_EQ(fence.stat.version, 0) << "or this test shows nothing";
  }

  void the_first_is_refused() {
    const auto late = first.guard.write(claim_of("r", 10, "first"), {zookeeper::set(path, "late")});
    EXPECT_EQ(late.ruling.verdict, Verdict::stale);
    EXPECT_EQ(late.ruling.highest, 30);
    EXPECT_EQ(space.get(path).data, "by second");
    EXPECT_EQ(space.fence(Resource{"r"}).record->token, Token{30});
  }

  Space space;
  std::string path = space.data("x");
  Service first{space.url()};
  Service second{space.url()};
  Service compacting{space.url()};
};

TEST_F(Aba, RecreatedFenceDiffersFromTheOneSeen) {
  the_first_is_refused();
}

// It has seen the new floor with another resource, and remembers the old fence still.
TEST_F(Aba, NorByAGuardThatHasHeardOfTheNewFloorMeanwhile) {
  EXPECT_EQ(first.guard.advance(claim_of("q", 31)).verdict, Verdict::admitted);
  EXPECT_EQ(first.guard.advance(claim_of("q", 31)).verdict, Verdict::admitted);
  the_first_is_refused();
}

// Both fences in one write: one seen under the new floor, one under the old.
TEST_F(Aba, NorInAWriteUnderTwoClaims) {
  EXPECT_EQ(first.guard.advance(claim_of("q", 31)).verdict, Verdict::admitted);
  const Claim claims[] = {claim_of("q", 31), claim_of("r", 10, "first")};
  const auto late = first.guard.write_all(claims, {zookeeper::set(path, "late")});
  EXPECT_FALSE(late.result);
  EXPECT_EQ(late.rulings.at(1).verdict, Verdict::stale);
  EXPECT_EQ(space.get(path).data, "by second");
}

// 'No record' is remembered too: whoever creates one must prove that none came and went.
TEST(AbaOfNothing, AFenceThatCameAndWentIsNotTakenForOneThatNeverWas) {
  Space space{shared_ensemble(), 5};
  Service first{space.url()};
  Service second{space.url()};
  const auto path = space.data("x");
  (void)space.session()->create(path, "");
  EXPECT_EQ(first.write(claim_of("r", 3), path, "below the floor"), Verdict::stale);
  EXPECT_EQ(second.write(claim_of("r", 30), path, "by second"), Verdict::admitted);
  EXPECT_EQ(zookeeper::compact(second.client, Token{40}).dropped, 1);
  EXPECT_EQ(first.write(claim_of("r", 10), path, "late"), Verdict::stale);
  EXPECT_EQ(space.get(path).data, "by second");
  EXPECT_FALSE(space.fence(Resource{"r"}).record);
}

TEST(AbaOfTheFloor, AFloorThatWasRaisedByHandRefusesWhatACachedFenceWouldAdmit) {
  Space space;
  Service service{space.url()};
  const auto path = space.data("x");
  (void)space.session()->create(path, "");
  EXPECT_EQ(service.write(claim_of("r", 10), path, "before"), Verdict::admitted);
  EXPECT_EQ(zookeeper::init(space.client(), 100), 100);
  EXPECT_EQ(service.write(claim_of("r", 10), path, "late"), Verdict::stale);
  EXPECT_EQ(service.write(claim_of("r", 101), path, "after"), Verdict::admitted);
  EXPECT_EQ(space.get(path).data, "after");
}

// What another compaction and a service do between the reads of somebody and his multi: the fence of 'r' is
// another then, of version 0 like the one that he saw.
void replace_fence(Space& space, Service& service) {
  EXPECT_EQ(zookeeper::compact(space.client(), Token{20}).dropped, 1);
  EXPECT_EQ(service.guard.advance(claim_of("r", 50)).verdict, Verdict::admitted);
  EXPECT_EQ(space.get(space.client().paths().fence(Resource{"r"})).stat.version, 0) << "it shows nothing";
}

// The set() of the floor is told by its data: "10", and its length before it.
TEST(CompactionRaces, RecreatedFenceDiffersFromCompactedOne) {
  Space space;
  Service service{space.url()};
  ASSERT_EQ(service.guard.advance(claim_of("r", 10)).verdict, Verdict::admitted);
  FrameHook hook{std::string("/floor\0\0\0\2", 10) + "10", [&] { replace_fence(space, service); }};
  const Proxy proxy{shared_ensemble().node(0).port(), hook.filter()};
  zookeeper::Client late{space.url_by(proxy.port())};
  EXPECT_EQ(zookeeper::compact(late, Token{20}).dropped, 0);
  EXPECT_TRUE(hook.has_acted());
  EXPECT_EQ(space.fence(Resource{"r"}).record->token, Token{50});
}

TEST(RebaseRaces, AFenceThatRoseMeanwhileIsNotLowered) {
  Space space;
  Service service{space.url()};
  ASSERT_EQ(service.guard.advance(claim_of("r", 10)).verdict, Verdict::admitted);
  FrameHook hook{"/rebased/r-", [&] { replace_fence(space, service); }};
  const Proxy proxy{shared_ensemble().node(0).port(), hook.filter()};
  zookeeper::Client late{space.url_by(proxy.port())};
  EXPECT_THROW((void)zookeeper::rebase(late, {Resource{"r"}, Token{5}, "ann"}), Unavailable);
  EXPECT_TRUE(hook.has_acted());
  EXPECT_EQ(space.fence(Resource{"r"}).record->token, Token{50});
}

}  // namespace
}  // namespace fenceguard::test
