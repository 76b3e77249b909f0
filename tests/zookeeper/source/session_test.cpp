#include "adapters/zookeeper/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "adapters/zookeeper/lock/deletion_watcher.hpp"
#include "guard/error.hpp"
#include "tests/process/proxy.hpp"
#include "tests/zookeeper/source/space.hpp"

namespace fenceguard::zookeeper {
namespace {

using test::eventually;
using test::Proxy;
using Ms = std::chrono::milliseconds;

class SessionTest : public testing::Test {
 protected:
  static Address address(const std::string& parameters = "") {
    return address_of(Url::parse(test::shared_ensemble().url(test::fresh_root() + parameters)));
  }
  static Address through(const Proxy& proxy, const std::string& parameters = "") {
    return address_of(Url::parse("zookeeper://127.0.0.1:" + std::to_string(proxy.port()) +
                                 test::fresh_root() + parameters));
  }
  // As the shared server counts them.
  static int watch_count() {
    const std::string name = "zk_watch_count\t";
    int count = -1;
    (void)eventually([&] {
      const auto text = test::shared_ensemble().node(0).ask("mntr");
      const auto at = text.find(name);
      if (at != text.npos) count = std::stoi(text.substr(at + name.size()));
      return at != text.npos;
    });
    return count;
  }
  static int port() { return test::shared_ensemble().node(0).port(); }
};

TEST_F(SessionTest, ItMakesReadsChangesAndRemovesNodes) {
  const auto at = address();
  Session session{at, Ms{10'000}};
  session.wait_until_connected();
  EXPECT_NE(session.id(), 0);
  EXPECT_GT(session.session_timeout(), Ms{0});
  session.make_path(at.root + "/a/b");
  session.make_path(at.root + "/a/b");
  EXPECT_EQ(session.create(at.root + "/a/b/c", "one").code, Code::ok);
  EXPECT_EQ(session.create(at.root + "/a/b/c", "one").code, Code::node_exists);
  EXPECT_EQ(session.create(at.root + "/x/y", "one").code, Code::no_node);
  EXPECT_EQ(session.get(at.root + "/a/b/c").data, "one");
  EXPECT_EQ(session.set(at.root + "/a/b/c", "two", 7).code, Code::bad_version);
  const auto changed = session.set(at.root + "/a/b/c", "two", 0);
  EXPECT_EQ(changed.stat.version, 1);
  EXPECT_GT(changed.stat.mzxid, changed.stat.czxid);
  EXPECT_EQ(session.get(at.root + "/a/b/c").data, "two");
  EXPECT_EQ(session.get(at.root + "/none").code, Code::no_node);
  EXPECT_EQ(session.get_children(at.root + "/a").children, std::vector<std::string>{"b"});
  EXPECT_EQ(session.remove(at.root + "/a").code, Code::not_empty);
  EXPECT_EQ(session.remove(at.root + "/a/b/c").code, Code::ok);
  EXPECT_EQ(session.exists(at.root + "/a/b/c").code, Code::no_node);
  const auto made = session.create(at.root + "/s-", "", Mode::ephemeral_sequential);
  EXPECT_EQ(made.path, at.root + "/s-0000000001");
  EXPECT_EQ(made.stat.ephemeral_owner, session.id());
  EXPECT_EQ(session.create(made.path + "/below", "").code, Code::no_children);
}

TEST_F(SessionTest, AMultiTakesEffectAsAWholeOrTellsWhichOperationCouldNot) {
  const auto at = address();
  Session session{at, Ms{10'000}};
  session.wait_until_connected();
  session.make_path(at.root);
  const auto done =
      session.multi({create(at.root + "/n", "1"), create(at.root + "/q-", "", Mode::ephemeral_sequential),
                     set(at.root + "/n", "2", 0), check(at.root + "/n", 1)});
  ASSERT_TRUE(done.is_ok());
  ASSERT_EQ(done.answers.size(), 4u);
  EXPECT_EQ(done.answers[1].path, at.root + "/q-0000000001");
  EXPECT_EQ(done.answers[2].stat.version, 1);
  const auto refused = session.multi({check(at.root + "/n", 1), set(at.root + "/n", "3"),
                                      check(at.root + "/n", 9), remove(at.root + "/none")});
  EXPECT_EQ(refused.code, Code::bad_version);
  EXPECT_EQ(refused.failed, 2u);
  EXPECT_EQ(session.get(at.root + "/n").data, "2");
  EXPECT_EQ(session.multi({remove(at.root + "/none")}).code, Code::no_node);
}

TEST_F(SessionTest, WhatWasBegunFirstIsSeenByWhatWasBegunNext) {
  const auto at = address();
  Session session{at, Ms{10'000}};
  session.wait_until_connected();
  session.make_path(at.root);
  auto made = session.begin_create(at.root + "/n", "1", Mode::persistent);
  auto set_it = session.begin_multi({set(at.root + "/n", "2")});
  auto read = session.begin_get(at.root + "/n");
  auto listed = session.begin_get_children(at.root);
  EXPECT_EQ(listed.get().children.size(), 1u);
  EXPECT_EQ(read.get().data, "2");
  EXPECT_TRUE(set_it.get().is_ok());
  EXPECT_EQ(made.get().code, Code::ok);
}

TEST_F(SessionTest, AWatchTellsOnceThatTheNodeHasGone) {
  const auto at = address();
  Session session{at, Ms{10'000}};
  session.wait_until_connected();
  session.make_path(at.root + "/n");
  std::atomic<int> told{0};
  std::atomic<int> gone{0};
  (void)session.exists(at.root + "/n", [&](bool is_gone) {
    gone += is_gone ? 1 : 0;
    ++told;
  });
  (void)session.remove(at.root + "/n");
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  session.make_path(at.root + "/n");
  (void)session.remove(at.root + "/n");
  EXPECT_EQ(session.exists(at.root + "/n").code, Code::no_node);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(gone, 1);
}

// It is told so, and nobody would ever take the watch away.
TEST_F(SessionTest, ReadingANodeThatIsGoneLeavesNoWatchBehind) {
  const auto at = address();
  Session session{at, Ms{10'000}};
  session.wait_until_connected();
  const auto kept = std::make_shared<int>();
  std::atomic<int> gone{0};
  EXPECT_EQ(session.get(at.root + "/none", [kept, &gone](bool is_gone) { gone += is_gone ? 1 : 10; }).code,
            Code::no_node);
  EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));
  EXPECT_EQ(gone, 1);
}

TEST_F(SessionTest, WaitersForOneNodeShareItsWatch) {
  DeletionWatcher watcher;
  const auto at = address();
  Session session{at, Ms{10'000}};
  session.wait_until_connected();
  session.make_path(at.root + "/n");
  // Those of sessions that have just ended count for a moment yet.
  ASSERT_TRUE(eventually([] { return watch_count() == 0; }));
  std::vector<std::shared_ptr<Event>> events;
  for (int i = 0; i < 10; ++i) {
    watcher.set_when_gone(session, at.root + "/n", events.emplace_back(std::make_shared<Event>()));
    watcher.set_when_gone(session, at.root + "/n", std::make_shared<Event>());  // gives up at once
  }
  EXPECT_EQ(watch_count(), 1);
  (void)session.remove(at.root + "/n");
  for (const auto& event : events) EXPECT_TRUE(event->wait({}, BootClock::now() + std::chrono::minutes{1}));
  const auto late = std::make_shared<Event>();
  watcher.set_when_gone(session, at.root + "/n", late);
  EXPECT_TRUE(late->wait({}, BootClock::now() + std::chrono::minutes{1}));
  EXPECT_EQ(watch_count(), 0);
}

TEST_F(SessionTest, AWatchTellsOfTheSessionsEndAsWell) {
  std::atomic<int> told{0};
  std::atomic<int> gone{0};
  {
    const auto at = address();
    Session session{at, Ms{10'000}};
    session.wait_until_connected();
    session.make_path(at.root + "/n");
    (void)session.exists(at.root + "/n", [&](bool is_gone) {
      gone += is_gone ? 1 : 0;
      ++told;
    });
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(gone, 0);
}

// A session whose connection is cut past its time: whoever looked at a node hears of its end, and every call
// is refused.
TEST_F(SessionTest, AnExpiredSessionIsOverForGood) {
  Proxy proxy{port()};
  std::atomic<int> told{0};
  std::atomic<bool> was_suspended{false};
  std::atomic<bool> is_over{false};
  const auto at = through(proxy);
  Session session{at, Ms{5'000}, [&](Session::State state) {
                    if (state == Session::State::connecting) was_suspended = true;
                    if (state == Session::State::expired) is_over = true;
                  }};
  session.wait_until_connected();
  session.make_path(at.root);
  const auto own = session.create(at.root + "/own", "", Mode::ephemeral);
  (void)session.exists(own.path, [&](bool) { ++told; });
  proxy.set(Proxy::Way::closed);
  EXPECT_TRUE(eventually([&] { return session.state() == Session::State::connecting; }));
  EXPECT_THROW((void)session.create(at.root + "/n", ""), Unavailable);
  EXPECT_THROW((void)session.get(at.root), Unavailable);
  EXPECT_TRUE(test::wait_until_gone(own.path));
  proxy.set(Proxy::Way::open);
  EXPECT_TRUE(eventually([&] { return is_over && told == 1; }));
  EXPECT_TRUE(was_suspended);
  EXPECT_THROW((void)session.get(at.root), Unavailable);
  EXPECT_THROW(session.wait_until_connected(), Unavailable);
}

TEST_F(SessionTest, ABrokenConnectionHealsAndTheSessionLivesOn) {
  Proxy proxy{port()};
  const auto at = through(proxy);
  Session session{at, Ms{20'000}};
  session.wait_until_connected();
  session.make_path(at.root);
  const auto own = session.create(at.root + "/own", "", Mode::ephemeral);
  const auto id = session.id();
  proxy.set(Proxy::Way::closed);
  EXPECT_TRUE(eventually([&] { return session.state() == Session::State::connecting; }));
  proxy.set(Proxy::Way::open);
  session.wait_until_connected();
  EXPECT_EQ(session.id(), id);
  EXPECT_EQ(session.exists(own.path).stat.czxid, own.stat.czxid);
}

// The server keeps silent: reads are given up as unavailable and writes as unknown, in our own time, and the
// late answers do no harm.
TEST_F(SessionTest, ASilentServerLeavesAReadUnavailableAndAWriteUnknown) {
  Proxy proxy{port()};
  const auto at = through(proxy, "?timeout=5s");
  Session session{at, Ms{20'000}};
  session.wait_until_connected();
  session.make_path(at.root);
  proxy.set(Proxy::Way::silent);
  auto write = session.begin_create(at.root + "/late", "", Mode::persistent);
  auto multi = session.begin_multi({create(at.root + "/later", "")});
  auto read = session.begin_get(at.root);
  EXPECT_THROW((void)read.get(), Unavailable);
  EXPECT_THROW((void)write.get(), OutcomeUnknown);
  EXPECT_THROW((void)multi.get(), OutcomeUnknown);
  proxy.set(Proxy::Way::open);
  EXPECT_TRUE(eventually([&] { return session.exists(at.root + "/later").code == Code::ok; }));
  EXPECT_EQ(session.exists(at.root + "/late").code, Code::ok);
}

TEST_F(SessionTest, AConnectionCutBeforeTheAnswerLeavesAWriteUnknown) {
  std::atomic<bool> cuts{false};
  Proxy proxy{port(), [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                return cuts && direction == Proxy::Direction::to_client ? 0 : piece.size();
              }};
  const auto at = through(proxy);
  Session session{at, Ms{20'000}};
  session.wait_until_connected();
  session.make_path(at.root);
  cuts = true;
  EXPECT_THROW((void)session.create(at.root + "/n", ""), OutcomeUnknown);
  cuts = false;
  session.wait_until_connected();
  EXPECT_EQ(session.exists(at.root + "/n").code, Code::ok);
}

TEST_F(SessionTest, WithoutAServerTheMessageNamesTheHostsAndWhatToDo) {
  const auto port = std::to_string(test::free_port());
  Session session{address_of(Url::parse("zookeeper://127.0.0.1:" + port + "/x?timeout=200ms")), Ms{10'000}};
  try {
    session.wait_until_connected();
    FAIL() << "connected to nobody";
  } catch (const Unavailable& fault) {
    EXPECT_NE(std::string{fault.what()}.find("127.0.0.1:" + port), std::string::npos) << fault.what();
  }
  EXPECT_THROW(Session(address_of(Url::parse("zookeeper://no.such.host.invalid/x")), Ms{10'000}),
               Unavailable);
}

TEST_F(SessionTest, NodesOfAUserAreClosedToOthersAndMayBeReadWhereTheUrlSaysSo) {
  const auto root = test::fresh_root();
  const auto url = [&](const std::string& user, const std::string& rest) {
    const auto plain = test::shared_ensemble().url(root + rest);
    return address_of(Url::parse(plain.substr(0, 12) + user + plain.substr(12)));
  };
  Session owner{url("ann:secret@", ""), Ms{10'000}};
  owner.wait_until_connected();
  owner.make_path(root + "/own");
  EXPECT_EQ(owner.set(root + "/own", "1").code, Code::ok);
  EXPECT_EQ(owner.get(root + "/own").data, "1");
  Session readable{url("ann:secret@", "?acl=read"), Ms{10'000}};
  readable.wait_until_connected();
  EXPECT_EQ(readable.create(root + "/shown", "2").code, Code::ok);
  for (const std::string user : {"", "ann:wrong@", "bob:secret@"}) {
    Session other{url(user, ""), Ms{10'000}};
    other.wait_until_connected();
    EXPECT_THROW((void)other.get(root + "/own"), Unavailable);
    EXPECT_THROW((void)other.set(root + "/own", "3"), Unavailable);
    EXPECT_EQ(other.get(root + "/shown").data, "2");
    EXPECT_THROW((void)other.set(root + "/shown", "3"), Unavailable);
  }
}

TEST_F(SessionTest, NothingIsWrittenToTheStandardErrorOfTheProcess) {
  testing::internal::CaptureStderr();
  {
    Proxy proxy{port()};
    const auto at = through(proxy);
    Session session{at, Ms{10'000}};
    session.wait_until_connected();
    proxy.set(Proxy::Way::closed);
    EXPECT_TRUE(eventually([&] { return session.state() == Session::State::connecting; }));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace fenceguard::zookeeper
