// The extended protocol: what goes out for a flight of messages, what becomes of names and portals, of CALL
// and of savepoints.

#include "tests/pgwire/unit/relay_case.hpp"

namespace fenceguard::pgwire::test {
namespace {

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

// What is skipped behind an error says nothing of the transaction, nor of the one that it is chained to.
TEST_F(RelayTest, ModeThatAnErrorSkipsIsHandedToNoTransaction) {
  const Messages chained{parse("", "commit and chain"), bind("", ""), execute()};
  const Messages set{parse("", "set transaction read only"), bind("p", ""), execute("p")};
  for (const auto& skipped : {chained, set, joined(set, chained)}) {
    const bool begins_read_only = skipped == chained;
    begin_fenced();
    client({query(begins_read_only ? "begin read only" : "begin")});
    server({done("BEGIN"), ready('T')});
    client(joined(joined({parse("", "x")}, skipped), {sync}));
    server({error("42601"), ready('E')});
    client({query("rollback and chain")});
    server({{'3', ""}, {'3', ""}, done("ROLLBACK"), ready('T')});
    (void)sent();
    client({query("update t set a = 1")});
    EXPECT_TRUE(sent()[0].body.starts_with("SET TRANSACTION READ WRITE;"));
  }
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

TEST_F(RelayTest, ModeOfABeginThatIsBoundAndNotExecutedIsNone) {
  begin_fenced();
  client({parse("", "begin read only"), bind("", "")});
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

TEST_F(RelayTest, CopyDataOfNoCopyAsksForTheAnswersThatItWaitsFor) {
  for (const Message& stray : {Message{'d', "1\n"}, Message{'c', ""}, Message{'f', text({"no"})}}) {
    begin_fenced();
    client({parse("", "INSERT"), bind("", ""), execute()});
    (void)sent();
    client({stray});
    EXPECT_EQ(sent(), (Messages{{'H', ""}}));
    server(joined(opening_answers(), {{'1', ""}, {'2', ""}, done("INSERT 0 1")}));
    EXPECT_EQ(sent(), Messages{stray});
    EXPECT_TRUE(relay->has_relayed_all());
  }
}

// The COPY fails at what was sent behind it: its data stays kept back, and nothing is asked for twice.
TEST_F(RelayTest, CopyDataBehindWhatMakesTheCopyFailStaysKeptBack) {
  begin_fenced();
  client({parse("", "copy t from stdin"), bind("", ""), execute(), bind("", ""), execute(), {'d', "1\n"}});
  EXPECT_EQ(sent().back(), (Message{'H', ""}));
  server(joined(opening_answers(), {{'1', ""}, {'2', ""}, {'G', std::string(3, '\0')}}));
  EXPECT_EQ(sent(), Messages{});
  EXPECT_FALSE(relay->has_relayed_all());
  server({error("08P01")});
  EXPECT_EQ(sent(), (Messages{{'d', "1\n"}}));
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

}  // namespace
}  // namespace fenceguard::pgwire::test
