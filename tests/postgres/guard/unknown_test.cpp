// The connection is lost in the middle of a guarded write: what is reported must agree with what is in the
// database. A proxy cuts at every message in turn, until a write passes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pipelined_guard.hpp"
#include "adapters/postgres/versioned_table.hpp"
#include "guard/error.hpp"
#include "tests/postgres/guard/accounts.hpp"
#include "tests/process/message_cut.hpp"

namespace fenceguard::test {
namespace {

using From = Proxy::Direction;
using Cut = MessageCut::At;

constexpr From client = From::to_server;
constexpr From server = From::to_client;

// A byte for the type, which a client's first message lacks, and four bytes of length, which leave it out.
MessageCut::Framing messages() {
  return {.head_bytes = [](From from,
                           bool is_first) { return std::size_t{from == client && is_first ? 4u : 5u}; },
          .size = [](std::string_view head) { return head.size() - 4 + number_at(head, head.size() - 4); }};
}

enum class Ending { done, refused, nothing, unknown };

class Unknown : public Accounts {
 protected:
  // Of one attempt to write the balance, through the proxy.
  using Write = std::function<void(pqxx::connection&, const Claim&, int balance)>;

  Ending attempt(pqxx::connection& connection, const Write& write, const Claim& claim, int value) {
    try {
      write(connection, claim, value);
      return Ending::done;
    } catch (const OutcomeUnknown&) {
      return Ending::unknown;
    } catch (const Unavailable&) {
      return Ending::nothing;
    } catch (const pqxx::broken_connection&) {
      return Ending::nothing;  // of the function's own statement, before any COMMIT
    }
  }

  // A session that ended before its COMMIT is stale.
  static void expect_admitted(const Ruling& ruling) {
    if (ruling.verdict == Verdict::stale) throw Unavailable("the session ended");
    EXPECT_EQ(ruling.verdict, Verdict::admitted);
  }

  // What the server still works on is over when its backend is gone.
  void wait_until_alone() {
    ASSERT_TRUE(eventually([&] {
      return database_.ask(
                 "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                 "pid <> pg_backend_pid() AND backend_type = 'client backend'") == "0";
    }));
  }

  // Cuts at the first, second, ... message of each side, until nothing is cut any more.
  void cut_everywhere(const Write& write) {
    connection_.reset();
    int unknown = 0;
    int landed = 0;
    for (const auto from : {client, server}) {
      for (const auto cut : {Cut::before, Cut::within, Cut::after}) {
        bool was_cut = true;
        for (int number = 0; was_cut; ++number) {
          SCOPED_TRACE(fmt::format("message {} of the {}, cut {}", number,
                                   from == client ? "client" : "server", static_cast<int>(cut)));
          ASSERT_LT(number, 60);
          const int value = ++value_;
          const auto numbered = claim(34).with(Sequence{value});
          Ending ending{};
          {
            const auto connection = database_.connect(std::to_string(proxy_.port()));
            cut_.arm(from, number, cut);
            ending = attempt(*connection, write, numbered, value);
            was_cut = cut_.disarm();
          }
          wait_until_alone();
          const bool is_written = balance() == value;
          const auto fresh = database_.connect();
          const bool is_proven = postgres::Guard{*fresh}.ask(numbered);
          EXPECT_EQ(is_proven, is_written && is_numbered_);
          if (ending == Ending::done) {
            EXPECT_TRUE(is_written);
          }
          if (ending == Ending::nothing) {
            EXPECT_FALSE(is_written);
          }
          if (!was_cut) {
            EXPECT_EQ(ending, Ending::done);
          }
          unknown += ending == Ending::unknown ? 1 : 0;
          landed += ending == Ending::unknown && is_written ? 1 : 0;
        }
      }
    }
    // Both kinds of unknown were seen: what took effect, and what did not.
    EXPECT_GT(landed, 0);
    EXPECT_GT(unknown, landed);
  }

  MessageCut cut_{messages()};
  Proxy proxy_{std::stoi(server_setting("PORT")), cut_.filter()};
  int value_ = 1'000;
  bool is_numbered_ = true;  // or the write leaves the sequence out
};

TEST_F(Unknown, AWriteThatIsCutAnywhereEndsAsTheDatabaseSays) {
  cut_everywhere([](pqxx::connection& connection, const Claim& claim, int value) {
    const auto ruling =
        postgres::Guard{connection}.write(claim, [&](pqxx::work& tx) { set_balance(tx, value); });
    expect_admitted(ruling);
  });
}

// A COMMIT of the function's own, in one message with more, is no less unknown where its answer is cut.
TEST_F(Unknown, AWriteWhoseFunctionCommitsIsNotStaleAfterwards) {
  cut_everywhere([](pqxx::connection& connection, const Claim& claim, int value) {
    try {
      const auto ruling = postgres::Guard{connection}.write(claim, [&](pqxx::work& tx) {
        tx.exec(fmt::format("UPDATE account SET balance = {} WHERE id = 42; COMMIT", value));
        tx.exec("BEGIN");
      });
      expect_admitted(ruling);
    } catch (const OutcomeUnknown&) {
      // The guard finds the admission gone, also where nothing is cut.
      if (!connection.is_open()) throw;
    }
  });
}

TEST_F(Unknown, AWriteWhoseFunctionSwallowsTheLossEndsAsTheDatabaseSays) {
  cut_everywhere([](pqxx::connection& connection, const Claim& claim, int value) {
    const auto ruling = postgres::Guard{connection}.write(claim, [&](pqxx::work& tx) {
      for (int i = 0; i < 3; ++i) {
        try {
          set_balance(tx, value);
        } catch (const std::exception&) {
        }
      }
    });
    expect_admitted(ruling);
  });
}

TEST_F(Unknown, OneStatementThatIsCutAnywhereEndsAsTheDatabaseSays) {
  cut_everywhere([](pqxx::connection& connection, const Claim& claim, int value) {
    const auto done = postgres::Guard{connection}.execute(
        claim, "UPDATE account SET balance = $1 WHERE id = $2", {std::to_string(value), "42"});
    EXPECT_EQ(done.ruling.verdict, Verdict::admitted);
    EXPECT_EQ(done.result.affected_rows(), 1u);
  });
}

// Also where the claim must advance first, in a second trip.
TEST_F(Unknown, APipelineThatIsCutAnywhereEndsAsTheDatabaseSays) {
  advance(34);
  for (const bool is_newer : {true, false}) {
    for (const bool is_numbered : {true, false}) {
      is_numbered_ = is_numbered;
      cut_everywhere([&](pqxx::connection&, const Claim& claim, int value) {
        if (is_newer) database_.run("DELETE FROM fenceguard.fences");
        postgres::PipelinedGuard guard{database_.conninfo(std::to_string(proxy_.port()))};
        const auto done =
            guard.execute(is_numbered ? claim : claim.without_sequence(),
                          "UPDATE account SET balance = $1 WHERE id = $2", {std::to_string(value), "42"});
        EXPECT_EQ(done.ruling.verdict, Verdict::admitted);
        EXPECT_EQ(done.affected_rows, 1);
      });
    }
  }
}

TEST_F(Unknown, ATransactionOfTheCallersEndsAsTheDatabaseSays) {
  cut_everywhere([](pqxx::connection& connection, const Claim& claim, int value) {
    try {
      pqxx::work tx{connection};
      EXPECT_EQ(postgres::admit_in(tx, claim).verdict, Verdict::admitted);
      set_balance(tx, value);
      postgres::commit(tx);
    } catch (const pqxx::failure& error) {
      throw Unavailable(error.what());
    }
  });
}

// No cut anywhere in an advance leaves a fence that the caller was told is not there.
TEST_F(Unknown, AnAdvanceThatIsCutAnywhereEndsAsTheDatabaseSays) {
  connection_.reset();
  int token = 0;
  for (const auto from : {client, server}) {
    for (const auto cut : {Cut::before, Cut::within, Cut::after}) {
      bool was_cut = true;
      for (int number = 0; was_cut; ++number) {
        ++token;
        Ending ending{};
        {
          const auto connection = database_.connect(std::to_string(proxy_.port()));
          cut_.arm(from, number, cut);
          ending = attempt(
              *connection,
              [](pqxx::connection& c, const Claim& claim, int) {
                EXPECT_EQ(postgres::Guard{c}.advance(claim).verdict, Verdict::admitted);
              },
              claim(token), 0);
          was_cut = cut_.disarm();
        }
        wait_until_alone();
        const bool is_advanced = fence() == fmt::format("{} h ", token);
        if (ending == Ending::done) {
          EXPECT_TRUE(is_advanced);
        }
        if (ending == Ending::nothing) {
          EXPECT_FALSE(is_advanced);
        }
        if (!was_cut) {
          EXPECT_EQ(ending, Ending::done);
        }
      }
    }
  }
}

TEST_F(Unknown, AnOptimisticUpdateThatIsCutAnywhereEndsAsTheDatabaseSays) {
  database_.run(
      "ALTER TABLE account ADD version bigint NOT NULL DEFAULT 0, ADD token bigint, ADD holder text");
  const postgres::VersionedTable table{
      *connection_,
      {.table = "account", .key = {"id"}, .version = "version", .token = "token", .holder = "holder"}};
  connection_.reset();
  int value = 1'000;
  int unknown = 0;
  for (const auto from : {client, server}) {
    for (const auto cut : {Cut::before, Cut::within, Cut::after}) {
      bool was_cut = true;
      for (int number = 0; was_cut; ++number) {
        ++value;
        Ending ending{};
        {
          const auto direct = database_.connect();
          const auto row = table.read(*direct, {"42"});
          const auto connection = database_.connect(std::to_string(proxy_.port()));
          cut_.arm(from, number, cut);
          ending = attempt(
              *connection,
              [&](pqxx::connection& c, const Claim& claim, int balance) {
                EXPECT_EQ(table.update(c, claim, *row, {{"balance", std::to_string(balance)}}).verdict,
                          postgres::RowVerdict::admitted);
              },
              claim(34), value);
          was_cut = cut_.disarm();
        }
        wait_until_alone();
        if (ending == Ending::done) {
          EXPECT_EQ(balance(), value);
        }
        if (ending == Ending::nothing) {
          EXPECT_NE(balance(), value);
        }
        if (!was_cut) {
          EXPECT_EQ(ending, Ending::done);
        }
        unknown += ending == Ending::unknown ? 1 : 0;
      }
    }
  }
  EXPECT_GT(unknown, 0);
}

}  // namespace
}  // namespace fenceguard::test
