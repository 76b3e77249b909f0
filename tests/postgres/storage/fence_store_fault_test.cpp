#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "tests/postgres/storage/database.hpp"
#include "tests/postgres/storage/proxy.hpp"

namespace fenceguard::postgres::test {
namespace {

using testing::HasSubstr;

// How an advance ended: its verdict, or the word for its fault.
std::string ending(Storage& storage, const Claim& claim) {
  try {
    return to_string(advance(storage, claim).verdict);
  } catch (const Error& error) {
    return to_string(error.kind());
  }
}

int server_port() {
  return std::stoi(server_setting("PORT"));
}

// Replaces the rule by one whose first so many calls fail with this SQLSTATE. Its calls are counted by a
// sequence, which no rollback sets back.
void fail_calls(const Database& database, int count, const std::string& state) {
  database.run(fmt::format(
      "CREATE SEQUENCE calls; ALTER FUNCTION fenceguard.rule RENAME TO rule_really; CREATE FUNCTION "
      "fenceguard.rule(resource text, token bigint, holder text, sequence bigint, drain interval, cut "
      "boolean, "
      "jump_max bigint, out verdict text, out highest bigint) LANGUAGE plpgsql AS $$ BEGIN IF "
      "nextval('public.calls') <= {} THEN RAISE EXCEPTION 'made to fail' USING errcode = '{}'; END IF; "
      "SELECT "
      "* INTO verdict, highest FROM fenceguard.rule_really(resource, token, holder, sequence, drain, cut, "
      "jump_max); END $$",
      count, state));
}

TEST(DatabaseFencesFault, AConnectionLostAtCommitIsUnknownCommittedOrNot) {
  // Shows that an end which was not seen is neither a yes nor a no; by a proxy that cuts the connection at
  // COMMIT, before and after the server has seen it.
  const Database database;
  Proxy proxy{server_port()};
  const auto storage = open_storage(database.url(proxy.port()), {});
  int token = 0;
  for (const auto cut : {Proxy::Cut::after_server_answered, Proxy::Cut::before_server_sees_it}) {
    std::string how = "admitted";
    // The store's own look at its state, once a second, commits too and may have met the cut.
    for (int attempt = 0; how == "admitted" && attempt < 20; ++attempt) {
      proxy.cut_at(std::string{"COMMIT\0", 7}, cut);  // and not COMMITTED
      how = ending(*storage, claim("a", ++token));
    }
    EXPECT_EQ(how, "unknown");
    wait_until([&] {
      return database.run(
                 "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid "
                 "FROM pg_database WHERE datname = current_database())") == "0";
    });
    EXPECT_EQ(database.run("SELECT token FROM fenceguard.fences"),
              std::to_string(cut == Proxy::Cut::after_server_answered ? token : token - 1));
  }
  EXPECT_EQ(ending(*storage, claim("a", token)), "admitted");
}

TEST(DatabaseFencesFault, AConnectionLostBeforeCommitIsUnavailableAndMovesNothing) {
  const Database database;
  Proxy proxy{server_port()};
  const auto storage = open_storage(database.url(proxy.port()), {});
  for (const auto cut : {Proxy::Cut::after_server_answered, Proxy::Cut::before_server_sees_it}) {
    proxy.cut_at("fenceguard.rule(", cut);
    EXPECT_EQ(ending(*storage, claim("a", 1)), "unavailable");
    EXPECT_FALSE(show(*storage, "a").record);
  }
  EXPECT_EQ(ending(*storage, claim("a", 1)), "admitted");
}

TEST(DatabaseFencesFault, AConnectionThatBrokeWhileItWasIdleIsOpenedAgain) {
  const Database database;
  const auto storage = database.open();
  for (int token = 1; token <= 20; ++token) {
    ASSERT_EQ(ending(*storage, claim("a", token)), "admitted");
    database.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND "
        "pid <> pg_backend_pid()");
  }
}

TEST(DatabaseFencesFault, AnAdvanceThatWasRolledBackByTheServerIsMadeAgain) {
  for (const auto* state : {"40001", "40P01"}) {
    const Database database;
    fail_calls(database, 3, state);
    const auto storage = database.open();
    EXPECT_EQ(ending(*storage, claim("a", 1)), "admitted") << state;
    EXPECT_EQ(database.run("SELECT last_value FROM calls"), "4");
  }
}

TEST(DatabaseFencesFault, ButNotForEver) {
  const Database database;
  fail_calls(database, 1000, "40001");
  const auto storage = database.open();
  EXPECT_EQ(ending(*storage, claim("a", 1)), "unavailable");
  EXPECT_EQ(database.run("SELECT last_value FROM calls"), "4");
}

TEST(DatabaseFencesFault, NoOtherFailureIsTriedAgain) {
  const std::pair<const char*, const char*> cases[] = {{"57P01", "unavailable"}, {"XX000", "unavailable"},
                                                       {"53100", "unavailable"}, {"55P03", "unavailable"},
                                                       {"42501", "unavailable"}, {"ZF004", "implausible"}};
  for (const auto& [state, word] : cases) {
    const Database database;
    fail_calls(database, 1, state);
    const auto storage = database.open();
    EXPECT_EQ(ending(*storage, claim("a", 1)), word) << state;
    EXPECT_EQ(database.run("SELECT last_value FROM calls"), "1") << state;
  }
}

TEST(DatabaseFencesFault, ItsEndAnswersWhatStillWaits) {
  // Shows that a store ends although an advance waits in the database for longer than anybody would.
  const Database database;
  database.set("fenceguard.drain", "10min");
  const auto writer = database.connect();
  pqxx::work open_write{*writer};
  open_write.exec("SELECT fenceguard.admit('a', 1, 'h')");
  auto storage = database.open();
  std::promise<Outcome<Ruling>> running;
  std::promise<Outcome<Ruling>> queued;
  storage->fences().advance(claim("a", 2), [&](Outcome<Ruling> outcome) { running.set_value(outcome); });
  database.wait_until_waiting();
  storage->fences().advance(claim("a", 3), [&](Outcome<Ruling> outcome) { queued.set_value(outcome); });
  const auto begun = std::chrono::steady_clock::now();
  storage.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, limit);
  for (auto* promise : {&running, &queued}) {
    const auto outcome = promise->get_future().get();
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.fault().kind, FaultKind::unavailable);
  }
  open_write.commit();
}

TEST(DatabaseFencesFault, AMessageIsOneLineAndNamesNoPassword) {
  const Database database;
  Url url = database.url();
  url.password = "tr0ub4dor";
  url.authority = "127.0.0.1:1,127.0.0.1:2";
  try {
    (void)open_storage(url, {});
    FAIL();
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot be reached"));
    EXPECT_EQ(std::string{error.what()}.find("tr0ub4dor"), std::string::npos);
    EXPECT_EQ(std::string{error.what()}.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace fenceguard::postgres::test
