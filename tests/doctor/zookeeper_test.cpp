#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "server/doctor/doctor.hpp"
#include "tests/zookeeper/guard/space.hpp"

namespace fenceguard::test {
namespace {

using Level = Finding::Level;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A finding of this level whose check begins so and whose message holds that.
auto finding(Level level, const std::string& check, const std::string& message) {
  return AllOf(testing::Field(&Finding::level, level), testing::Field(&Finding::check, StartsWith(check)),
               testing::Field(&Finding::message, HasSubstr(message)));
}

std::vector<Finding> examine(const std::string& url) {
  return zookeeper::examine_storage(Url::parse(url));
}

TEST(ZooKeeperDoctor, ASoundEnsembleIsFoundSound) {
  Ensemble three;
  Space space{three, 10};
  const auto findings = examine(space.url());
  EXPECT_THAT(findings, Not(Contains(testing::Field(&Finding::level, Level::danger))));
  EXPECT_THAT(findings, Contains(finding(Level::ok, "server ", "3.")).Times(3));
  EXPECT_THAT(findings, Contains(finding(Level::ok, "durability ", "synced")).Times(3));
  EXPECT_THAT(findings, Contains(finding(Level::ok, "ensemble", "3 servers, 1 may fail")));
  EXPECT_THAT(findings, Contains(finding(Level::ok, "fences", "floor 10")));
  EXPECT_THAT(findings, Contains(finding(Level::ok, "counter", "above the fences")));
  EXPECT_THAT(findings, Contains(finding(Level::warning, "access", "without a user")));
  EXPECT_THAT(zookeeper::examine_source(Url::parse(space.url())), Contains(finding(Level::ok, "offset", "")));
}

TEST(ZooKeeperDoctor, AServerThatNeverSyncsIsADanger) {
  EnsembleOptions options;
  options.settings["forceSync"] = "no";
  Ensemble unsafe{1, options};
  const auto findings = examine(unsafe.url());
  EXPECT_THAT(findings, Contains(finding(Level::danger, "durability", "forceSync=no")));
  EXPECT_THAT(findings, Contains(finding(Level::warning, "ensemble", "use three")));
  EXPECT_THAT(findings, Contains(finding(Level::danger, "fences", "fenceguard fence init")));
}

TEST(ZooKeeperDoctor, WhatAServerDoesNotTellIsAWarning) {
  EnsembleOptions options;
  options.settings["4lw.commands.whitelist"] = "ruok,srvr";
  Ensemble silent{1, options};
  const auto findings = examine(silent.url());
  EXPECT_THAT(findings, Contains(finding(Level::ok, "server", "standalone")));
  EXPECT_THAT(findings, Contains(finding(Level::warning, "durability", "4lw.commands.whitelist")));
}

TEST(ZooKeeperDoctor, AServerThatIsGoneIsAWarningAndAllOfThemADanger) {
  Ensemble ensemble;
  const auto url = ensemble.url("?timeout=5s");
  auto& leader = ensemble.leader();
  auto& follower = ensemble.node(&leader == &ensemble.node(0) ? 1 : 0);
  follower.kill();
  EXPECT_THAT(examine(url), Contains(finding(Level::warning, "server ", "cannot be reached")).Times(1));
  leader.kill();
  // The third one hears of it a moment later.
  const auto serves = [&] {
    for (std::size_t i = 0; i < ensemble.size(); ++i) {
      if (ensemble.node(i).is_running() && ensemble.node(i).is_serving()) return true;
    }
    return false;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (serves() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  const auto findings = examine(url);
  EXPECT_THAT(findings, Contains(finding(Level::warning, "server ", "does not serve")).Times(1));
  EXPECT_THAT(findings, Contains(finding(Level::danger, "session", "")));
}

// As after a restore of the ensemble alone, or with fences whose tokens came from elsewhere.
TEST(ZooKeeperDoctor, ASourceBehindTheFencesIsADangerThatNamesTheResource) {
  Space space;
  zookeeper::Guard guard{space.client()};
  ASSERT_EQ(guard.advance(claim_of("low", 3)).verdict, Verdict::admitted);
  ASSERT_EQ(guard.advance(claim_of("accounts/42", std::int64_t{1} << 60)).verdict, Verdict::admitted);
  EXPECT_THAT(examine(space.url()),
              Contains(finding(Level::danger, "counter",
                               "fenceguard lease raise --resource accounts/42 --token 1152921504606846976")));
  const auto offset = space.root() + "/offset";
  ASSERT_EQ(space.session()->create(offset, "1152921504606846976").code, zookeeper::Code::ok);
  EXPECT_THAT(examine(space.url()), Contains(finding(Level::ok, "counter", "")));
  (void)space.session()->set(offset, "much");
  EXPECT_THAT(examine(space.url()), Contains(finding(Level::danger, "offset", "no number")));
}

}  // namespace
}  // namespace fenceguard::test
