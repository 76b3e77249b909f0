// Locks that are shared with kazoo (the real one, in a process of its own) and with Curator (by its
// documented layout).

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "adapters/zookeeper/token_source.hpp"
#include "adapters/zookeeper/wire/layout.hpp"
#include "guard/error.hpp"
#include "tests/zookeeper/source/space.hpp"

namespace fenceguard::zookeeper {
namespace {

using test::eventually;
using Ms = std::chrono::milliseconds;

const Resource r{"accounts/42"};
constexpr Ms long_ttl{60'000};

std::unique_ptr<TokenSource> open_with(const std::string& root, const std::string& parameters) {
  return open_source(
      Url::parse(test::shared_ensemble().url(root + "?session_timeout=90s&timeout=60s" + parameters)));
}

std::vector<std::string> entries(const std::string& path) {
  return entries_of(test::observer().get_children(path).children);
}

// kazoo's Lock on path.
class Kazoo {
 public:
  explicit Kazoo(const std::string& path) {
    const auto hosts = "127.0.0.1:" + std::to_string(test::shared_ensemble().node(0).port());
    int to_child[2];
    int from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0)
      throw std::runtime_error{"pipe2 failed"};
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      execl("/usr/bin/python3", "python3", "-B",
            FENCEGUARD_SOURCE_DIR "/tests/zookeeper/source/kazoo_child.py", hosts.c_str(), path.c_str(),
            nullptr);
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    input_ = fdopen(to_child[1], "w");
    output_ = fdopen(from_child[0], "r");
    expect("ready");
  }
  ~Kazoo() {
    fclose(input_);
    fclose(output_);
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Kazoo(const Kazoo&) = delete;
  Kazoo& operator=(const Kazoo&) = delete;

  void say(const std::string& word) {
    std::fputs((word + "\n").c_str(), input_);
    std::fflush(input_);
  }
  std::string hear() {
    char line[256]{};
    if (std::fgets(line, sizeof line, output_) == nullptr) throw std::runtime_error{"kazoo's process ended"};
    std::string text{line};
    text.pop_back();
    return text;
  }
  void expect(const std::string& word) { EXPECT_EQ(hear(), word); }
  // The czxid of its node.
  std::int64_t expect_held() {
    const auto text = hear();
    EXPECT_EQ(text.substr(0, 5), "held ");
    return std::stoll(text.substr(5));
  }

 private:
  pid_t pid_ = -1;
  FILE* input_ = nullptr;
  FILE* output_ = nullptr;
};

class Interop : public testing::Test {
 protected:
  const std::string root_ = test::fresh_root();
  const std::string path_ = root_ + "/locks/accounts/42";
};

TEST_F(Interop, KazooDoesNotGetWhatWeHold) {
  const auto source = open_with(root_, "");
  const auto grant = std::get<Grant>(source->try_acquire(r, Holder{"a"}, long_ttl));
  Kazoo kazoo{path_};
  kazoo.say("try");
  kazoo.expect("busy");
  EXPECT_EQ(source->release(grant.claim), Release::released);
  kazoo.say("try");
  EXPECT_GT(kazoo.expect_held(), grant.claim.token.value());
}

TEST_F(Interop, WeDoNotGetWhatKazooHoldsAndShowItsToken) {
  Kazoo kazoo{path_};
  kazoo.say("try");
  const auto czxid = kazoo.expect_held();
  const auto source = open_with(root_, "");
  EXPECT_TRUE(std::holds_alternative<LockBusy>(source->try_acquire(r, Holder{"a"}, long_ttl)));
  const auto shown = source->show(r);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->claim.token.value(), czxid);
  EXPECT_EQ(shown->claim.holder, Holder{});
  EXPECT_EQ(source->lowest_live()->value(), czxid);
  kazoo.say("release");
  kazoo.expect("released");
  EXPECT_GT(std::get<Grant>(source->try_acquire(r, Holder{"a"}, long_ttl)).claim.token.value(), czxid);
}

// Ours and kazoo's stand in one queue and are served in its order.
TEST_F(Interop, WaitersOfBothAreServedInTheirOrder) {
  const auto source = open_with(root_, "");
  const auto first = std::get<Grant>(source->try_acquire(r, Holder{"first"}, long_ttl));
  Kazoo second{path_};
  second.say("acquire");
  second.expect("asking");
  EXPECT_TRUE(eventually([&] { return entries(path_).size() == 2; }));
  std::optional<Grant> third;
  std::jthread waiter{
      [&] { third = source->wait_acquire(r, Holder{"third"}, {.ttl = long_ttl, .wait = long_ttl}); }};
  EXPECT_TRUE(eventually([&] { return entries(path_).size() == 3; }));
  Kazoo fourth{path_};
  fourth.say("acquire");
  fourth.expect("asking");
  EXPECT_TRUE(eventually([&] { return entries(path_).size() == 4; }));
  EXPECT_EQ(source->release(first.claim), Release::released);
  const auto second_token = second.expect_held();
  EXPECT_GT(second_token, first.claim.token.value());
  EXPECT_EQ(entries(path_).size(), 3u);
  second.say("release");
  second.expect("released");
  waiter.join();
  ASSERT_TRUE(third);
  EXPECT_GT(third->claim.token.value(), second_token);
  EXPECT_EQ(source->release(third->claim), Release::released);
  EXPECT_GT(fourth.expect_held(), third->claim.token.value());
}

TEST_F(Interop, ALockPathOfKazoosIsShared) {
  Kazoo kazoo{root_ + "/their/accounts/42"};
  kazoo.say("try");
  (void)kazoo.expect_held();
  const auto source = open_with(root_, "&lock_path=" + root_ + "/their/%25s");
  EXPECT_TRUE(std::holds_alternative<LockBusy>(source->try_acquire(r, Holder{"a"}, long_ttl)));
  kazoo.say("release");
  kazoo.expect("released");
  EXPECT_TRUE(std::holds_alternative<Grant>(source->try_acquire(r, Holder{"a"}, long_ttl)));
  kazoo.say("try");
  kazoo.expect("busy");
}

// As LockInternals.getSortedChildren and standardFixForSorting of Curator do: by what follows the last
// 'lock-'.
std::vector<std::string> sorted_as_curator(std::vector<std::string> names) {
  const auto key = [](const std::string& name) {
    const auto at = name.rfind("lock-");
    return at == name.npos ? name : name.substr(at + 5);
  };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return names;
}

TEST_F(Interop, WeWaitForCuratorsNodeAndCuratorsOrderIsOurs) {
  const auto source = open_with(root_, "&layout=curator");
  const auto early = std::get<Grant>(source->try_acquire(r, Holder{"early"}, long_ttl));
  const auto theirs = test::observer().create(path_ + "/_c_0a1b2c3d-0000-4000-8000-0123456789ab-lock-",
                                              "10.0.0.1", Mode::ephemeral_sequential);
  ASSERT_EQ(theirs.code, Code::ok);
  std::optional<Grant> late;
  std::jthread waiter{
      [&] { late = source->wait_acquire(r, Holder{"late"}, {.ttl = long_ttl, .wait = long_ttl}); }};
  EXPECT_TRUE(eventually([&] { return entries(path_).size() == 3; }));
  const auto all = test::observer().get_children(path_).children;
  EXPECT_EQ(sorted_as_curator(all), entries_of(all));
  EXPECT_EQ(path_ + "/" + sorted_as_curator(all)[1], theirs.path);
  EXPECT_EQ(source->release(early.claim), Release::released);
  ASSERT_TRUE(eventually([&] { return entries(path_).size() == 2; }));
  // Curator's turn: its node is the first.
  EXPECT_EQ(source->show(r)->claim.token.value(), theirs.stat.czxid);
  EXPECT_EQ(test::observer().remove(theirs.path).code, Code::ok);
  waiter.join();
  ASSERT_TRUE(late);
  EXPECT_GT(late->claim.token.value(), theirs.stat.czxid);
}

TEST_F(Interop, CuratorsNamesAreReadInEveryLayout) {
  const auto source = open_with(root_, "");
  const auto first = std::get<Grant>(source->try_acquire(r, Holder{"a"}, long_ttl));
  EXPECT_EQ(source->release(first.claim), Release::released);
  const auto theirs = test::observer().create(path_ + "/lock-", "", Mode::ephemeral_sequential);
  EXPECT_TRUE(std::holds_alternative<LockBusy>(source->try_acquire(r, Holder{"a"}, long_ttl)));
  EXPECT_EQ(source->end(r), Release::released);
  EXPECT_EQ(test::observer().exists(theirs.path).code, Code::no_node);
}

}  // namespace
}  // namespace fenceguard::zookeeper
