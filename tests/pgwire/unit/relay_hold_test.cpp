// A session whose claims the sidecar holds, and what becomes of it when they are lost.

#include "tests/pgwire/unit/relay_case.hpp"

namespace fenceguard::pgwire::test {
namespace {

class HoldTest : public RelayTest {
 protected:
  void begin_held() {
    begin("", held);
    get_ready();
  }

  const std::vector<Claim> held{{Resource{"a"}, Token{7}, Holder{"h"}, {}}};
};

TEST_F(HoldTest, HeldClaimIsThatOfEachSession) {
  begin_held();
  client({query("insert into t values (1)")});
  EXPECT_EQ(
      sent(),
      Messages{query(fmt::format("SET TRANSACTION READ WRITE;{};insert into t values (1)", admission))});
}

TEST_F(HoldTest, ClientBringsNoClaimWhereTheyAreHeld) {
  begin(fenced, held);
  EXPECT_EQ(ended_with(), "22023");
  EXPECT_EQ(started, "");
  begin("-c fenceguard.session_claims=", held);
  EXPECT_FALSE(relay->is_over());
}

TEST_F(HoldTest, LossEndsAnIdleSessionAndAnOpenBlock) {
  begin_held();
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P01");
  begin_held();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({query("select pg_sleep(60)")});
  (void)told();
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P01");
}

TEST_F(HoldTest, LossBeforeTheSessionIsReadyHasItConnectAgain) {
  begin("", held);
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P03");
}

TEST_F(HoldTest, LossWaitsForACommitAndTakesNothingMore) {
  begin_held();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({query("commit"), query("insert into t values (1)")});
  (void)sent();
  (void)told();
  relay->lose_claims();
  EXPECT_FALSE(relay->is_over());
  client({query("insert into t values (2)")});
  server({done("COMMIT")});
  EXPECT_EQ(told(), Messages{done("COMMIT")});
  EXPECT_FALSE(relay->is_over());
  server({ready('I')});
  EXPECT_EQ(ended_with(), "57P01");
  EXPECT_EQ(sent(), Messages{});
}

TEST_F(HoldTest, LossWaitsForAStatementThatCommitsByItself) {
  begin_held();
  client({query("insert into t values (1)")});
  relay->lose_claims();
  EXPECT_FALSE(relay->is_over());
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), error("23505"), ready('I')});
  const auto messages = told();
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0], error("23505"));
  EXPECT_EQ(field_of(messages[2].body, 'C'), "57P01");
}

// No Sync came: nothing of it can have been committed.
TEST_F(HoldTest, LossEndsAPipelineWithoutItsSync) {
  begin_held();
  client({parse("", "insert into t values (1)"), bind("", ""), execute()});
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P01");
}

// But for a COMMIT in it, whose answer the server is made to send.
TEST_F(HoldTest, LossHasACommitInAPipelineAnswered) {
  begin_held();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({parse("", "commit"), bind("", ""), execute()});
  (void)sent();
  (void)told();
  relay->lose_claims();
  EXPECT_FALSE(relay->is_over());
  EXPECT_EQ(sent(), (Messages{{'H', ""}}));
  server({{'1', ""}, {'2', ""}, done("COMMIT")});
  const auto messages = told();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[2], done("COMMIT"));
  EXPECT_EQ(field_of(messages[3].body, 'C'), "57P01");
}

// The rest of a message would have to come first: the connection is lost, and nothing is said of the COMMIT.
TEST_F(HoldTest, LossInTheMiddleOfAMessageBehindACommitSaysNothing) {
  begin_held();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({parse("", "commit"), bind("", ""), execute()});
  std::string half = bytes_of({{'B', text({"", ""}) + std::string(100'000, 'x')}});
  relay->from_client(std::string_view{half}.substr(0, half.size() / 2));
  (void)told();
  relay->lose_claims();
  EXPECT_TRUE(relay->is_over());
  EXPECT_EQ(told(), Messages{});
}

TEST_F(HoldTest, LossEndsACopyThatTheClientHasNotEnded) {
  begin_held();
  client({query("copy t from stdin")});
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), {'G', std::string(3, '\0')}});
  client({{'d', "1\n"}});
  (void)told();
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P01");
}

// After it was put back, as from a backup: the token is ours as long as the lease is held.
TEST_F(HoldTest, FenceBelowTheHeldClaimIsAdvancedAgainBeforeTheClientIsReady) {
  const Messages advanced{done("BEGIN"), {'T', ""}, row({"admitted", "7"}), done("SELECT 1"), done("COMMIT")};
  begin_held();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({query("insert into t values (1)")});
  server({done("SET"), error("40001"), ready('E')});
  EXPECT_EQ(told().back(), ready('E'));
  (void)sent();
  client({query("rollback"), query("select 1")});
  server({done("ROLLBACK"), ready('I')});
  auto messages = sent();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_NE(messages[1].body.find("fenceguard.advance_relayed"), std::string::npos);
  EXPECT_EQ(told(), Messages{done("ROLLBACK")});
  EXPECT_TRUE(relay->is_ready());
  EXPECT_FALSE(relay->is_idle());
  server(joined(advanced, {{'A', "news"}, ready('I')}));
  EXPECT_EQ(told(), (Messages{{'A', "news"}, ready('I')}));
  EXPECT_EQ(sent().size(), 1u);
}

TEST_F(HoldTest, LossDuringTheSecondAdvanceEndsTheSession) {
  begin_held();
  client({query("select 1")});
  server({done("SET"), error("40001"), ready('I')});
  EXPECT_FALSE(sent().empty());
  (void)told();
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P01");
}

// Whether it is still the newest only its client knows.
TEST_F(HoldTest, ClaimOfTheClientIsNotAdvancedAgain) {
  begin_fenced();
  client({query("select 1")});
  (void)sent();
  server({done("SET"), error("40001"), ready('I')});
  EXPECT_EQ(told().back(), ready('I'));
  EXPECT_EQ(sent(), Messages{});
}

TEST_F(HoldTest, LossAmidAMessageOfTheServerSaysNothing) {
  begin_held();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({query("select 1")});
  const std::string row = bytes_of({{'D', std::string(1'000, 'x')}});
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), {'T', "x"}});
  (void)told();
  relay->from_server(std::string_view{row}.substr(0, 500));
  relay->to_client().clear();
  relay->lose_claims();
  EXPECT_TRUE(relay->is_over());
  EXPECT_EQ(relay->to_client(), "");
}

}  // namespace
}  // namespace fenceguard::pgwire::test
