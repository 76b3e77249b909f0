#include <atomic>
#include <fstream>
#include <sstream>

#include "tests/conformance/temp_dir.hpp"
#include "tests/etcd/source/source.hpp"

namespace fenceguard::test {
namespace {

class Etcdctl : public testing::Test {
 protected:
  // The real 'etcdctl lock' as a process of its own, whose command writes NAME and its revision down once it
  // has the lock and goes on until a file 'NAME.done' is there.
  std::unique_ptr<ServerProcess> lock_as(const std::string& name, const std::string& lock_name = lock) {
    const auto endpoint = "http://127.0.0.1:" + std::to_string(cluster_.member(0).port());
    const auto script = "echo " + name + " $ETCD_LOCK_REV >> " + log() + "; while [ ! -e " +
                        folder_.file(name + ".done") + " ]; do sleep 0.02; done";
    auto process = std::make_unique<ServerProcess>(ServerProcess::Command{
        {"etcdctl", "--endpoints=" + endpoint, "lock", "--ttl=5", lock_name, "--", "sh", "-c", script},
        folder_.file(name + ".log"),
        {{"ETCDCTL_API", "3"}}});
    process->start_only();
    return process;
  }

  void finish(const std::string& name) { std::ofstream{folder_.file(name + ".done")} << "done"; }

  [[nodiscard]] std::string written() const {
    std::ostringstream text;
    text << std::ifstream{log()}.rdbuf();
    return text.str();
  }
  [[nodiscard]] bool has_it(const std::string& name) const {
    return written().find(name + " ") != std::string::npos;
  }
  [[nodiscard]] std::string log() const { return folder_.file("log"); }

  void wait_for_line_of(std::size_t length) {
    wait_until([&] { return keys_under(client_, lock + "/").size() == length; });
  }

  TempDir folder_;
  EtcdCluster cluster_{1};
  etcd::Client client_{cluster_.url()};
  std::unique_ptr<TokenSource> source_ = open(cluster_.url());
};

TEST_F(Etcdctl, HoldsWhatIsThenHeldForUs) {
  const auto theirs = lock_as("theirs");
  wait_until([&] { return has_it("theirs"); });
  EXPECT_TRUE(is_held(*source_));
  const auto record = source_->show(resource);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->claim.holder, Holder{});
  EXPECT_EQ("theirs " + to_string(record->claim.token) + "\n", written());
  EXPECT_LE(*source_->lowest_live(), record->claim.token);
  EXPECT_FALSE(source_->acquire(resource, {.ttl = long_ttl, .wait = Ms{50}}));
  std::optional<Lease> ours;
  std::atomic<bool> has_returned{false};
  std::jthread waiter{[&] {
    ours = source_->acquire(resource, {.ttl = long_ttl, .wait = limit});
    has_returned = true;
  }};
  wait_for_line_of(2);
  EXPECT_FALSE(has_returned);
  finish("theirs");
  waiter.join();
  ASSERT_TRUE(ours);
  EXPECT_GT(ours->claim().token, record->claim.token);
}

TEST_F(Etcdctl, WaitsForWhatWeHold) {
  auto ours = source_->acquire(resource, {.ttl = long_ttl});
  ASSERT_TRUE(ours);
  const auto theirs = lock_as("theirs");
  wait_for_line_of(2);
  EXPECT_FALSE(has_it("theirs"));
  EXPECT_FALSE(ours->lost().stop_requested());
  EXPECT_EQ(ours->release(), Release::released);
  wait_until([&] { return has_it("theirs"); });
  EXPECT_TRUE(is_held(*source_));
  finish("theirs");
  wait_for_line_of(0);
}

TEST_F(Etcdctl, AndWeAreServedInTheOrderInWhichWeCame) {
  auto first = source_->acquire(resource, {.ttl = long_ttl});
  ASSERT_TRUE(first);
  const auto second = lock_as("second");
  wait_for_line_of(2);
  std::optional<Lease> third;
  std::atomic<bool> has_returned{false};
  std::jthread waiter{[&] {
    third = source_->acquire(resource, {.ttl = long_ttl, .wait = limit});
    has_returned = true;
  }};
  wait_for_line_of(3);
  const auto fourth = lock_as("fourth");
  wait_for_line_of(4);
  EXPECT_EQ(written(), "");
  first->release();
  wait_until([&] { return has_it("second"); });
  EXPECT_FALSE(has_returned);
  finish("second");
  waiter.join();
  ASSERT_TRUE(third);
  EXPECT_FALSE(has_it("fourth"));
  third->release();
  wait_until([&] { return has_it("fourth"); });
  finish("fourth");
  wait_for_line_of(0);
}

TEST_F(Etcdctl, SharesALockUnderANameOfItsOwn) {
  const auto shared = open(cluster_.url("?lock_key=their/%25s"));
  const auto theirs = lock_as("theirs", "their/accounts/42");
  wait_until([&] { return has_it("theirs"); });
  EXPECT_TRUE(is_held(*shared));
  EXPECT_FALSE(is_held(*source_));  // under our own name it is another lock
  finish("theirs");
  auto ours = shared->acquire(resource, {.ttl = long_ttl, .wait = limit});
  ASSERT_TRUE(ours);
  const auto more = lock_as("more", "their/accounts/42");
  wait_until([&] { return keys_under(client_, "their/accounts/42/").size() == 2; });
  EXPECT_FALSE(has_it("more"));
  ours->release();
  wait_until([&] { return has_it("more"); });
  finish("more");
}

// revoke cuts off a foreign holder too: its key goes, its session stays its own.
TEST_F(Etcdctl, IsEndedByEnd) {
  const auto theirs = lock_as("theirs");
  wait_until([&] { return has_it("theirs"); });
  EXPECT_EQ(source_->end(resource), Release::released);
  EXPECT_FALSE(is_held(*source_));
  finish("theirs");
}

}  // namespace
}  // namespace fenceguard::test
