#include "server/net/poller.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace fenceguard::net {
namespace {

// One end of a pair of sockets, watched, and the other, from which the test sends.
class Pair : public Poller::Watcher {
 public:
  explicit Pair(Poller& poller) : poller_{poller} {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_) != 0) throw std::bad_alloc{};
    EXPECT_TRUE(poller_.add(sockets_[0], *this));
  }
  ~Pair() override {
    remove();
    ::close(sockets_[0]);
    end();
  }

  void ready(bool is_the_end) noexcept override {
    ++told;
    has_ended = is_the_end;
    if (then) then();
  }
  void send() { EXPECT_EQ(::write(sockets_[1], "x", 1), 1); }
  void end() {
    if (sockets_[1] >= 0) ::close(std::exchange(sockets_[1], -1));
  }
  void remove() { poller_.remove(sockets_[0], *this); }

  int told = 0;
  bool has_ended = false;
  std::function<void()> then;

 private:
  Poller& poller_;
  int sockets_[2]{-1, -1};
};

struct Action : Poller::Deferred {
  explicit Action(std::function<void()> run) : run_{std::move(run)} {}
  void run_deferred() noexcept override { run_(); }

 private:
  std::function<void()> run_;
};

class PollerTest : public testing::Test {
 protected:
  // Until nothing happens any more: what was sent is there at once.
  void settle() {
    do context.restart();
    while (context.poll() > 0);
  }

  asio::io_context context{1};
  Poller poller{context};
};

TEST_F(PollerTest, TellsOnceWhatHasComeAndOnceTheEnd) {
  Pair pair{poller};
  settle();
  EXPECT_EQ(pair.told, 0);
  for (int i = 1; i <= 3; ++i) {
    pair.send();
    settle();
    settle();
    EXPECT_EQ(pair.told, i);  // although nothing was read
    EXPECT_FALSE(pair.has_ended);
  }
  pair.end();
  settle();
  EXPECT_EQ(pair.told, 4);
  EXPECT_TRUE(pair.has_ended);
}

TEST_F(PollerTest, AWatcherThatWasRemovedInTheSameBatchHearsNothing) {
  Pair one{poller};
  Pair other{poller};
  one.then = [&] { other.remove(); };
  other.then = [&] { one.remove(); };
  one.send();
  other.send();
  settle();
  EXPECT_EQ(one.told + other.told, 1);
}

TEST_F(PollerTest, TellsMoreThanABatchHolds) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 300; ++i) pairs.push_back(std::make_unique<Pair>(poller));
  for (auto& pair : pairs) pair->send();
  settle();
  for (auto& pair : pairs) EXPECT_EQ(pair->told, 1);
}

TEST_F(PollerTest, ActionsRunOnceBehindTheBatchAndOutsideOneSoon) {
  Pair one{poller};
  Pair other{poller};
  int ran = 0;
  int told_before = 0;
  Action action{[&] {
    ++ran;
    told_before = one.told + other.told;
  }};
  one.then = other.then = [&] { poller.defer(action); };
  one.send();
  other.send();
  settle();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(told_before, 2);
  poller.defer(action);
  poller.defer(action);
  EXPECT_EQ(ran, 1);
  settle();
  EXPECT_EQ(ran, 2);
}

TEST_F(PollerTest, AnActionThatIsDestroyedIsForgotten) {
  int ran = 0;
  auto later = std::make_unique<Action>([&] { ++ran; });
  Action first{[&] { later.reset(); }};
  poller.defer(first);
  poller.defer(*later);
  {
    Action gone{[&] { ++ran; }};
    poller.defer(gone);
  }
  settle();
  EXPECT_FALSE(later);
  EXPECT_EQ(ran, 0);
}

TEST_F(PollerTest, AnActionThatDefersItselfAgainLeavesTheLoopItsTurn) {
  bool has_had_its_turn = false;
  int ran = 0;
  std::unique_ptr<Action> action;
  action = std::make_unique<Action>([&] {
    ++ran;
    if (!has_had_its_turn) poller.defer(*action);
  });
  poller.defer(*action);
  asio::post(context, [&] { asio::post(context, [&] { has_had_its_turn = true; }); });
  settle();
  EXPECT_TRUE(has_had_its_turn);
  EXPECT_GT(ran, 1);
}

TEST_F(PollerTest, WithoutADescriptorNothingIsAdded) {
  struct Deaf : Poller::Watcher {
    void ready(bool /*has_ended*/) noexcept override {}
  } watcher;
  EXPECT_FALSE(poller.add(-1, watcher));
}

}  // namespace
}  // namespace fenceguard::net
