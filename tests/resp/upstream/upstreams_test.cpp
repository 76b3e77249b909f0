// The connections of one loop to a real Redis, which takes any password of a default user without one: those
// that nobody uses end, and so many are busy at most.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "server/net/loop.hpp"
#include "server/resp/upstream/upstreams.hpp"
#include "tests/proof/memory/memory.hpp"
#include "tests/redis/server.hpp"

namespace {
std::atomic<int> names_asked{0};
}

void* operator new(std::size_t size) {
  if (fenceguard::proof::Memory::note_allocation()) throw std::bad_alloc{};
  if (void* made = std::malloc(size > 0 ? size : 1)) return made;
  throw std::bad_alloc{};
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fenceguard::proof::Memory::note_allocation() ? nullptr : std::malloc(size > 0 ? size : 1);
}
void operator delete(void* gone) noexcept {
  std::free(gone);
}
void operator delete(void* gone, std::size_t) noexcept {
  std::free(gone);
}

// In place of the C library's, for all in this program. To read a number asks nobody.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  if (hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0) ++names_asked;
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(node, service, hints, found);
}

namespace fenceguard::resp::test {
namespace {

using fenceguard::test::RedisServer;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// Notes what it is told, and throws if it is asked to.
class User : public LinkUser {
 public:
  User(std::vector<std::string>& told, bool throws) : told_{told}, throws_{throws} {}
  void link_replied(Channel /*channel*/, std::string_view reply, net::SteadyTime /*sent_at*/) override {
    told_.emplace_back(reply);
  }
  void link_lost(Channel /*channel*/, bool was_sent, std::string_view /*why*/) override {
    told_.emplace_back(was_sent ? "lost" : "not sent");
    if (throws_) throw std::runtime_error("a user's own fault");
  }

 private:
  std::vector<std::string>& told_;
  const bool throws_;
};

// Awaits a write under a claim.
class Writer : public User {
 public:
  using User::User;
  [[nodiscard]] bool awaits_judged_write(Channel /*channel*/) const override { return true; }
};

class UpstreamsOfALoop : public testing::Test {
 protected:
  template <class Action>
  auto on_loop(Action action) {
    std::promise<decltype(action())> done;
    loop_->post([&] { done.set_value(action()); });
    return done.get_future().get();
  }

  void TearDown() override {
    on_loop([&] {
      upstreams_->close();
      upstreams_ = nullptr;
      return 0;
    });
    loop_->stop();
  }

  void open(UpstreamLimits limits, const std::string& host = "127.0.0.1") {
    auto address = redis::address_of(Url::parse(server_.url()));
    address.endpoints.front().host = host;
    loop_->start();
    upstreams_ =
        std::make_shared<Upstreams>(*loop_, address, std::make_shared<redis::CommandTable>(), limits);
  }

  static Upstreams::Place place(const std::string& password, int database = 0) {
    return {{password.empty() ? "" : "default", password}, database, 0};
  }

  // What a login as this user comes to; empty: it is one.
  std::string bind(const Upstreams::Place& place) {
    std::promise<std::string> done;
    loop_->post(
        [&] { upstreams_->bind(place, [&](const Greeting& greeting) { done.set_value(greeting.error); }); });
    return done.get_future().get();
  }

  // Without that which asks.
  std::ptrdiff_t connections() {
    const auto list = server_.call({"CLIENT", "LIST"}).text;
    return std::count(list.begin(), list.end(), '\n') - 1;
  }

  template <class Condition>
  static bool comes_true(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
    return condition();
  }
  bool comes_to(std::ptrdiff_t count) {
    return comes_true([&] { return connections() == count; });
  }

  RedisServer server_;
  std::shared_ptr<net::Loop> loop_ = std::make_shared<net::Loop>();
  std::shared_ptr<Upstreams> upstreams_;
};

TEST_F(UpstreamsOfALoop, ConnectionsThatNobodyUsesEndButForThoseOfTheUrl) {
  open({.idle_max = 100ms, .connections_max = 256});
  EXPECT_EQ(bind(place("")), "");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(bind(place("any " + std::to_string(i))), "");
  EXPECT_EQ(bind(place("", 1)), "");
  EXPECT_TRUE(comes_to(1));
  EXPECT_EQ(bind(place("any 1")), "");
}

TEST_F(UpstreamsOfALoop, TheIdlestMakesRoomAndWhereAllAreBusyNoMoreIsOpened) {
  open({.idle_max = 1h, .connections_max = 3});
  EXPECT_EQ(bind(place("")), "");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(bind(place("any " + std::to_string(i))), "");
  EXPECT_TRUE(comes_to(4));
  std::vector<std::string> told;
  const auto wait = std::string_view{"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n"};
  on_loop([&] {
    for (int i = 17; i < 20; ++i)
      upstreams_->shared(place("any " + std::to_string(i)), -1)
          ->send(std::make_shared<User>(told, false), wait, 1, true);
    return 0;
  });
  EXPECT_THAT(bind(place("one more")), HasSubstr("too many users"));
  on_loop([&] {
    upstreams_->shared(place("one more"), -1)->send(std::make_shared<User>(told, false), wait, 1, true);
    return 0;
  });
  const auto told_count = [&] { return on_loop([&] { return told.size(); }); };
  ASSERT_TRUE(comes_true([&] { return told_count() == 1; }));
  EXPECT_THAT(on_loop([&] { return told; }), ElementsAre("not sent"));
  EXPECT_EQ(bind(place("")), "");
  EXPECT_TRUE(comes_to(4));
  server_.call({"RPUSH", "q", "1", "2", "3"});
  ASSERT_TRUE(comes_true([&] { return told_count() == 4; }));
  EXPECT_EQ(bind(place("one more")), "");
}

TEST_F(UpstreamsOfALoop, OneUserThatThrowsKeepsNoOtherFromHearing) {
  open({});
  EXPECT_EQ(bind(place("")), "");
  std::vector<std::string> told;
  on_loop([&] {
    const auto link = upstreams_->shared(place(""), -1);
    for (const bool throws : {false, true, false, true, false})
      link->send(std::make_shared<User>(told, throws), "*1\r\n$4\r\nPING\r\n", 1, false);
    link->fail("a test");
    return 0;
  });
  EXPECT_EQ(on_loop([&] { return told.size(); }), 5u);
}

// No memory at the first allocation, at the second, ... while the link is lost, until there was enough.
TEST_F(UpstreamsOfALoop, LossIsToldAlsoWhereThereIsNoMemoryToSettleIt) {
  using proof::Memory;
  open({.settle = 100ms});
  EXPECT_EQ(bind(place("")), "");
  const auto wait = std::string_view{"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n"};
  bool had_enough = false;
  int n = 0;
  while (!had_enough && ++n < 200) {
    std::vector<std::string> told;
    told.reserve(8);
    const auto writer = std::make_shared<Writer>(told, false), other = std::make_shared<Writer>(told, false);
    const auto reader = std::make_shared<User>(told, false);
    on_loop([&] {
      const auto link = upstreams_->shared(place(""), -1);
      for (const LinkUserPtr& user :
           {LinkUserPtr{reader}, LinkUserPtr{writer}, LinkUserPtr{other}, LinkUserPtr{writer}})
        link->send(user, wait, 1, true);
      return 0;
    });
    ASSERT_TRUE(comes_true([&] {
      return server_.call({"INFO", "clients"}).text.find("blocked_clients:1") != std::string::npos;
    }));
    had_enough = on_loop([&] {
      const auto link = upstreams_->shared(place(""), -1);
      Memory::fail_at(n);
      try {
        const Memory::Watch watch;
        link->fail("a test, in a sentence that is longer than what a string has room for by itself");
      } catch (const std::bad_alloc&) {
        // Out of the loop's handler, in the product.
      }
      const bool has_failed = Memory::has_failed();
      Memory::fail_at(0);
      return !has_failed;
    });
    ASSERT_TRUE(comes_true([&] { return on_loop([&] { return told.size(); }) == 4; })) << "allocation " << n;
    EXPECT_THAT(on_loop([&] { return told; }), testing::Each(testing::Eq("lost")));
  }
  EXPECT_TRUE(had_enough);
  EXPECT_GT(n, 1);
}

// It is connected to where a name server is silent.
TEST_F(UpstreamsOfALoop, AnAddressInNumbersAsksNoResolver) {
  open({});
  const int before = names_asked;
  EXPECT_EQ(bind(place("")), "");
  EXPECT_EQ(names_asked, before);
}

TEST_F(UpstreamsOfALoop, ANameIsAskedFor) {
  open({}, "localhost");
  const int before = names_asked;
  EXPECT_EQ(bind(place("")), "");
  EXPECT_GT(names_asked, before);
}

}  // namespace
}  // namespace fenceguard::resp::test
