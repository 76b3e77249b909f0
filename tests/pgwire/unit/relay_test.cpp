// What both sides send, and what goes out: no socket, no server. Each message is written here as its type and
// what matters of its body.

#include "server/postgres/relay/relay.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

struct Message {
  char type;
  std::string body;
  friend bool operator==(const Message&, const Message&) = default;
};
void PrintTo(const Message& message, std::ostream* out) {
  *out << message.type << '(' << testing::PrintToString(message.body) << ')';
}
using Messages = std::vector<Message>;

std::string bytes_of(const Messages& messages) {
  std::string out;
  for (const auto& message : messages) add_message(out, message.type, message.body);
  return out;
}

Messages messages_in(std::string& out) {
  Messages found;
  for (std::string_view rest = out; rest.size() >= header_bytes;) {
    const auto size = read_number(rest.substr(1)) + std::size_t{1};
    found.push_back({rest.front(), std::string{rest.substr(header_bytes, size - header_bytes)}});
    rest.remove_prefix(std::min(rest.size(), size));
  }
  out.clear();
  return found;
}

std::string text(std::initializer_list<std::string_view> parts) {
  std::string body;
  for (const auto part : parts) add_text(body, part);
  return body;
}

Message query(std::string_view sql) {
  return {'Q', text({sql})};
}
Message parse(std::string_view name, std::string_view sql) {
  return {'P', text({name, sql}) + std::string(2, '\0')};
}
Message bind(std::string_view portal, std::string_view name) {
  return {'B', text({portal, name}) + std::string(6, '\0')};
}
Message execute(std::string_view portal = "") {
  return {'E', text({portal}) + std::string(4, '\0')};
}
Message close(char what, std::string_view name) {
  return {'C', what + text({name})};
}
const Message sync{'S', ""};
constexpr std::string_view own_name = "fenceguard admission";
// A statement for transactions under a name of the client's, which never reaches the server under it.
Messages bind_of_special(std::string_view sql) {
  return {parse(own_name, sql), bind(std::string_view{}, own_name), close('S', own_name)};
}
const Messages special_parsed{{'1', ""}, {'3', ""}, {'1', ""}};
Message ready(char status) {
  return {'Z', std::string(1, status)};
}
Message done(std::string_view tag) {
  return {'C', text({tag})};
}
Message parameter(std::string_view name, std::string_view value) {
  return {'S', text({name, value})};
}
Message error(std::string_view state, std::string_view position = "", std::string_view severity = "ERROR") {
  std::string body = "V" + text({severity}) + "C" + text({state}) + "M" + text({"no"});
  if (!position.empty()) body += "P" + text({position});
  return {'E', body + std::string(1, '\0')};
}

struct Observer : RelayObserver {
  void ruled(const char* operation, const Claim& /*claim*/, Verdict verdict, std::int64_t highest) override {
    told.push_back(fmt::format("{} {} {}", operation, to_string(verdict), highest));
  }
  void failed(const char* operation, const Claim& /*claim*/, const Fault& fault) override {
    told.push_back(fmt::format("{} {}", operation, to_string(fault.kind)));
  }
  void missing() override { told.emplace_back("missing"); }
  void not_signed(const Claim& /*claim*/) override { told.emplace_back("not signed"); }
  void is_standby() override { told.emplace_back("standby"); }
  std::vector<std::string> told;
};

constexpr std::string_view admission =
    "SELECT fenceguard.confirm(E'a'::pg_catalog.text,7::pg_catalog.int8,E'h'::pg_catalog.text)";
const std::string fenced =
    "-c fenceguard.session_claims=[{\"resource\":\"a\",\"token\":\"7\",\"holder\":\"h\"}]";

class RelayTest : public testing::Test {
 protected:
  void begin(const std::string& options_of_client, const std::vector<Claim>& held = {}) {
    Startup startup{.kind = Startup::Kind::start, .version = 3 << 16};
    startup.parameters = {{"user", "u"}};
    if (!options_of_client.empty()) startup.parameters.emplace_back("options", options_of_client);
    relay = std::make_unique<Relay>(options, observer, std::move(startup), held);
    started = relay->to_server();
    relay->to_server().clear();
  }
  void greet() {
    server({{'R', std::string(4, '\0')},
            parameter("server_version", "15.4"),
            parameter("client_encoding", "UTF8"),
            parameter("standard_conforming_strings", "on"),
            parameter("default_transaction_read_only", "on"),
            ready('I')});
  }
  // A session with a claim that is ready.
  void begin_fenced() {
    begin(fenced);
    get_ready();
  }
  // One whose claim the sidecar holds.
  void begin_held() {
    begin("", held);
    get_ready();
  }
  void get_ready() {
    greet();
    (void)messages_in(relay->to_server());
    server({done("BEGIN"), {'T', ""}, row({"admitted", "7"}), done("SELECT 1"), done("COMMIT"), ready('I')});
    (void)messages_in(relay->to_client());
    ASSERT_TRUE(relay->is_ready());
  }
  static Message row(std::initializer_list<std::string_view> values) {
    std::string body(2, '\0');
    for (const auto value : values) {
      add_number(body, static_cast<std::uint32_t>(value.size()));
      body += value;
    }
    return {'D', body};
  }
  void client(const Messages& messages) { relay->from_client(bytes_of(messages)); }
  void server(const Messages& messages) { relay->from_server(bytes_of(messages)); }
  Messages sent() { return messages_in(relay->to_server()); }
  Messages told() { return messages_in(relay->to_client()); }
  // What the server gets ahead of the first message of a transaction, in the extended protocol.
  static Messages opening() {
    Messages all;
    for (const auto sql : {std::string_view{"SET TRANSACTION READ WRITE"}, admission}) {
      for (auto& message : own(sql)) all.push_back(std::move(message));
    }
    all.push_back(close('P', ""));
    return all;
  }
  static Messages own(std::string_view sql) {
    return {parse("fenceguard admission", sql), bind("", "fenceguard admission"), execute(),
            close('S', "fenceguard admission")};
  }
  static Messages own_answers(std::string_view tag) { return {{'1', ""}, {'2', ""}, done(tag), {'3', ""}}; }
  static Messages opening_answers() {
    Messages all = own_answers("SET");
    all.insert(all.begin() + 2,
               {'N', "V" + text({"WARNING"}) + "C" + text({"25P01"}) + std::string(1, '\0')});
    const Messages rest{{'1', ""}, {'2', ""}, {'D', "x"}, done("SELECT 1"), {'3', ""}, {'3', ""}};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  static Messages joined(Messages first, const Messages& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  // Of the block around a CALL that failed.
  static Messages own_rollback() {
    return joined({close('S', own_name), close('P', "")}, joined(own("ROLLBACK"), {sync}));
  }
  static Messages own_rollback_answers() {
    return joined({{'3', ""}, {'3', ""}}, joined(own_answers("ROLLBACK"), {ready('I')}));
  }
  std::string ended_with() {
    const auto messages = told();
    if (messages.empty() || messages.back().type != 'E' || !relay->is_over()) return "";
    return std::string{field_of(messages.back().body, 'C').value_or("")};
  }

  const std::vector<Claim> held{{Resource{"a"}, Token{7}, Holder{"h"}, {}}};
  RelayOptions options;
  Observer observer;
  std::unique_ptr<Relay> relay;
  std::string started;
};

TEST_F(RelayTest, ClaimIsTakenOutOfTheStartupAndTheSessionIsReadOnly) {
  begin(fenced + " -c a=1");
  const auto startup = read_startup(started);
  EXPECT_EQ(*startup.find("options"), " -c a=1");
  EXPECT_EQ(*startup.find("default_transaction_read_only"), "on");
  EXPECT_EQ(startup.parameters.back().first, "default_transaction_read_only");
}

TEST_F(RelayTest, ClientHearsThatItIsReadyAfterTheAdvance) {
  begin(fenced);
  greet();
  auto messages = told();
  EXPECT_EQ(messages.back().type, 'S');
  messages = sent();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].body.find("fenceguard.try_advance(E'a'"), std::string::npos);
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

TEST_F(RelayTest, HeldClaimIsThatOfEachSession) {
  begin_held();
  client({query("insert into t values (1)")});
  EXPECT_EQ(
      sent(),
      Messages{query(fmt::format("SET TRANSACTION READ WRITE;{};insert into t values (1)", admission))});
}

TEST_F(RelayTest, ClientBringsNoClaimWhereTheyAreHeld) {
  begin(fenced, held);
  EXPECT_EQ(ended_with(), "22023");
  EXPECT_EQ(started, "");
  begin("-c fenceguard.session_claims=", held);
  EXPECT_FALSE(relay->is_over());
}

TEST_F(RelayTest, LossEndsAnIdleSessionAndAnOpenBlock) {
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

TEST_F(RelayTest, LossBeforeTheSessionIsReadyHasItConnectAgain) {
  begin("", held);
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P03");
}

TEST_F(RelayTest, LossWaitsForACommitAndTakesNothingMore) {
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

TEST_F(RelayTest, LossWaitsForAStatementThatCommitsByItself) {
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
TEST_F(RelayTest, LossEndsAPipelineWithoutItsSync) {
  begin_held();
  client({parse("", "insert into t values (1)"), bind("", ""), execute()});
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P01");
}

// But for a COMMIT in it, whose answer the server is made to send.
TEST_F(RelayTest, LossHasACommitInAPipelineAnswered) {
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
TEST_F(RelayTest, LossInTheMiddleOfAMessageBehindACommitSaysNothing) {
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

TEST_F(RelayTest, LossEndsACopyThatTheClientHasNotEnded) {
  begin_held();
  client({query("copy t from stdin")});
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), {'G', std::string(3, '\0')}});
  client({{'d', "1\n"}});
  (void)told();
  relay->lose_claims();
  EXPECT_EQ(ended_with(), "57P01");
}

TEST_F(RelayTest, ExtendedProtocolIsAdmittedAheadOfTheFirstParse) {
  begin_fenced();
  const Messages flight{parse("", "insert into t values ($1)"), bind("", ""), execute(), sync};
  client(flight);
  EXPECT_EQ(sent(), joined(opening(), flight));
  server(joined(opening_answers(), {{'1', ""}, {'2', ""}, done("INSERT 0 1"), ready('I')}));
  EXPECT_EQ(told(), (Messages{{'1', ""}, {'2', ""}, done("INSERT 0 1"), ready('I')}));
}

TEST_F(RelayTest, TransactionAfterACommitInOneFlightIsAdmittedAnew) {
  begin_fenced();
  client({parse("c", "commit"), sync});
  server(joined(special_parsed, {ready('I')}));
  (void)sent();
  client({parse("", "insert into t values (1)"), bind("", ""), execute(), bind("", "c"), execute(),
          bind("", "c")});
  const Messages insert{parse("", "insert into t values (1)"), bind("", ""), execute()};
  const auto first = joined(joined(opening(), insert), joined(bind_of_special("commit"), {execute()}));
  EXPECT_EQ(sent(), joined(first, joined(opening(), bind_of_special("commit"))));
}

TEST_F(RelayTest, NameKeepsItsMeaningWhereAParseFails) {
  begin_fenced();
  client({parse("c", "commit"), sync});
  server(joined(special_parsed, {ready('I')}));
  (void)sent();
  // It exists already, so this one fails, and 'c' is still a COMMIT.
  client({parse("c", "select 1"), sync});
  server(joined(opening_answers(), {error("42P05"), ready('I')}));
  (void)sent();
  client({bind("", "c"), execute(), parse("", "insert into t values (1)")});
  EXPECT_EQ(sent(), joined(joined({close('S', own_name), close('P', "")},
                                  joined(bind_of_special("commit"), {execute()})),
                           joined(opening(), {parse("", "insert into t values (1)")})));
}

TEST_F(RelayTest, NameThatIsClosedAndGivenAnewHasItsNewMeaning) {
  begin_fenced();
  client({parse("c", "commit"), close('S', "c"), parse("c", "begin"), close('S', "c"), parse("c", "commit"),
          sync});
  const auto closed = joined(special_parsed, {{'3', ""}});
  server(joined(joined(closed, closed), joined(special_parsed, {ready('I')})));
  (void)sent();
  client({bind("", "c"), execute(), parse("", "select 1")});
  EXPECT_EQ(sent(), joined(joined(bind_of_special("commit"), {execute()}),
                           joined(opening(), {parse("", "select 1")})));
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

TEST_F(RelayTest, TransactionThatEndsByExecuteOfAStatementIsSeenByItsTag) {
  begin_fenced();
  client({parse("c", "commit and chain"), sync});
  server(joined(special_parsed, {ready('I')}));
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({query("execute c")});
  server({done("SET"), {'T', "x"}, {'D', "x"}, done("SELECT 1"), done("COMMIT"), ready('T')});
  (void)sent();
  client({query("insert into t values (1)")});
  EXPECT_EQ(sent()[0].body.find("SET TRANSACTION READ WRITE;SELECT fenceguard.confirm"), 0u);
}

// A block that was admitted, with a savepoint behind the admission.
class SavepointTest : public RelayTest {
 protected:
  void begin_with_savepoint() {
    begin_fenced();
    client({query("begin read only")});
    server({done("BEGIN"), ready('T')});
    client({query("savepoint a")});
    server({{'T', "x"}, {'D', "x"}, done("SELECT 1"), done("SAVEPOINT"), ready('T')});
    (void)sent();
  }
  // Whether the next statement is admitted once more.
  bool is_admitted_anew() {
    client({query("select 2")});
    const auto messages = sent();
    EXPECT_EQ(messages.size(), 1u);
    return messages.back() != query("select 2");
  }
};

TEST_F(SavepointTest, RollbackToItKeepsTheAdmissionThatCameBeforeIt) {
  begin_with_savepoint();
  client({query("rollback /* ; */ to a")});
  server({done("ROLLBACK"), ready('T')});
  EXPECT_EQ(sent(), Messages{query("rollback /* ; */ to a")});
  EXPECT_FALSE(is_admitted_anew());

  begin_with_savepoint();
  client({query("select x")});
  server({error("42703"), ready('E')});
  client({parse("", "rollback to a"), bind("", ""), execute(), sync});
  server({{'1', ""}, {'2', ""}, done("ROLLBACK"), ready('T')});
  (void)sent();
  EXPECT_FALSE(is_admitted_anew());

  begin_with_savepoint();
  client({query("rollback to a; savepoint b; rollback to b")});
  server({done("ROLLBACK"), done("SAVEPOINT"), done("ROLLBACK"), ready('T')});
  (void)sent();
  EXPECT_FALSE(is_admitted_anew());
}

TEST_F(SavepointTest, PreparedRollbackToItIsItsOwnWhateverItsNameStandsForLater) {
  begin_with_savepoint();
  client({parse("s", "rollback to a"), bind("", "s"), execute(), sync});
  EXPECT_EQ(sent(), (Messages{parse("s", "rollback to a"), bind("", "s"), execute(), sync}));
  server({{'1', ""}, {'2', ""}, done("ROLLBACK"), ready('T')});
  client({close('S', "s"), parse("s", "rollback"), bind("", "s"), execute(), sync});
  server({{'3', ""},
          {'1', ""},
          {'3', ""},
          {'1', ""},
          {'1', ""},
          {'2', ""},
          {'3', ""},
          done("ROLLBACK"),
          ready('I')});
  (void)sent();
  EXPECT_TRUE(is_admitted_anew());
}

TEST_F(SavepointTest, RollbackThatIsNoneToItIsAdmittedAnew) {
  // One that was not seen, as of a statement that SQL executes by its name, and more of them than the text
  // has.
  for (const auto* sql : {"execute s", "rollback to a; execute s"}) {
    begin_with_savepoint();
    client({query(sql)});
    server({done("ROLLBACK"), done("ROLLBACK"), ready('T')});
    (void)sent();
    EXPECT_TRUE(is_admitted_anew()) << sql;
  }
  // No tag but that of a ROLLBACK.
  begin_with_savepoint();
  client({query("rollback to a")});
  server({done("COMMIT"), ready('T')});
  (void)sent();
  EXPECT_TRUE(is_admitted_anew());
  // In a portal with a name.
  begin_with_savepoint();
  client({parse("", "rollback to a"), bind("p", ""), execute("p"), sync});
  server({{'1', ""}, {'2', ""}, done("ROLLBACK"), ready('T')});
  (void)sent();
  EXPECT_TRUE(is_admitted_anew());
}

TEST_F(SavepointTest, RollbackBehindOneToItInTheSameFlightIsAdmittedAnew) {
  for (const auto* sql : {"rollback", "rollback and chain", "commit"}) {
    begin_with_savepoint();
    client({parse("", "rollback to a"), bind("", ""), execute(), parse("", sql), bind("", ""), execute()});
    (void)sent();
    client({parse("", "select 2"), sync});
    EXPECT_GT(sent().size(), 2u) << sql;
  }
  // The text of the statement without a name is another by then; the portal that was bound is not.
  begin_with_savepoint();
  client({parse("", "rollback to a"), parse("", "rollback"), bind("", ""), parse("", "rollback to a"),
          execute()});
  (void)sent();
  client({parse("", "select 2"), sync});
  EXPECT_GT(sent().size(), 2u);
}

// None of them came about: what is answered next is not taken for one of them.
TEST_F(SavepointTest, RollbackToItThatAnErrorSkipsStandsForNoOther) {
  begin_with_savepoint();
  client({parse("", "select x"), parse("", "rollback to a"), bind("", ""), execute(), sync});
  server({error("42703"), ready('E')});
  client({execute(), sync});
  // Ahead of it, the portals that are not known any more are closed.
  server({{'3', ""}, {'3', ""}, done("ROLLBACK"), ready('T')});
  (void)sent();
  EXPECT_TRUE(is_admitted_anew());
}

TEST_F(RelayTest, QueryInTheMiddleOfAFlightEndsTheSession) {
  begin_fenced();
  client({parse("", "select 1"), {'H', ""}});
  server(joined(opening_answers(), {{'1', ""}}));
  (void)sent();
  client({query("call p()")});
  EXPECT_EQ(ended_with(), "0A000");
  EXPECT_EQ(sent(), Messages{});
}

TEST_F(RelayTest, LongFlightIsFlushedBeforeItIsHeld) {
  begin_fenced();
  Messages flight{parse("", "select 1")};
  for (int i = 0; i < 5'000; ++i) flight.push_back(bind("", ""));
  client(flight);
  auto messages = sent();
  EXPECT_EQ(messages.back(), (Message{'H', ""}));
  server(joined(opening_answers(), {{'1', ""}}));
  for (std::size_t i = 0; i < 5'000; ++i) server({{'2', ""}});
  (void)told();
  EXPECT_EQ(messages.size() + sent().size(), opening().size() + flight.size() + 1);
}

TEST_F(RelayTest, ErrorThatNothingWasAskedForEndsTheSession) {
  begin_fenced();
  server({error("XX000")});
  EXPECT_EQ(ended_with(), "08P01");
}

TEST_F(RelayTest, CallIsWrappedSoThatItCannotCommit) {
  begin_fenced();
  client({parse("", "call p()"), bind("", ""), execute(), sync});
  auto expected = joined(own("BEGIN"), opening());
  expected = joined(expected, {parse("", "call p()"), bind("", ""), execute()});
  expected = joined(expected, joined(own("COMMIT"), {close('P', ""), sync}));
  EXPECT_EQ(sent(), expected);
  auto answers = joined(own_answers("BEGIN"), opening_answers());
  answers = joined(answers, {{'1', ""}, {'2', ""}, done("CALL")});
  server(joined(answers, joined(own_answers("COMMIT"), {{'3', ""}, ready('I')})));
  EXPECT_EQ(told(), (Messages{{'1', ""}, {'2', ""}, done("CALL"), ready('I')}));
}

// The server may read it otherwise than the scanner, and does nothing of it before that is known.
TEST_F(RelayTest, NothingFollowsATextThatIsNotReadBeforeItsAnswer) {
  const Messages behind{bind("", ""), execute(), sync};
  const auto odd = parse("", "call writes('\\'; select ''x')");
  begin_fenced();
  client(joined({odd}, behind));
  EXPECT_EQ(sent(), joined(opening(), {odd, {'H', ""}}));
  server(joined(opening_answers(), {error("42601")}));
  EXPECT_EQ(sent(), behind);
  server({ready('I')});
  client(joined({odd}, behind));
  (void)sent();
  server(joined({{'3', ""}, {'3', ""}}, joined(opening_answers(), {{'1', ""}})));
  EXPECT_TRUE(relay->is_over());
  EXPECT_EQ(sent(), Messages{});
}

// Which one is there, a Bind that was skipped or an earlier one, is not known.
TEST_F(RelayTest, PortalWithoutANameIsClosedAfterAnError) {
  begin_fenced();
  client({parse("", "x"), sync});
  server(joined(opening_answers(), {error("42601"), ready('I')}));
  (void)sent();
  client({parse("", "y")});
  const auto flight = sent();
  EXPECT_EQ(flight[0], close('S', own_name));
  EXPECT_EQ(flight[1], close('P', ""));
}

// It outlives ROLLBACK TO a savepoint behind it.
TEST_F(RelayTest, PortalWithoutANameKeepsItsMeaningInAnAbortedBlock) {
  begin_fenced();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({parse("", "commit"), bind("", ""), sync});
  server({{'1', ""}, {'2', ""}, ready('T')});
  client({query("select x")});
  server({error("42601"), ready('E')});
  (void)sent();
  client({execute(), parse("", "set transaction read write")});
  EXPECT_EQ(sent(), joined({execute()}, joined(opening(), {parse("", "set transaction read write")})));
}

TEST_F(RelayTest, LossAmidAMessageOfTheServerSaysNothing) {
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

TEST_F(RelayTest, CallThatFailsIsRolledBackBeforeTheClientHearsThatItIsReady) {
  begin_fenced();
  client({parse("", "call p()"), bind("", ""), execute(), sync});
  (void)sent();
  server(joined(joined(own_answers("BEGIN"), opening_answers()),
                {{'1', ""}, {'2', ""}, error("2D000"), ready('E')}));
  EXPECT_EQ(told(), (Messages{{'1', ""}, {'2', ""}, error("2D000")}));
  EXPECT_EQ(sent(), own_rollback());
  server(own_rollback_answers());
  EXPECT_EQ(told(), Messages{ready('I')});
}

TEST_F(RelayTest, CommitThatAnErrorSkipsEndsNoBlockAroundACall) {
  const Messages commit{parse("", "commit"), bind("", ""), execute(), sync};
  begin_fenced();
  client(joined({parse("", "call p()"), bind("", ""), execute()}, commit));
  (void)sent();
  server(joined(joined(own_answers("BEGIN"), opening_answers()),
                {{'1', ""}, {'2', ""}, error("22012"), ready('E')}));
  EXPECT_EQ(sent(), own_rollback());
  server(own_rollback_answers());
  EXPECT_EQ(told().back(), ready('I'));
}

TEST_F(RelayTest, BlockThatAClientBeginsBehindACallIsItsOwn) {
  begin_fenced();
  client({parse("", "call p()"), bind("", ""), execute(), parse("", "begin"), bind("", ""), execute(), sync});
  const auto flight = sent();
  EXPECT_EQ(flight[flight.size() - 2], execute());
  EXPECT_EQ(flight.back(), sync);
}

TEST_F(RelayTest, TransactionBehindOneThatWasReadOnlyIsNot) {
  begin_fenced();
  client(
      {parse("", "begin read only"), bind("", ""), execute(), parse("", "commit"), bind("", ""), execute()});
  (void)sent();
  client({parse("", "insert into t values (1)")});
  EXPECT_EQ(sent(), joined(opening(), {parse("", "insert into t values (1)")}));
}

TEST_F(RelayTest, CallThatAnErrorSkipsRollsNoBlockOfTheClientBack) {
  begin_fenced();
  client({query("begin")});
  server({done("BEGIN"), ready('T')});
  client({parse("", "x"), bind("", ""), execute(), parse("", "commit"), bind("", ""), execute(),
          parse("", "call p()"), bind("", ""), execute(), sync});
  (void)sent();
  server(joined(opening_answers(), {error("42601"), ready('E')}));
  EXPECT_EQ(told().back(), ready('E'));
  EXPECT_EQ(sent(), Messages{});
}

TEST_F(RelayTest, CopyGoesOnAfterASyncThatTheServerSwallows) {
  begin_fenced();
  client({parse("", "copy t from stdin"), bind("", ""), execute(), sync});
  (void)sent();
  server(joined(opening_answers(), {{'1', ""}, {'2', ""}, {'G', std::string(3, '\0')}}));
  const Messages data{{'d', "1\n"}, {'c', ""}, sync};
  client(data);
  EXPECT_EQ(sent(), data);
  server({done("COPY 1"), ready('I')});
  EXPECT_EQ(told().back(), ready('I'));
  EXPECT_TRUE(relay->is_idle());
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

TEST_F(RelayTest, SyncBehindWhatMakesACopyFailIsNotSwallowed) {
  begin_fenced();
  client({parse("", "copy t from stdin"), bind("", ""), execute(), parse("", "select 1"), bind("", ""),
          execute(), sync});
  server(joined(opening_answers(),
                {{'1', ""}, {'2', ""}, {'G', std::string(3, '\0')}, error("08P01"), ready('I')}));
  EXPECT_EQ(told().back(), ready('I'));
  EXPECT_TRUE(relay->is_idle());
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
}  // namespace fenceguard::pgwire
