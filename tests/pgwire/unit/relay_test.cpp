// How a session begins and ends, and what goes out for a query.

#include "tests/pgwire/unit/relay_case.hpp"

namespace fenceguard::pgwire::test {
namespace {

TEST_F(RelayTest, ClaimIsTakenOutOfTheStartupAndTheSessionIsReadOnly) {
  begin(fenced + " -c a=1");
  const auto startup = read_startup(started);
  EXPECT_EQ(*startup.find("options"), " -c a=1");
  EXPECT_EQ(*startup.find("fenceguard.relayed_claims"), handed);
  EXPECT_EQ(*startup.find("default_transaction_read_only"), "on");
  EXPECT_EQ(startup.parameters.back().first, "default_transaction_read_only");
}

TEST_F(RelayTest, NoStatementNamesAClaim) {
  begin(
      "-c "
      "fenceguard.session_claims=[{\"resource\":\"secret\\303\\266\",\"token\":\"7777\",\"holder\":\"mine\"},"
      "{\"resource\":\"other\",\"token\":\"8888\",\"holder\":\"mine\"}]");
  std::string all;
  greet();
  for (int claims = 0; claims < 2; ++claims) {
    all += bytes_of(sent());
    server(
        {done("BEGIN"), {'T', ""}, row({"admitted", "9999"}), done("SELECT 1"), done("COMMIT"), ready('I')});
  }
  client({query("select 1")});
  all += bytes_of(sent());
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), done("SELECT 1"), ready('I')});
  client({parse("", "select 1"), sync});
  all += bytes_of(sent());
  EXPECT_NE(all.find("advance_relayed"), std::string::npos);
  EXPECT_NE(all.find("confirm_relayed"), std::string::npos);
  for (const auto* part : {"secret", "7777", "8888", "mine", "other"})
    EXPECT_EQ(all.find(part), std::string::npos) << part;
}

TEST_F(RelayTest, ClaimsThatMakeTheStartupTooLongAreRefused) {
  std::vector<Claim> claims;
  for (int i = 0; i < 40; ++i)
    claims.push_back(
        {*Resource::parse(std::string(300, 'r') + std::to_string(i)), *Token::parse("7"), Holder{"h"}, {}});
  begin("", claims);
  EXPECT_EQ(ended_with(), "54000");
}

// One BEGIN in front and one COMMIT behind: what is ours goes where it would go in messages of their own.
TEST_F(RelayTest, WholeTransactionInOneMessageIsAdmittedBehindItsBegin) {
  const auto opening = fmt::format("SET TRANSACTION READ WRITE;{};", admission);
  const std::pair<std::string, std::string> cases[] = {
      {"begin;", "insert;commit"},
      {"/* ; */ begin isolation level serializable ;", " insert; select 1; end;"},
      {"begin;set local a = ';';set transaction isolation level serializable;",
       "insert;set local b = 1;rollback"},
      {"begin;", "insert"},
      {"", "insert;commit"}};
  for (const auto& [before, behind] : cases) {
    begin_fenced();
    client({query(before + behind)});
    EXPECT_EQ(sent(), Messages{query(before + opening + behind)});
  }
  for (const auto* text : {"begin;commit", "begin;set local a = 1;commit", "begin;set a = 1"}) {
    begin_fenced();
    client({query(text)});
    EXPECT_EQ(sent(), Messages{query(text)}) << text;
  }
  begin_fenced();
  client({query("begin;set transaction read only;select 1;commit")});
  EXPECT_EQ(sent(),
            Messages{query(fmt::format("begin;set transaction read only;{};select 1;commit", admission))});
  for (const auto* text :
       {"begin;insert;commit;select 1", "insert;begin", "begin;insert;begin;commit", "commit;commit"}) {
    begin_fenced();
    client({query(text)});
    EXPECT_EQ(sent()[0].type, 'P') << text;  // what raises an error
  }
}

TEST_F(RelayTest, OurAnswersAreTakenOutOfTheMiddleOfATransaction) {
  begin_fenced();
  client({query("begin;set local a = 1;insert;commit")});
  (void)sent();
  server({done("BEGIN"),
          done("SET"),
          done("SET"),
          {'T', "x"},
          {'D', "x"},
          done("SELECT 1"),
          done("INSERT 0 1"),
          done("COMMIT"),
          ready('I')});
  EXPECT_EQ(told(), (Messages{done("BEGIN"), done("SET"), done("INSERT 0 1"), done("COMMIT"), ready('I')}));
  EXPECT_TRUE(relay->is_idle());
  // It counts in characters; what is in front of ours keeps its place.
  const auto opening = fmt::format("SET TRANSACTION READ WRITE;{};", admission);
  for (const auto& [given, heard] :
       {std::pair{3, 3}, {12, 12}, {static_cast<int>(opening.size()) + 13, 13}}) {
    client({query("begin /*ö*/;insert;commit")});
    (void)sent();
    server({error("42601", std::to_string(given)), ready('I')});
    EXPECT_EQ(told(), (Messages{error("42601", std::to_string(heard)), ready('I')}));
  }
  // The block stays open, and is admitted again where it goes on.
  client({query("begin;insert;commit")});
  server({done("BEGIN"), done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), error("23505"), ready('E')});
  (void)sent();
  client({query("rollback")});
  EXPECT_EQ(sent(), Messages{query("rollback")});
  server({done("ROLLBACK"), ready('I')});
  client({query("insert")});
  EXPECT_EQ(sent(), Messages{query(opening + "insert")});
}

TEST_F(RelayTest, FunctionCallOpensItsBlock) {
  const Message call{'F', std::string(10, '\0')};
  begin_fenced();
  client({call, sync});
  EXPECT_EQ(sent()[0].type, 'P');  // what raises an error
  server({error("42601"), ready('I')});
  EXPECT_FALSE(relay->is_over());
  begin_fenced();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  (void)sent();
  (void)told();
  client({call});
  EXPECT_EQ(sent(), joined(opening(), {sync}));
  server(joined(opening_answers(), {ready('T')}));
  EXPECT_EQ(sent(), Messages{call});
  server({{'V', ""}, ready('T')});
  EXPECT_EQ(told(), (Messages{{'V', ""}, ready('T')}));
  client({call});
  EXPECT_EQ(sent(), Messages{call});
}

TEST_F(RelayTest, FunctionCallBehindARefusalIsAnsweredWithIt) {
  const Message call{'F', std::string(10, '\0')};
  begin_fenced();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  (void)sent();
  (void)told();
  client({call});
  (void)sent();
  server({{'1', ""}, {'2', ""}, done("SET"), {'3', ""}, {'1', ""}, {'2', ""}, error("ZF001"), ready('E')});
  EXPECT_EQ(told(), Messages{});
  EXPECT_EQ(sent().back(), call);
  server({{'3', ""}, {'3', ""}, error("25P02"), ready('E')});
  EXPECT_EQ(told(), (Messages{error("ZF001"), ready('E')}));
}

TEST_F(RelayTest, ClientHearsThatItIsReadyAfterTheAdvance) {
  begin(fenced);
  greet();
  auto messages = told();
  EXPECT_EQ(messages.back().type, 'S');
  messages = sent();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].body.find("fenceguard.advance_relayed('"), std::string::npos);
  client({query("select 1")});
  EXPECT_EQ(sent(), Messages{});
  server({done("BEGIN"), {'T', ""}, row({"admitted", "7"}), done("SELECT 1"), done("COMMIT"), ready('I')});
  EXPECT_EQ(told(), Messages{ready('I')});
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(observer.told, std::vector<std::string>{"advance admitted 7"});
}

TEST_F(RelayTest, StaleClaimEndsTheSessionBeforeItIsReady) {
  begin(fenced);
  greet();
  server({done("BEGIN"), {'T', ""}, row({"stale", "9"}), done("SELECT 1"), done("COMMIT"), ready('I')});
  EXPECT_EQ(ended_with(), "ZF001");
  EXPECT_EQ(observer.told, std::vector<std::string>{"advance stale 9"});
}

TEST_F(RelayTest, WarningAtTheAdvanceLeavesItInDoubt) {
  begin(fenced);
  greet();
  server({{'N', "V" + text({"WARNING"}) + "M" + text({"canceling wait"}) + std::string(1, '\0')}});
  EXPECT_EQ(ended_with(), "08007");
}

TEST_F(RelayTest, OlderSqlIsToldSo) {
  begin(fenced);
  greet();
  server({error("42883"), ready('I')});
  const auto messages = told();
  EXPECT_NE(field_of(messages.back().body, 'H').value_or("").find("sql postgres | psql"), std::string::npos);
}

TEST_F(RelayTest, SettingsThatCannotBeGuardedEndTheSession) {
  const std::pair<const char*, const char*> cases[] = {{"standard_conforming_strings", "off"},
                                                       {"client_encoding", "SJIS"},
                                                       {"default_transaction_read_only", "off"}};
  for (const auto& [name, value] : cases) {
    begin_fenced();
    server({parameter(name, value)});
    EXPECT_EQ(ended_with(), "0A000") << name;
  }
}

TEST_F(RelayTest, PoolerBetweenEndsTheSession) {
  begin(fenced);
  server({{'R', std::string(4, '\0')}, parameter("server_version", "15.4"), ready('I')});
  EXPECT_EQ(ended_with(), "0A000");
}

TEST_F(RelayTest, ChannelBindingIsNotOffered) {
  begin(fenced);
  std::string list{"\0\0\0\x0a", 4};
  server({{'R', list + text({"SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", ""})}});
  EXPECT_EQ(told(), (Messages{{'R', list + text({"SCRAM-SHA-256", ""})}}));
}

TEST_F(RelayTest, QueryIsAdmittedInOneMessageAndOurAnswersAreTakenOut) {
  begin_fenced();
  client({query("insert into t values (1)")});
  const auto prefix = fmt::format("SET TRANSACTION READ WRITE;{};", admission);
  EXPECT_EQ(sent(), Messages{query(prefix + "insert into t values (1)")});
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), done("INSERT 0 1"), ready('I')});
  EXPECT_EQ(told(), (Messages{done("INSERT 0 1"), ready('I')}));
  client({query("insert into t values (2)")});
  EXPECT_EQ(sent(), Messages{query(prefix + "insert into t values (2)")});
}

TEST_F(RelayTest, PositionIsCountedWithoutOurText) {
  begin_fenced();
  client({query("selec")});
  const auto prefix = fmt::format("SET TRANSACTION READ WRITE;{};", admission);
  server({error("42601", std::to_string(prefix.size() + 1)), ready('I')});
  EXPECT_EQ(told(), (Messages{error("42601", "1"), ready('I')}));
}

TEST_F(RelayTest, BlockIsAdmittedAtItsFirstStatement) {
  begin_fenced();
  client({query("begin isolation level serializable")});
  EXPECT_EQ(sent(), Messages{query("begin isolation level serializable")});
  server({done("BEGIN"), ready('T')});
  client({query("savepoint a")});
  EXPECT_EQ(sent(), Messages{query(fmt::format("SET TRANSACTION READ WRITE;{};savepoint a", admission))});
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), done("SAVEPOINT"), ready('T')});
  client({query("update t set a = 1")});
  EXPECT_EQ(sent(), Messages{query("update t set a = 1")});
}

TEST_F(RelayTest, BlockThatIsReadOnlyIsAFencedRead) {
  begin_fenced();
  client({query("begin read only")});
  server({done("BEGIN"), ready('T')});
  (void)sent();
  client({query("select 1")});
  EXPECT_EQ(sent(), Messages{query(fmt::format("{};select 1", admission))});
}

TEST_F(RelayTest, ChainedTransactionIsAdmittedAnewWhateverComes) {
  begin_fenced();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({query("select 1")});
  server({done("SET"),
          {'T', "x"},
          {'D', "x"},
          done("SELECT 1"),
          {'T', "x"},
          {'D', "x"},
          done("SELECT 1"),
          ready('T')});
  client({query("commit and chain")});
  server({done("COMMIT"), ready('T')});
  (void)sent();
  client({query("set transaction read write")});
  EXPECT_EQ(sent()[0].body.find("SET TRANSACTION READ WRITE;SELECT fenceguard.confirm"), 0u);
}

TEST_F(RelayTest, AbortedTransactionHandsOnOnlyTheModeThatItWasHanded) {
  for (const bool is_simple : {true, false}) {
    const auto chain = [&](std::string_view sql) {
      if (is_simple) {
        client({query(sql)});
        server({done("ROLLBACK"), ready('T')});
      } else {
        client({parse("", sql), bind("", ""), execute(), sync});
        server({{'1', ""}, {'2', ""}, done("ROLLBACK"), ready('T')});
      }
    };
    for (const bool is_handed : {false, true}) {
      begin_fenced();
      client({query("begin read only")});
      server({done("BEGIN"), ready('T')});
      if (is_handed) chain("commit and chain");
      client({query("x")});
      server({error("42601"), ready('E')});
      chain("rollback and chain");
      (void)sent();
      client({query("update t set a = 1")});
      EXPECT_EQ(sent()[0].body.starts_with("SET TRANSACTION READ WRITE;"), !is_handed);
    }
  }
}

TEST_F(RelayTest, ControlAmongSeveralStatementsAbortsTheBlock) {
  begin_fenced();
  client({query("insert into t values (1); commit; insert into t values (2)")});
  EXPECT_EQ(sent(), (Messages{parse("fenceguard admission", "refused"), sync}));
  server({error("42601"), ready('E')});
  const auto messages = told();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(field_of(messages[0].body, 'C'), "0A000");
  EXPECT_EQ(messages[1], ready('E'));
}

TEST_F(RelayTest, NothingIsTakenBeforeTheServerIsReady) {
  begin_fenced();
  client({query("select 1"), query("select 2")});
  EXPECT_EQ(sent().size(), 1u);
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), done("SELECT 1"), ready('I')});
  EXPECT_EQ(sent().size(), 1u);
}

TEST_F(RelayTest, ClaimThatIsKnownToBeStaleIsRefusedFromMemory) {
  begin_fenced();
  client({query("select 1")});
  server({done("SET"), error("ZF001"), ready('I')});
  EXPECT_EQ(told(), (Messages{error("ZF001"), ready('I')}));
  (void)sent();
  client({query("select 2")});
  EXPECT_EQ(sent(), (Messages{parse("fenceguard admission", "refused"), sync}));
  server({error("42601"), ready('I')});
  EXPECT_EQ(told(), (Messages{error("ZF001"), ready('I')}));
  EXPECT_EQ(observer.told, (std::vector<std::string>{"advance admitted 7", "write stale 0"}));
}

TEST_F(RelayTest, ErrorThatNothingWasAskedForEndsTheSession) {
  begin_fenced();
  server({error("XX000")});
  EXPECT_EQ(ended_with(), "08P01");
}

TEST_F(RelayTest, SessionWithoutAClaimIsMadeReadOnlyEachTime) {
  begin("");
  greet();
  (void)told();
  client({query("begin read write")});
  server({done("BEGIN"), ready('T')});
  (void)sent();
  client({query("insert into t values (1)")});
  EXPECT_EQ(sent(), Messages{query("SET TRANSACTION READ ONLY;SELECT 1;insert into t values (1)")});
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), error("25006"), ready('E')});
  const auto messages = told();
  EXPECT_NE(field_of(messages[2].body, 'H').value_or("").find("fenceguard.session_claims"),
            std::string::npos);
  EXPECT_EQ(observer.told, std::vector<std::string>{"missing"});
}

TEST_F(RelayTest, UnfencedAllowTouchesNothing) {
  options.unfenced = Unfenced::allow;
  begin("-c a=1");
  EXPECT_EQ(*read_startup(started).find("options"), "-c a=1");
  EXPECT_EQ(read_startup(started).find("default_transaction_read_only"), nullptr);
  greet();
  (void)told();
  client({query("a; commit; b"), {'F', "x"}});
  EXPECT_EQ(sent(), (Messages{query("a; commit; b"), {'F', "x"}}));
  EXPECT_FALSE(relay->is_idle());
  const Messages answers{done("a"), ready('T'), {'1', ""}, ready('I')};
  for (const char byte : bytes_of(answers)) {
    EXPECT_FALSE(relay->is_idle());
    relay->from_server({&byte, 1});
  }
  EXPECT_TRUE(relay->is_idle());
  EXPECT_EQ(told(), answers);
}

TEST_F(RelayTest, UnfencedRefuseEndsTheSession) {
  options.unfenced = Unfenced::refuse;
  begin("");
  EXPECT_EQ(ended_with(), "ZF003");
  EXPECT_EQ(started, "");
}

TEST_F(RelayTest, MessagesThatLieEndTheSession) {
  for (const std::string_view bytes :
       {std::string_view{"Q\0\0\0\3", 5}, std::string_view{"Q\xff\xff\xff\xff", 5},
        std::string_view{"Q\x7f\xff\xff\xff", 5}, std::string_view{"?\0\0\0\4", 5},
        std::string_view{"p\0\0\0\4", 5}, std::string_view{"Q\0\0\0\7abc", 8},
        std::string_view{"Q\0\0\0\x0a"
                         "a;\0b;\0",
                         11},
        std::string_view{"B\0\0\0\6ab", 7}}) {
    begin_fenced();
    relay->from_client(bytes);
    EXPECT_TRUE(relay->is_over()) << testing::PrintToString(std::string{bytes});
    EXPECT_EQ(sent(), Messages{});
  }
}

TEST_F(RelayTest, ServerThatIsReadyForNothingThatWasAskedEndsTheSession) {
  begin_fenced();
  server({ready('T')});
  EXPECT_EQ(ended_with(), "08P01");
  begin_fenced();
  client({parse("", "select 1")});
  server(joined(opening_answers(), {ready('I')}));
  EXPECT_EQ(ended_with(), "08P01");
}

TEST_F(RelayTest, EverySplitOfTheBytesGivesTheSame) {
  const auto flight = bytes_of({parse("", "insert into t values ($1)"), bind("", ""), execute(), sync});
  const auto answers =
      bytes_of(joined(opening_answers(), {{'1', ""}, {'2', ""}, done("INSERT 0 1"), ready('I')}));
  for (const std::size_t step : {1, 2, 3, 7, 64}) {
    begin_fenced();
    for (std::size_t at = 0; at < flight.size(); at += step) relay->from_client(flight.substr(at, step));
    EXPECT_EQ(sent().size(), opening().size() + 4) << step;
    for (std::size_t at = 0; at < answers.size(); at += step) relay->from_server(answers.substr(at, step));
    EXPECT_EQ(told(), (Messages{{'1', ""}, {'2', ""}, done("INSERT 0 1"), ready('I')})) << step;
  }
}

}  // namespace
}  // namespace fenceguard::pgwire::test
