#include "adapters/zookeeper/guard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "guard/error.hpp"
#include "tests/conformance/fence_calls.hpp"
#include "tests/process/eventually.hpp"
#include "tests/process/proxy.hpp"
#include "tests/zookeeper/guard/frame_hook.hpp"
#include "tests/zookeeper/guard/space.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using zookeeper::Code;

// A service: a session of its own and the guard on it.
struct Service {
  explicit Service(const std::string& url, zookeeper::GuardOptions options = {})
      : client{url}, guard{client, options} {}
  zookeeper::Client client;
  zookeeper::Guard guard;
};

TEST(ZooKeeperGuard, SeveralNodesAreWrittenTogetherOrNotAtAll) {
  Space space;
  Service service{space.url()};
  const auto claim = claim_of("config", 5);
  const auto made = service.guard.write(
      claim, {zookeeper::create(space.data("a"), "1"), zookeeper::create(space.data("b"), "2")});
  EXPECT_EQ(made.ruling.verdict, Verdict::admitted);
  ASSERT_TRUE(made.took_effect());
  ASSERT_EQ(made.result->answers.size(), 2u);
  EXPECT_EQ(made.result->answers[1].path, space.data("b"));
  const auto changed = service.guard.write(
      claim, {zookeeper::set(space.data("a"), "3", 0), zookeeper::check(space.data("b"), 0),
              zookeeper::remove(space.data("b"), 0)});
  ASSERT_TRUE(changed.took_effect());
  EXPECT_EQ(changed.result->answers.at(0).stat.version, 1);
  EXPECT_EQ(space.get(space.data("a")).data, "3");
  EXPECT_EQ(space.get(space.data("b")).code, Code::no_node);
}

TEST(ZooKeeperGuard, RefusedOperationWritesNothingAndLeavesTheSequenceFree) {
  Space space;
  Service service{space.url()};
  ASSERT_TRUE(
      service.guard.write(claim_of("r", 1), {zookeeper::create(space.data("x"), "old")}).took_effect());
  const auto claim = claim_of("r", 7).with(Sequence{3});
  const auto refused = service.guard.write(
      claim, {zookeeper::create(space.data("y"), ""), zookeeper::set(space.data("x"), "new", 9)});
  EXPECT_EQ(refused.ruling.verdict, Verdict::admitted);
  ASSERT_TRUE(refused.result);
  EXPECT_FALSE(refused.took_effect());
  EXPECT_EQ(refused.result->code, Code::bad_version);
  EXPECT_EQ(refused.result->failed, 1u);
  EXPECT_EQ(space.get(space.data("x")).data, "old");
  EXPECT_EQ(space.get(space.data("y")).code, Code::no_node);
  EXPECT_EQ(space.fence(Resource{"r"}).record, (Fence{Token{7}, Holder{"h"}, std::nullopt}));
  EXPECT_TRUE(service.guard.write(claim, {zookeeper::set(space.data("x"), "new", 0)}).took_effect());
  EXPECT_EQ(service.guard.write(claim, {zookeeper::set(space.data("x"), "again")}).ruling.verdict,
            Verdict::duplicate);
  EXPECT_EQ(space.get(space.data("x")).data, "new");
}

TEST(ZooKeeperGuard, EveryCodeOfTheCallersOperationIsAnAnswerOfItsOwn) {
  Space space;
  Service service{space.url()};
  const auto claim = claim_of("r", 1);
  ASSERT_TRUE(
      service.guard
          .write(claim, {zookeeper::create(space.data("x"), ""), zookeeper::create(space.data("x/child"), ""),
                         zookeeper::create(space.data("e"), "", zookeeper::Mode::ephemeral)})
          .took_effect());
  const std::pair<zookeeper::Op, Code> cases[] = {
      {zookeeper::set(space.data("none"), ""), Code::no_node},
      {zookeeper::check(space.data("none"), 0), Code::no_node},
      {zookeeper::create(space.data("x"), ""), Code::node_exists},
      {zookeeper::check(space.data("x"), 3), Code::bad_version},
      {zookeeper::remove(space.data("x")), Code::not_empty},
      {zookeeper::create(space.data("e/child"), ""), Code::no_children},
  };
  for (const auto& [op, code] : cases) {
    const auto written = service.guard.write(claim, {op});
    EXPECT_EQ(written.ruling.verdict, Verdict::admitted);
    ASSERT_TRUE(written.result);
    EXPECT_EQ(written.result->code, code) << op.path;
    EXPECT_EQ(written.result->failed, 0u);
  }
}

TEST(ZooKeeperGuard, FenceguardsOwnNodesCannotBeNamedByAGuardedOperation) {
  Space space;
  Service service{space.url()};
  const auto claim = claim_of("r", 1);
  for (const char* name : {"/fences", "/fences/r", "/floor", "/floor/x", "/offset", "/locks/a", "/rebased"}) {
    EXPECT_THROW((void)service.guard.write(claim, {zookeeper::create(space.root() + name, "")}), InvalidInput)
        << name;
  }
  EXPECT_THROW((void)service.guard.write(claim, {zookeeper::create("relative", "")}), InvalidInput);
  EXPECT_THROW((void)service.guard.write(claim, {}), InvalidInput);
  EXPECT_THROW(
      (void)service.guard.write(claim, {zookeeper::create(space.data("c"), "", zookeeper::Mode::container)}),
      InvalidInput);
  EXPECT_THROW(
      (void)service.guard.write(claim, {zookeeper::create(space.data("big"), std::string(1'100'000, 'x'))}),
      InvalidInput);
  EXPECT_FALSE(space.fence(Resource{"r"}).record) << "what is refused as input moves no fence";
  EXPECT_TRUE(service.guard.write(claim, {zookeeper::create(space.root() + "/floors", "")}).took_effect());
}

TEST(ZooKeeperGuard, SeveralClaimsStandOrFallTogether) {
  Space space;
  Service service{space.url()};
  ASSERT_EQ(service.guard.advance(claim_of("b", 9, "other")).verdict, Verdict::admitted);
  const Claim claims[] = {claim_of("c", 3), claim_of("b", 5), claim_of("a", 4)};
  const auto refused = service.guard.write_all(claims, {zookeeper::create(space.data("x"), "")});
  EXPECT_FALSE(refused.result);
  EXPECT_EQ(refused.rulings.at(0).verdict, Verdict::admitted);
  EXPECT_EQ(refused.rulings.at(1).verdict, Verdict::stale);
  EXPECT_EQ(refused.rulings.at(1).highest, 9);
  EXPECT_FALSE(space.fence(Resource{"a"}).record);
  EXPECT_FALSE(space.fence(Resource{"c"}).record);
  EXPECT_EQ(space.get(space.data("x")).code, Code::no_node);
  const Claim better[] = {claims[0], claim_of("b", 10), claims[2]};
  EXPECT_TRUE(service.guard.write_all(better, {zookeeper::create(space.data("x"), "")}).took_effect());
  EXPECT_EQ(space.fence(Resource{"b"}).record->token, Token{10});
  EXPECT_EQ(space.fence(Resource{"a"}).record->token, Token{4});
  const Claim twice[] = {claims[0], claims[0]};
  EXPECT_THROW((void)service.guard.write_all(twice, {zookeeper::check("/", 0)}), InvalidInput);
  EXPECT_THROW((void)service.guard.write_all({}, {zookeeper::check("/", 0)}), InvalidInput);
}

TEST(ZooKeeperGuard, AFencedReadAdvancesAndSeesEveryWriteBelowItsToken) {
  Space space;
  Service old{space.url()};
  Service next{space.url()};
  const auto path = space.data("x");
  ASSERT_TRUE(old.guard.write(claim_of("r", 1), {zookeeper::create(path, "0")}).took_effect());
  for (std::int64_t token = 2; token < 40; token += 2) {
    const auto value = std::to_string(token);
    ASSERT_TRUE(old.guard.write(claim_of("r", token), {zookeeper::set(path, value)}).took_effect());
    const auto seen = next.guard.read(claim_of("r", token + 1).with(Sequence{1}), path);
    ASSERT_EQ(seen.ruling.verdict, Verdict::admitted);
    ASSERT_EQ(seen.answer->data, value);
    ASSERT_EQ(old.guard.write(claim_of("r", token), {zookeeper::set(path, "late")}).ruling.verdict,
              Verdict::stale);
  }
  EXPECT_EQ(space.fence(Resource{"r"}).record->sequence, std::nullopt) << "a read uses up no sequence";
  EXPECT_EQ(next.guard.read(claim_of("r", 100), space.data("none")).answer->code, Code::no_node);
  const auto refused = old.guard.read(claim_of("r", 50), path);
  EXPECT_EQ(refused.ruling.verdict, Verdict::stale);
  EXPECT_FALSE(refused.answer);
}

// Shows: what a newer token wrote between a read's advance and its look at the node is not in its answer.
// How: a proxy that passes on fewer bytes at once than a request has keeps back the end of the request for
// the node until the advance is done and the newer write, past the proxy, as well.
TEST(ZooKeeperGuard, AFencedReadNeverHoldsWhatANewerTokenWrote) {
  Space space;
  const auto path = space.data("x");
  (void)space.session()->create(path, "0");
  Service newer{space.url()};
  FrameHook hook{
      path, [&] {
        wait_until([&] { return space.fence(Resource{"r"}).highest() == 1; });
        EXPECT_TRUE(newer.guard.write(claim_of("r", 2), {zookeeper::set(path, "newer")}).took_effect());
      }};
  const Proxy proxy{shared_ensemble().node(0).port(), hook.filter(), 16};
  Service old{space.url_by(proxy.port())};
  const auto seen = old.guard.read(claim_of("r", 1), path);
  ASSERT_TRUE(hook.has_acted());
  EXPECT_EQ(seen.ruling.verdict, Verdict::stale);
  EXPECT_EQ(seen.ruling.highest, 2);
  EXPECT_FALSE(seen.answer) << seen.answer->data;
}

TEST(ZooKeeperGuard, ARefusalTellsOfTheFenceAsItIsAndNotAsItIsRemembered) {
  Space space;
  Service service{space.url()};
  Service other{space.url()};
  ASSERT_EQ(service.guard.advance(claim_of("r", 5, "a")).verdict, Verdict::admitted);
  ASSERT_EQ(other.guard.advance(claim_of("r", 9, "b")).verdict, Verdict::admitted);
  const auto lower = service.guard.advance(claim_of("r", 4, "a"));
  EXPECT_EQ(lower.verdict, Verdict::stale);
  EXPECT_EQ(lower.highest, 9);
  ASSERT_EQ(other.guard.advance(claim_of("r", 10, "b")).verdict, Verdict::admitted);
  EXPECT_EQ(service.guard.advance(claim_of("r", 9, "c")).verdict, Verdict::stale)
      << "a conflict is what it would be by what is remembered";
}

TEST(ZooKeeperGuard, UninitialisedNamespaceIsUnavailableAndNamesTheCommand) {
  Service service{shared_ensemble().url("/never-initialised")};
  const auto said = HasSubstr("fenceguard fence init");
  EXPECT_THAT([&] { (void)service.guard.advance(claim_of("r", 1)); }, ThrowsMessage<Unavailable>(said));
  EXPECT_THAT([&] { (void)service.guard.write(claim_of("r", 1), {zookeeper::create("/a", "")}); },
              ThrowsMessage<Unavailable>(said));
  EXPECT_THAT([&] { (void)zookeeper::look(service.client, Resource{"r"}); },
              ThrowsMessage<Unavailable>(said));
}

// A namespace that was wiped under a running guard is no licence for what it remembers.
TEST(ZooKeeperGuard, NamespaceWithoutItsFloorIsUnavailableDespiteTheCache) {
  Space space;
  Service service{space.url()};
  ASSERT_EQ(service.guard.advance(claim_of("r", 5)).verdict, Verdict::admitted);
  ASSERT_EQ(space.session()->remove(space.root() + "/floor").code, Code::ok);
  EXPECT_THROW((void)service.guard.write(claim_of("r", 5), {zookeeper::create(space.data("x"), "")}),
               Unavailable);
  EXPECT_THROW((void)service.guard.advance(claim_of("r", 6)), Unavailable);
  EXPECT_EQ(space.session()->get(space.data("x")).code, Code::no_node);
}

TEST(ZooKeeperGuard, ADamagedFenceIsUnavailableAndStays) {
  Space space;
  Service service{space.url()};
  const auto path = space.client().paths().fence(Resource{"r"});
  for (const char* text :
       {"", "5", "5 - open", "0 - open h", "05 - open h", "5 x open h", "5 - ajar h", "5 - open h h"}) {
    (void)space.session()->remove(path);
    ASSERT_EQ(space.session()->create(path, text).code, Code::ok);
    EXPECT_THROW((void)service.guard.advance(claim_of("r", 9)), Unavailable) << text;
    EXPECT_EQ(space.get(path).data, text);
  }
}

// The floor may be older than the fences were, so it is not a licence for who wrote below them.
TEST(ZooKeeperGuard, FencesLostUnderTheirFloorAreUnavailableUntilInit) {
  Space space;
  Service service{space.url()};
  Service stale{space.url()};
  const auto path = space.client().paths().fence(Resource{"r"});
  const auto said = ThrowsMessage<Unavailable>(HasSubstr("fenceguard fence init"));
  ASSERT_EQ(service.guard.advance(claim_of("r", 9)).verdict, Verdict::admitted);
  ASSERT_EQ(space.session()->remove(path).code, Code::ok);
  ASSERT_EQ(space.session()->remove(space.client().paths().fences()).code, Code::ok);
  EXPECT_THAT([&] { (void)stale.guard.advance(claim_of("r", 5)); }, said);
  EXPECT_THAT([&] { (void)service.guard.write(claim_of("r", 9), {zookeeper::create(space.data("x"), "")}); },
              said);
  EXPECT_THAT([&] { (void)zookeeper::revoke(stale.client, Resource{"r"}, {claim_of("r", 5), 0, 0}); }, said);
  EXPECT_THAT([&] { (void)zookeeper::list(stale.client, {}); }, said);
  EXPECT_THAT([&] { (void)zookeeper::rebase(stale.client, {Resource{"r"}, Token{5}, "ann"}); }, said);
  EXPECT_EQ(zookeeper::status(stale.client).state, StoreState::uninitialised);
  EXPECT_EQ(space.get(path).code, Code::no_node);
  EXPECT_EQ(zookeeper::init(space.client(), 20), 20);
  EXPECT_EQ(stale.guard.advance(claim_of("r", 5)).verdict, Verdict::stale);
  EXPECT_EQ(stale.guard.advance(claim_of("r", 21)).verdict, Verdict::admitted);
}

TEST(ZooKeeperGuard, APathThatIsAnotherThanItLooksLikeIsInvalidAndMovesNoFence) {
  Space space;
  Service service{space.url()};
  const auto floor = space.root() + "/floor";
  for (const auto& path : {floor + std::string("\0x", 2), floor + std::string("\0/y", 3),
                           space.root() + "//x", space.root() + "/", space.root() + "/./floor",
                           space.root() + "/data/../floor", space.root() + "/x\n", std::string{}}) {
    EXPECT_THROW((void)service.guard.write(claim_of("r", 5), {zookeeper::set(path, "0")}), InvalidInput)
        << path;
    EXPECT_THROW((void)service.guard.read(claim_of("r", 5), path), InvalidInput) << path;
  }
  EXPECT_FALSE(space.fence(Resource{"r"}).record);
  EXPECT_EQ(space.get(floor).data, "0");
  EXPECT_TRUE(service.guard
                  .write(claim_of("r", 5), {zookeeper::create(space.data("") + "/", "",
                                                              zookeeper::Mode::persistent_sequential)})
                  .took_effect());
}

TEST(ZooKeeperGuard, WhatTheGuardAddsCountsAsPartOfTheRequest) {
  Space space;
  Service service{space.url()};
  std::vector<Claim> claims;
  for (int i = 0; i < 2'500; ++i) claims.push_back(claim_of(fmt::format("{:0>500}", i), 5));
  EXPECT_THROW((void)service.guard.write_all(claims, {zookeeper::create(space.data("x"), "")}), InvalidInput);
  claims.erase(claims.begin() + 500, claims.end());
  EXPECT_TRUE(service.guard.write_all(claims, {zookeeper::create(space.data("x"), "")}).took_effect());
}

// As after many elections, in a namespace in which nobody wrote meanwhile.
TEST(ZooKeeperGuard, WhatTheSourceMayHaveDrawnByNowIsPlausible) {
  Space space;
  Service bounded{space.url(), {.jump_max = 10}};
  ASSERT_EQ(space.session()->create(space.root() + "/offset", "1000").code, Code::ok);
  const auto drawn = space.session()->create(space.data("x"), "").stat.czxid + 1'000;
  EXPECT_EQ(bounded.guard.advance(claim_of("r", drawn)).verdict, Verdict::admitted);
  EXPECT_THROW((void)bounded.guard.advance(claim_of("r", drawn + 100'000)), Implausible);
  EXPECT_EQ(space.get(space.root() + "/offset").data, "1000");
}

TEST(ZooKeeperGuard, WhatIsAskedOverOneConnectionIsNotSentOverAnother) {
  Space space;
  Proxy proxy{shared_ensemble().node(0).port()};
  zookeeper::Client client{space.url_by(proxy.port(), "?session_timeout=30s")};
  const auto before = client.connection();
  EXPECT_TRUE(before.multi({zookeeper::create(space.data("x"), "")}).is_ok());
  proxy.set(Proxy::Way::closed);
  while (before.session->state() == zookeeper::Session::State::connected)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  proxy.set(Proxy::Way::open);
  const auto after = client.connection();
  ASSERT_EQ(after.session, before.session);
  EXPECT_NE(after.generation, before.generation);
  EXPECT_THROW((void)before.multi({zookeeper::create(space.data("late"), "")}), Unavailable);
  EXPECT_EQ(space.get(space.data("late")).code, Code::no_node);
  EXPECT_TRUE(after.multi({zookeeper::remove(space.data("x"))}).is_ok());
}

TEST(ZooKeeperGuard, AnAbsurdTokenIsImplausibleByWhatTheWholeNamespaceHasSeen) {
  Space space;
  Service plain{space.url()};
  Service bounded{space.url(), {.jump_max = 100}};
  EXPECT_EQ(bounded.guard.advance(claim_of("a", 100)).verdict, Verdict::admitted);
  EXPECT_THROW((void)bounded.guard.advance(claim_of("a", 201)), Implausible);
  EXPECT_THROW(
      (void)bounded.guard.write(claim_of("new", INT64_MAX), {zookeeper::create(space.data("x"), "")}),
      Implausible);
  EXPECT_FALSE(space.fence(Resource{"new"}).record);
  // Another guard has seen more, of which this one hears only when it looks.
  EXPECT_EQ(plain.guard.advance(claim_of("b", 5'000)).verdict, Verdict::admitted);
  EXPECT_EQ(bounded.guard.advance(claim_of("a", 5'050)).verdict, Verdict::admitted);
}

TEST(ZooKeeperGuard, WithAUserEveryNodeOfOursIsClosedToOthers) {
  const std::string hosts = shared_ensemble().url().substr(std::string{"zookeeper://"}.size());
  Service owner{"zookeeper://bob:s3cret@" + hosts + "/digest"};
  Service stranger{shared_ensemble().url("/digest")};
  ASSERT_EQ(zookeeper::init(owner.client, 0), 0);
  ASSERT_TRUE(owner.guard.write(claim_of("r", 5), {zookeeper::create("/digest/x", "v")}).took_effect());
  EXPECT_THAT([&] { (void)stranger.guard.advance(claim_of("r", 6)); },
              ThrowsMessage<Unavailable>(HasSubstr("ACL")));
  EXPECT_THROW((void)stranger.client.connection().session->set("/digest/fences/r", "1 - open h"),
               Unavailable);
  EXPECT_EQ(owner.guard.write(claim_of("r", 5), {zookeeper::set("/digest/x", "w", 0)}).ruling.verdict,
            Verdict::admitted);
}

TEST(ZooKeeperGuard, ResourcesOfEverySpellingHaveFencesOfTheirOwn) {
  Space space;
  Service service{space.url()};
  const char* names[] = {
      "a/b",          "a%2Fb", "a%2fb", "zookeeper", "K\xc3\xb6ln", "\xee\x80\x80", "\xf0\x9f\x94\x92",
      "\xef\xbf\xbf", "..a",   "a b",   "-1"};
  std::int64_t token = 10;
  for (const char* name : names)
    ASSERT_EQ(service.guard.advance(claim_of(name, ++token)).verdict, Verdict::admitted) << name;
  token = 10;
  for (const char* name : names) EXPECT_EQ(space.fence(Resource{name}).record->token, Token{++token}) << name;
  const auto page = zookeeper::list(space.client(), {});
  EXPECT_EQ(page.entries.size(), std::size(names));
}

}  // namespace
}  // namespace fenceguard::test
