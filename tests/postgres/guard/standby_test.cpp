// A commit that waits for a synchronous standby, and whose wait is cancelled: the server answers success and
// a warning. It is there, and may be gone after a failover, so nobody may be told that it is done.
//
// The standby is a name that nobody has. Each test runs what it tries in a thread, cancels its backend once
// that waits for the standby, and looks at how it ended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "adapters/postgres/fences/storage.hpp"
#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pipelined_guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "adapters/postgres/token_source.hpp"
#include "adapters/postgres/versioned_table.hpp"
#include "guard/error.hpp"
#include "guard/support/wait_for.hpp"
#include "tests/postgres/guard/accounts.hpp"

namespace fenceguard::test {
namespace {

class Standby : public Accounts {
 protected:
  ~Standby() override { await_standby("''"); }

  // '' for none.
  void await_standby(const std::string& name) {
    database_.run("ALTER SYSTEM SET synchronous_standby_names = " + name);
    database_.run("SELECT pg_reload_conf()");
    EXPECT_TRUE(eventually(
        [&] { return fmt::format("'{}'", database_.ask("SHOW synchronous_standby_names")) == name; }));
    // Until its checkpointer has read it as well, no commit waits.
    database_.run("CHECKPOINT");
  }

  // How attempt() ends if the wait for the standby is cancelled each time that there is one.
  std::string ending_of(const std::function<void()>& attempt) {
    await_standby("'nobody'");
    auto ending = std::async(std::launch::async, [&]() -> std::string {
      try {
        attempt();
        return "done";
      } catch (const OutcomeUnknown& error) {
        return fmt::format("unknown: {}", error.what());
      } catch (const std::exception& error) {
        return fmt::format("{}", error.what());
      }
    });
    const auto is_over = [&] {
      return ending.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
    };
    int cancelled = 0;
    EXPECT_TRUE(eventually([&] {
      cancelled += std::stoi(database_.ask(
          "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
          "AND wait_event = 'SyncRep'"));
      return is_over();
    }));
    EXPECT_GT(cancelled, 0);
    await_standby("''");
    return ending.get();
  }

  [[nodiscard]] postgres::VersionedTable versioned() const {
    database_.run("ALTER TABLE account ADD version bigint NOT NULL DEFAULT 0, ADD token bigint");
    return {*connection_, {.table = "account", .key = {"id"}, .version = "version", .token = "token"}};
  }

  Url url() const {
    return Url::parse(
        fmt::format("postgres://postgres@127.0.0.1:{}/{}", server_setting("PORT"), database_.name()));
  }
};

TEST_F(Standby, AGuardedWriteWhoseWaitWasCancelledIsUnknown) {
  advance(34);
  EXPECT_THAT(ending_of([&] {
                (void)postgres::Guard{*connection_}.write(claim(34),
                                                          [](pqxx::work& tx) { set_balance(tx, 7); });
              }),
              testing::StartsWith("unknown: writing accounts/42: "));
  EXPECT_EQ(balance(), 7);
}

TEST_F(Standby, CancelledWaitOfACallersTransactionIsUnknown) {
  advance(34);
  for (const auto* const level : {"notice", "error"}) {
    EXPECT_THAT(ending_of([&] {
                  pqxx::work tx{*connection_};
                  tx.exec(fmt::format("SET client_min_messages = {}", level));
                  EXPECT_EQ(postgres::admit_in(tx, claim(34)).verdict, Verdict::admitted);
                  set_balance(tx, 8);
                  postgres::commit(tx);
                }),
                testing::StartsWith("unknown: committing: "));
  }
}

TEST_F(Standby, AnAdvanceThatIsSaidAgainRestsOnTheSameWait) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(ending_of([&] { (void)postgres::Guard{*connection_}.advance(claim(35)); }),
                testing::StartsWith("unknown: advancing accounts/42: "));
    postgres::PipelinedGuard guard{database_.conninfo()};
    EXPECT_THAT(ending_of([&] { (void)guard.advance(claim(35)); }),
                testing::StartsWith("unknown: advancing accounts/42: "));
  }
}

TEST_F(Standby, AnAdvanceLikewise) {
  EXPECT_THAT(ending_of([&] { (void)postgres::Guard{*connection_}.advance(claim(35)); }),
              testing::StartsWith("unknown: advancing accounts/42: "));
}

TEST_F(Standby, OneGuardedStatementLikewise) {
  advance(34);
  EXPECT_THAT(ending_of([&] {
                (void)postgres::Guard{*connection_}.execute(claim(34), "UPDATE account SET balance = 9");
              }),
              testing::StartsWith("unknown: writing accounts/42: "));
  EXPECT_EQ(balance(), 9);
}

TEST_F(Standby, OneInAPipelineLikewise) {
  advance(34);
  postgres::PipelinedGuard guard{database_.conninfo() + " options='-c client_min_messages=error'"};
  EXPECT_THAT(ending_of([&] { (void)guard.execute(claim(34), "UPDATE account SET balance = 9"); }),
              testing::StartsWith("unknown: writing accounts/42: "));
  EXPECT_EQ(balance(), 9);
  EXPECT_THAT(ending_of([&] { (void)guard.advance(claim(35)); }),
              testing::StartsWith("unknown: advancing accounts/42: "));
  const auto written = claim(35).with(Sequence{1});
  const auto write = [&] { return guard.execute(written, "UPDATE account SET balance = 8").ruling.verdict; };
  EXPECT_THAT(ending_of([&] { (void)write(); }), testing::StartsWith("unknown: writing accounts/42: "));
  EXPECT_THAT(ending_of([&] { (void)write(); }), testing::StartsWith("unknown: "));
  EXPECT_THAT(ending_of([&] { (void)guard.ask(written); }),
              testing::StartsWith("unknown: asking after accounts/42: "));
  EXPECT_EQ(write(), Verdict::duplicate);
}

TEST_F(Standby, CancelledWaitOfAnOptimisticUpdateIsUnknown) {
  const auto table = versioned();
  int token = 34;
  for (const auto* const level : {"notice", "error"}) {
    SCOPED_TRACE(level);
    pqxx::nontransaction{*connection_}.exec(fmt::format("SET client_min_messages = {}", level));
    const auto row = table.read(*connection_, {"42"});
    EXPECT_THAT(ending_of([&] {
                  (void)table.update(*connection_, claim(token), *row, {{"balance", std::to_string(token)}});
                }),
                testing::StartsWith("unknown: "));
    EXPECT_EQ(balance(), token);
    // Under the same token, and under the next one.
    for (const int next : {token, token + 1}) {
      EXPECT_THAT(ending_of([&] { (void)table.fenced_read(*connection_, claim(next), {"42"}); }),
                  testing::StartsWith("unknown: "));
    }
    token += 2;
    EXPECT_EQ(pqxx::nontransaction{*connection_}.exec("SHOW client_min_messages")[0][0].c_str(),
              std::string{level});
  }
}

// The standby is taken off the configuration as soon as the client hears of the cancelled wait.
TEST_F(Standby, AlsoWhereTheServerHasNoStandbyAnyMoreWhenItIsLookedAt) {
  const auto table = versioned();
  advance(34);
  const postgres::NoticeHandler handler{*connection_, [&](std::string_view) { await_standby("''"); }};
  EXPECT_THAT(ending_of([&] {
                (void)postgres::Guard{*connection_}.execute(claim(34), "UPDATE account SET balance = 9");
              }),
              testing::StartsWith("unknown: writing accounts/42: "));
  const auto row = table.read(*connection_, {"42"});
  EXPECT_THAT(ending_of([&] {
                (void)table.update(*connection_, claim(34), *row, {{"balance", "5"}});
              }),
              testing::StartsWith("unknown: "));
}

// The server gets its first standby while the statement waits for a row.
TEST_F(Standby, AlsoWhereTheServerHadNoStandbyWhenTheStatementBegan) {
  const auto table = versioned();
  advance(34);
  const auto row = table.read(*connection_, {"42"});
  const auto behind_a_lock = [&](const std::function<void()>& write) {
    await_standby("''");
    const auto other = database_.connect();
    pqxx::work locking{*other};
    locking.exec("SELECT FROM account FOR UPDATE");
    const auto changing = std::async(std::launch::async, [&] {
      EXPECT_TRUE(eventually([&] {
        return database_.ask(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                   "AND wait_event_type = 'Lock'") == "1";
      }));
      await_standby("'nobody'");
      locking.abort();
    });
    write();
  };
  EXPECT_THAT(ending_of([&] {
                behind_a_lock([&] { (void)table.update(*connection_, claim(34), *row, {{"balance", "5"}}); });
              }),
              testing::StartsWith("unknown: "));
  EXPECT_THAT(ending_of([&] {
                behind_a_lock([&] {
                  (void)postgres::Guard{*connection_}.execute(claim(34), "UPDATE account SET balance = 9");
                });
              }),
              testing::StartsWith("unknown: writing accounts/42: "));
}

// What it would say rests on the same wait.
TEST_F(Standby, AskingWhetherAWriteTookEffectLikewise) {
  const auto written = claim(34).with(Sequence{1});
  postgres::Guard guard{*connection_};
  EXPECT_EQ(guard.write(written, [](pqxx::work& tx) { set_balance(tx, 7); }).verdict, Verdict::admitted);
  EXPECT_THAT(ending_of([&] { (void)guard.ask(written); }),
              testing::StartsWith("unknown: asking after accounts/42: "));
  EXPECT_TRUE(guard.ask(written));
}

// That it took effect before is no more certain than the commit that it rests on.
TEST_F(Standby, ADuplicateLikewise) {
  const auto written = claim(34).with(Sequence{1});
  postgres::Guard guard{*connection_};
  const auto write = [&] { return guard.write(written, [](pqxx::work& tx) { set_balance(tx, 7); }).verdict; };
  const auto execute = [&] {
    return guard.execute(written, "UPDATE account SET balance = 9").ruling.verdict;
  };
  EXPECT_THAT(ending_of([&] { (void)write(); }), testing::StartsWith("unknown: writing accounts/42: "));
  EXPECT_THAT(ending_of([&] { (void)write(); }), testing::StartsWith("unknown: "));
  EXPECT_THAT(ending_of([&] { (void)execute(); }), testing::StartsWith("unknown: "));
  EXPECT_EQ(write(), Verdict::duplicate);
  EXPECT_EQ(execute(), Verdict::duplicate);
  EXPECT_EQ(balance(), 7);
}

TEST_F(Standby, AGrantLikewise) {
  const auto source = postgres::open_source(url());
  EXPECT_THAT(ending_of([&] {
                (void)source->try_acquire(Resource{"accounts/42"}, Holder{"h"}, std::chrono::minutes{1});
              }),
              testing::StartsWith("unknown: acquiring accounts/42: "));
}

TEST_F(Standby, AFenceThatASidecarAdvancesLikewise) {
  const auto storage = postgres::open_storage(url(), {});
  EXPECT_THAT(ending_of([&] {
                (void)wait_for<Ruling>(
                    [&](Done<Ruling> done) { storage->fences().advance(claim(35), std::move(done)); });
              }),
              testing::StartsWith("unknown: advancing 'accounts/42': "));
}

TEST_F(Standby, AStatementThatItselfWarnsIsDoneWithoutAStandbyToWaitFor) {
  database_.run(
      "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN RAISE WARNING 'low'; RETURN NULL; END $$;"
      "CREATE TRIGGER warn AFTER UPDATE ON account FOR EACH ROW EXECUTE FUNCTION warn();"
      "CREATE TRIGGER warn_first BEFORE UPDATE ON account FOR EACH STATEMENT EXECUTE FUNCTION warn()");
  postgres::Guard guard{*connection_};
  EXPECT_EQ(guard.execute(claim(34), "UPDATE account SET balance = 9").ruling.verdict, Verdict::admitted);
  EXPECT_EQ(guard.write(claim(34), [](pqxx::work& tx) { set_balance(tx, 8); }).verdict, Verdict::admitted);
  postgres::PipelinedGuard pipelined{database_.conninfo()};
  EXPECT_EQ(pipelined.execute(claim(34), "UPDATE account SET balance = 8").ruling.verdict, Verdict::admitted);
  EXPECT_EQ(balance(), 8);
  const auto table = versioned();
  const auto row = table.read(*connection_, {"42"});
  EXPECT_EQ(table.update(*connection_, claim(34), *row, {{"balance", "7"}}).verdict,
            postgres::RowVerdict::admitted);
}

}  // namespace
}  // namespace fenceguard::test
