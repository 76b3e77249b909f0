// Who may use the source, and what it says where it cannot be used.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/postgres/token_source.hpp"
#include "guard/error.hpp"
#include "tests/postgres/source/server.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::milliseconds ttl{60'000};

template <class Fault>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "nothing was thrown";
}

std::string unavailable(const Url& url) {
  return message_of<Unavailable>([&] { (void)postgres::open_source(url); });
}
std::string invalid(const Url& url) {
  return message_of<InvalidInput>([&] { (void)postgres::open_source(url); });
}

TEST(PostgresSourceAccess, ADatabaseWithoutFencesNamesTheCommandThatMakesThem) {
  const Database database{Database::Fences::missing};
  for (const auto* parameters : {"", "?lock=row", "?lock=advisory"}) {
    EXPECT_THAT(unavailable(database.url(parameters)), HasSubstr("fenceguard sql postgres | psql"));
  }
}

TEST(PostgresSourceAccess, FencesThatAreDroppedLaterAreMissedInTheSameWords) {
  const Database database;
  const auto source = postgres::open_source(database.url());
  database.run("SELECT fenceguard.uninstall()");
  EXPECT_THAT(message_of<Unavailable>([&] { (void)source->try_acquire(Resource{"r"}, Holder{"a"}, ttl); }),
              HasSubstr("fenceguard sql postgres | psql"));
}

TEST(PostgresSourceAccess, AServerThatIsNotThereIsUnavailableAndThePasswordStaysHidden) {
  const auto said = unavailable(Url::parse("postgres://me:s3cret@127.0.0.1:1/db"));
  EXPECT_THAT(said, HasSubstr("cannot be reached"));
  EXPECT_THAT(said, Not(HasSubstr("s3cret")));
}

TEST(PostgresSourceAccess, OnlyThreeKindsOfLockAreKnown) {
  EXPECT_THAT(invalid(Url::parse("postgres://h/d?lock=table")), HasSubstr("ttl, row or advisory"));
  EXPECT_THAT(invalid(Url::parse("postgres://h/d?locks=row")), HasSubstr("lock"));
  const Database database;
  EXPECT_FALSE(postgres::open_source(database.url("?lock=ttl"))->lives_by_connection());
  EXPECT_TRUE(postgres::open_source(database.url("?lock=row"))->lives_by_connection());
}

// A role of its own, without a right on any table.
class Application : public testing::TestWithParam<const char*> {
 protected:
  Application() {
    database_.run("DO $$ BEGIN CREATE ROLE application LOGIN; EXCEPTION WHEN duplicate_object THEN END $$");
    source_ = postgres::open_source(database_.url(GetParam(), "application"));
  }
  const Resource r_{"accounts/42"};
  const Database database_;
  std::unique_ptr<TokenSource> source_;
};

TEST_P(Application, ARoleWithoutRightsOnTablesTakesRenewsAndReleases) {
  const auto answer = source_->try_acquire(r_, Holder{"a"}, ttl);
  ASSERT_TRUE(std::holds_alternative<Grant>(answer));
  const auto claim = std::get<Grant>(answer).claim;
  EXPECT_EQ(source_->renew(claim, ttl), Renewal::renewed);
  const auto other = postgres::open_source(database_.url(GetParam(), "application"));
  EXPECT_TRUE(std::holds_alternative<LockBusy>(other->try_acquire(r_, Holder{"b"}, ttl)));
  EXPECT_EQ(source_->release(claim), Release::released);
  const auto waited = other->wait_acquire(r_, Holder{"b"}, {.ttl = ttl, .wait = ttl});
  ASSERT_TRUE(waited);
  EXPECT_GT(waited->claim.token, claim.token);
  EXPECT_EQ(other->release(waited->claim), Release::released);
}

TEST_P(Application, WhatIsForAdministratorsIsRefusedToOthersAndSaysSo) {
  for (const auto& action : std::vector<std::function<void()>>{
           [&] { source_->raise(r_, Token{100}); }, [&] { (void)source_->draw(); },
           [&] { (void)source_->end(r_); }, [&] { (void)source_->show(r_); },
           [&] { (void)source_->lowest_live(); }}) {
    EXPECT_THAT(message_of<Unavailable>(action), HasSubstr("permission denied"));
  }
}

// The session's defaults are not the source's.
TEST_P(Application, ARolesDefaultsDoNotChangeWhatHappens) {
  database_.run(
      fmt::format("ALTER ROLE application IN DATABASE {0} SET default_transaction_isolation = "
                  "'serializable'; ALTER ROLE application IN DATABASE {0} SET "
                  "default_transaction_read_only = on; ALTER ROLE application IN DATABASE {0} "
                  "SET idle_in_transaction_session_timeout = '4s'; ALTER ROLE application IN "
                  "DATABASE {0} SET idle_session_timeout = '4s'; ALTER ROLE application IN "
                  "DATABASE {0} SET synchronous_commit = off; ALTER ROLE application IN "
                  "DATABASE {0} SET statement_timeout = '4s'",
                  database_.name()));
  const auto source = postgres::open_source(database_.url(GetParam(), "application"));
  const auto other = postgres::open_source(database_.url(GetParam(), "application"));
  const auto grant = source->wait_acquire(r_, Holder{"a"}, {.ttl = ttl});
  ASSERT_TRUE(grant);
  // Longer than all of these timeouts; the waiter's session is under them as well.
  EXPECT_FALSE(other->wait_acquire(r_, Holder{"b"}, {.ttl = ttl, .wait = std::chrono::milliseconds{5'000}}));
  EXPECT_EQ(source->renew(grant->claim, ttl), Renewal::renewed);
  EXPECT_EQ(source->release(grant->claim), Release::released);
}

INSTANTIATE_TEST_SUITE_P(Postgres, Application, testing::Values("", "?lock=row", "?lock=advisory"));

}  // namespace
}  // namespace fenceguard::test
