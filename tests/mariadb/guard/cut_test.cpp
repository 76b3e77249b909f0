// A holder that stands still in its open transaction, and the next one: whose session is ended, whose is not,
// and what of it landed. The interleavings are listed in adapters/mariadb/fences/holder_cutter.cpp.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <random>
#include <thread>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/fences/fence_table.hpp"
#include "adapters/mariadb/token_source.hpp"
#include "adapters/mariadb/versioned_table.hpp"
#include "tests/mariadb/guard/accounts.hpp"

namespace fenceguard::mariadb::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class Cut : public Accounts {
 protected:
  Cut() { EXPECT_EQ(Guard{connection_}.advance(claim(34)).verdict, Verdict::admitted); }

  // An open transaction under the claim, which has written.
  Connection holder(const Claim& claim, const char* begin = "START TRANSACTION") const {
    auto connection = database_.connect();
    connection.run(begin);
    EXPECT_EQ(admit_in(connection, claim).verdict, Verdict::admitted);
    return connection;
  }
  static bool is_alive(Connection& connection) {
    try {
      connection.run("SELECT 1");
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  void expect_stays(const char* sentence) {
    EXPECT_THAT([&] { (void)impatient_.advance(claim(35, "b")); },
                ThrowsMessage<Unavailable>(HasSubstr(sentence)));
    EXPECT_EQ(highest(), "34");
  }

  Guard impatient_{connection_, {.drain = std::chrono::seconds{0}}};
};

// A process that is stopped after its admission, goes on when the next holder has written, and commits, or
// writes once more.
TEST_F(Cut, AProcessStoppedInItsTransactionIsCutAndNothingOfItLands) {
  constexpr int unknown = 2;
  constexpr int stale = 3;
  int token = 34;
  for (const bool goes_on : {false, true}) {
    const auto child = fork();
    if (child == 0) {
      int status = 1;
      try {
        auto connection = database_.connect();
        const auto ruling = Guard{connection}.write(claim(token), [&](Connection& tx) {
          set_balance(tx, 1);
          (void)std::raise(SIGSTOP);
          if (goes_on) set_balance(tx, 3);
        });
        if (ruling.verdict == Verdict::stale) status = stale;
      } catch (const OutcomeUnknown&) {
        status = unknown;
      } catch (...) {
      }
      _exit(status);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    EXPECT_EQ(impatient_.write(claim(++token, "b"), [](Connection& tx) { set_balance(tx, 2); }).verdict,
              Verdict::admitted);
    ASSERT_EQ(kill(child, SIGCONT), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    // The commit's lost connection is unknown, although here it was cut before.
    EXPECT_EQ(WEXITSTATUS(status), goes_on ? stale : unknown);
    EXPECT_EQ(balance(), 2);
    ASSERT_EQ(Guard{connection_}.advance(claim(++token)).verdict, Verdict::admitted);
  }
}

// Stale says that nothing was committed, so it is not said of what may have been.
TEST_F(Cut, AnEndOfTheSessionIsStaleWhereNothingCanHaveBeenCommitted) {
  database_.run("ALTER TABLE account ADD version BIGINT NOT NULL DEFAULT 0, ADD token BIGINT");
  const VersionedTable table{connection_, {database_.name(), "account", {"id"}, "version", "token", ""}};
  const auto fail = [](Connection& tx) { EXPECT_THROW(tx.run("SELECT * FROM missing"), ServerError); };
  const auto set = [](Connection& tx) { set_balance(tx, 7); };
  using Step = std::function<void(Connection&)>;
  const auto write = [&](const Step& before, const Step& after, bool is_borrowed = false) {
    auto own = database_.connect();
    std::optional<Connection> borrowed;
    if (is_borrowed) borrowed.emplace(own.handle(), database_.name());
    return Guard{borrowed ? *borrowed : own}.write(claim(34), [&](Connection& tx) {
      before(tx);
      connection_.end_session(std::to_string(tx.id()));
      after(tx);
    });
  };
  const auto swallow = [&](Connection& tx) { EXPECT_THROW(set(tx), ConnectionLost); };
  const auto read = [&](Connection& tx) { (void)table.read(tx, {"42"}); };
  const auto fail_and_set = [&](Connection& tx) {
    fail(tx);
    set(tx);
  };
  const auto use_savepoint = [&](Connection& tx) {
    tx.run("SAVEPOINT one");
    set(tx);
    tx.run("rollback to one");
  };
  for (const auto& [before, after] : std::vector<std::pair<Step, Step>>{
           {set, set}, {set, swallow}, {set, read}, {fail_and_set, set}, {use_savepoint, set}}) {
    const auto ruling = write(before, after);
    EXPECT_EQ(ruling.verdict, Verdict::stale);
    EXPECT_EQ(ruling.highest, 0);
  }
  EXPECT_EQ(balance(), 100);
  // The last answer was an error, after which the transaction may be over.
  EXPECT_THROW((void)write(fail, set), OutcomeUnknown);
  EXPECT_THROW((void)write(set, set, true), OutcomeUnknown);
  const auto by_handle = [](Connection& tx) { (void)tx.handle(); };
  EXPECT_THROW((void)write(by_handle, set), OutcomeUnknown);
  EXPECT_EQ(balance(), 100);
  // What is the caller's own passes through, also beside a session that has ended, or by another connection.
  EXPECT_THROW((void)write(set, [](Connection&) { throw std::domain_error{"not enough"}; }),
               std::domain_error);
  auto held = database_.connect();
  EXPECT_THROW((void)Guard{held}.write(claim(34), [](Connection&) { throw ConnectionLost{"of another"}; }),
               ConnectionLost);
  // It commits what was written, and begins another transaction.
  const auto define = [&](Connection& tx) {
    set(tx);
    tx.run("CREATE TABLE made (id INT)");
    tx.run("START TRANSACTION");
  };
  for (const auto& after : {Step{set}, Step{swallow}, Step{read}})
    EXPECT_THROW((void)write(define,
                             [&](Connection& tx) {
                               database_.run("DROP TABLE made");
                               after(tx);
                             }),
                 OutcomeUnknown);
  EXPECT_EQ(balance(), 7);
}

TEST_F(Cut, AllThatKeepTheRowAreCutAndHoldersOfOtherFencesAreNot) {
  const Claim other{Resource{"accounts/1"}, Token{34}, Holder{"h"}, std::nullopt};
  ASSERT_EQ(impatient_.advance(other).verdict, Verdict::admitted);
  auto has_not_written = holder(claim(34));
  auto has_written = holder(claim(34));
  set_balance(has_written, 1);
  auto elsewhere = holder(other);
  EXPECT_EQ(impatient_.advance(claim(35, "b")).verdict, Verdict::admitted);
  EXPECT_FALSE(is_alive(has_not_written));
  EXPECT_FALSE(is_alive(has_written));
  commit(elsewhere, other);
  EXPECT_EQ(balance(), 100);
}

TEST_F(Cut, AHolderThatLockedTheRowAloneIsCut) {
  auto with_sequence = holder(claim(34).with(Sequence{7}));
  EXPECT_EQ(impatient_.advance(claim(35, "b")).verdict, Verdict::admitted);
  EXPECT_FALSE(is_alive(with_sequence));
}

// As in Galera, where who looks would wait for the row itself.
TEST_F(Cut, AHolderIsCutWhereAnAdmissionWritesTheFence) {
  connection_.run("DROP FUNCTION is_certified");
  connection_.run("CREATE FUNCTION is_certified() RETURNS BOOLEAN NOT DETERMINISTIC NO SQL RETURN TRUE");
  auto writing = holder(claim(34));
  EXPECT_EQ(impatient_.advance(claim(35, "b")).verdict, Verdict::admitted);
  EXPECT_FALSE(is_alive(writing));
}

TEST_F(Cut, AHolderThatIsBusyIsCut) {
  auto first = holder(claim(34));
  std::jthread busy{[&] { EXPECT_THROW(first.run("DO SLEEP(600)"), std::exception); }};
  EXPECT_EQ(impatient_.advance(claim(35, "b")).verdict, Verdict::admitted);
}

TEST_F(Cut, AdvanceThatMayNotOrCannotCutGivesUp) {
  auto first = holder(claim(34));
  Guard patient{connection_, {.drain = std::chrono::seconds{0}, .cut = false}};
  EXPECT_THROW((void)patient.advance(claim(35, "b")), Unavailable);
  EXPECT_THROW((void)patient.write(claim(35, "b"), [](Connection&) { FAIL(); }), Unavailable);
  Connection borrowed{connection_.handle(), database_.name()};
  EXPECT_THROW((void)(Guard{borrowed, {.drain = std::chrono::seconds{0}}}.advance(claim(35, "b"))),
               Unavailable);
  EXPECT_TRUE(is_alive(first));
  Connection with_address{connection_.handle(), database_.name(), address_of(database_.url())};
  EXPECT_EQ((Guard{with_address, {.drain = std::chrono::seconds{0}}}.advance(claim(35, "b"))).verdict,
            Verdict::admitted);
}

// As after a call that was interrupted (KILL QUERY): what it locked stays locked.
TEST_F(Cut, WhoeverKeepsTheRowIsCutAfterAWhile) {
  auto by_hand = database_.connect();
  by_hand.run("START TRANSACTION");
  by_hand.run("DELETE FROM commit_marks WHERE id = ''");
  by_hand.run("SELECT * FROM fences FOR UPDATE");
  EXPECT_EQ(impatient_.advance(claim(35, "b")).verdict, Verdict::admitted);
  EXPECT_FALSE(is_alive(by_hand));
}

TEST_F(Cut, AFloorCutsThoseThatItLeavesBelow) {
  auto below = holder(claim(34));
  auto floor = database_.connect();
  EXPECT_EQ(init(floor, 40), 40);
  EXPECT_FALSE(is_alive(below));
}

TEST_F(Cut, WhoeverKeepsALeaseOrTheCounterIsCutByTheNextCall) {
  const auto source = open_source(database_.url());
  const Resource resource{"leased"};
  ASSERT_TRUE(
      std::holds_alternative<Grant>(source->try_acquire(resource, Holder{"a"}, std::chrono::seconds{60})));
  auto still = database_.connect();
  still.run("START TRANSACTION");
  still.run("DELETE FROM commit_marks WHERE id = ''");
  still.run("SELECT * FROM counter FOR UPDATE");
  const auto grant = source->try_acquire(Resource{"other"}, Holder{"b"}, std::chrono::seconds{60});
  EXPECT_TRUE(std::holds_alternative<Grant>(grant));
  EXPECT_FALSE(is_alive(still));
}

// It would have no number by which it could be found.
TEST_F(Cut, AClaimInATransactionThatOnlyReadsIsRefused) {
  auto reader = database_.connect();
  reader.run("START TRANSACTION READ ONLY");
  EXPECT_THAT([&] { (void)admit_in(reader, claim(34)); }, ThrowsMessage<Unavailable>(HasSubstr("READ ONLY")));
  EXPECT_EQ(impatient_.advance(claim(35, "b")).verdict, Verdict::admitted);
}

// Its advance is written and not committed, in a session in which another claim was admitted before.
TEST_F(Cut, ANewerClaimIsLeftAlone) {
  auto newer = holder(claim(34));
  newer.run("COMMIT");
  newer.run("START TRANSACTION");
  newer.run("UPDATE fences SET token = 36");
  expect_stays("older transactions are still open");
  newer.run("COMMIT");
  EXPECT_EQ(highest(), "36");
}

// InnoDB gives such transactions no number, and shows all of them as the one that is in the way.
TEST_F(Cut, ATransactionThatOnlyReadsIsLeftAlone) {
  auto reader = database_.connect();
  reader.run("START TRANSACTION");
  reader.run("SELECT * FROM fences LOCK IN SHARE MODE");
  auto bystander = holder(claim(34));
  bystander.run("COMMIT");
  bystander.run("START TRANSACTION");
  bystander.run("SELECT * FROM account LOCK IN SHARE MODE");
  expect_stays("older transactions are still open");
  EXPECT_TRUE(is_alive(reader));
  EXPECT_TRUE(is_alive(bystander));
}

TEST_F(Cut, AUserWithoutTheRightsIsToldWhichItNeeds) {
  const auto user = database_.name() + "@localhost";
  database_.run("CREATE USER " + user);
  database_.run(fmt::format("GRANT EXECUTE ON {}.* TO {}", database_.name(), user));
  auto address = address_of(database_.url());
  address.host = "";
  address.socket = server_setting("SOCKET");
  address.user = database_.name();
  const auto advance = [&] {
    Connection connection{address};
    return Guard{connection, {.drain = std::chrono::seconds{0}}}.advance(claim(35, "b")).verdict;
  };
  auto first = holder(claim(34));
  EXPECT_THAT(advance, ThrowsMessage<Unavailable>(HasSubstr("the PROCESS privilege")));
  database_.run("GRANT PROCESS ON *.* TO " + user);
  EXPECT_THAT(advance, ThrowsMessage<Unavailable>(HasSubstr("the privilege CONNECTION ADMIN")));
  EXPECT_TRUE(is_alive(first));
  database_.run("GRANT CONNECTION ADMIN ON *.* TO " + user);
  EXPECT_EQ(advance(), Verdict::admitted);
  EXPECT_FALSE(is_alive(first));
  database_.run("DROP USER " + user);
}

// Holders take over from each other without patience, so that KILL meets them anywhere: idle, in a statement,
// in their COMMIT, after it. Each writes a row with its token, in the order of a number that is read and
// raised.
TEST_F(Cut, NothingStaleLandsAndNothingAcknowledgedIsLost) {
  database_.run(
      "CREATE TABLE history (number BIGINT PRIMARY KEY, token BIGINT NOT NULL, id BIGINT NOT NULL)");
  constexpr int writers = 4;
  constexpr int takeovers_each = 10;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::atomic<std::int64_t> tokens{100};
  std::atomic<int> cuts{0};
  std::array<std::vector<std::int64_t>, writers> acknowledged;
  std::vector<std::jthread> threads;
  for (int writer = 0; writer < writers; ++writer) {
    threads.emplace_back([&, writer] {
      std::mt19937 random{seed + static_cast<unsigned>(writer)};
      std::optional<Connection> own;
      std::int64_t id = writer * 1'000'000;
      // The first ones may all have been quick.
      for (int takeover = 0; takeover < takeovers_each || (cuts == 0 && takeover < 200); ++takeover) {
        const auto token = ++tokens;
        try {
          if (!own || !own->is_open()) own.emplace(database_.connect());
          Guard guard{*own, {.drain = std::chrono::seconds{0}}};
          for (int write = 0; write < 3; ++write) {
            ++id;
            const auto ruling = guard.write(claim(token), [&](Connection& tx) {
              tx.run("SELECT COUNT(*) FROM history");
              std::this_thread::sleep_for(std::chrono::milliseconds{random() % 2 == 0 ? 0 : 450});
              tx.run(fmt::format(
                  "INSERT INTO history SELECT COALESCE(MAX(number), 0) + 1, {}, {} FROM history", token, id));
            });
            if (ruling.verdict == Verdict::stale && !own->is_open()) ++cuts;
            if (ruling.verdict != Verdict::admitted) break;
            acknowledged[static_cast<std::size_t>(writer)].push_back(id);
          }
        } catch (const Error&) {
          if (!own->is_open()) ++cuts;
        } catch (const ServerError&) {
          // Two of one number met.
        }
      }
    });
  }
  threads.clear();
  const auto rows = database_.run("SELECT token, id FROM history ORDER BY number");
  std::set<std::int64_t> landed;
  std::int64_t before = 0;
  for (const auto& row : rows) {
    const auto token = std::stoll(*row[0]);
    EXPECT_GE(token, before) << "a stale write landed";
    before = token;
    landed.insert(std::stoll(*row[1]));
  }
  for (const auto& ids : acknowledged)
    for (const auto id : ids) EXPECT_TRUE(landed.contains(id)) << "acknowledged and lost: " << id;
  EXPECT_GT(cuts, 0);
}

}  // namespace
}  // namespace fenceguard::mariadb::test
