#include "server/postgres/relay/statements.hpp"

#include <gtest/gtest.h>

namespace fenceguard::pgwire {
namespace {

TEST(StatementsTest, FirstWordsTellWhatBecomesOfATransaction) {
  const std::pair<const char*, Kind> cases[] = {
      {"select 1", Kind::ordinary},
      {" /* a /* b */ c */ CoMMit -- x", Kind::end},
      {";; end;", Kind::end},
      {"abort work", Kind::end},
      {"commit and chain", Kind::chain},
      {"rollback transaction and chain", Kind::chain},
      {"rollback to savepoint a", Kind::rollback_to},
      {"/* a */ Rollback -- b\n work /* ; */ TO a;", Kind::rollback_to},
      {"rollback /* to a */", Kind::end},
      {"rollback -- to a\n work", Kind::end},
      {"select 1 -- rollback to a", Kind::ordinary},
      {"\"commit\"", Kind::ordinary},
      {"start transaction", Kind::begin},
      {"call p()", Kind::call},
      {"do $$ begin commit; end $$", Kind::call},
      {"prepare a as select 1", Kind::ordinary},
      {"prepare transaction 'x'", Kind::refused},
      {"commit prepared 'x'", Kind::refused},
      {"rollback prepared 'x'", Kind::refused},
      {"set a = 1", Kind::passive},
      {"discard all", Kind::discard},
      {"discard temp", Kind::ordinary},
      {"deallocate all", Kind::ordinary},
      {"set local transaction read only", Kind::set_transaction},
      {"set transaction isolation level serializable", Kind::set_transaction},
      {"set session characteristics as transaction read write", Kind::refused},
      {"set \"Default_Transaction_Read_Only\" = off", Kind::refused},
      {"set U&\"d\\0061\" = off", Kind::refused}};
  for (const auto& [text, kind] : cases) {
    const auto found = classify_statements(text);
    EXPECT_EQ(found.kind, kind) << text;
    EXPECT_EQ(found.count, 1u) << text;
    EXPECT_EQ(found.why != nullptr, kind == Kind::refused) << text;
  }
}

TEST(StatementsTest, SemicolonsInTextsAndCommentsSeparateNothing) {
  for (const auto* text : {"select ';commit;'", "select $a$;commit;$a$", "select 1 /* ;commit; */",
                           "select E'\\';commit;'", "select \"a;commit;\"", "select 1 -- ;commit;\n"}) {
    EXPECT_EQ(classify_statements(text).count, 1u) << text;
    EXPECT_FALSE(classify_statements(text).has_control) << text;
  }
}

TEST(StatementsTest, ControlAmongSeveralIsSeen) {
  for (const auto* text : {"select 1; commit", "begin; select 1", "select '\\'; commit; --'", "a;;/**/end;b"})
    EXPECT_TRUE(classify_statements(text).has_control && classify_statements(text).count > 1) << text;
  const auto savepoints = classify_statements("savepoint a; rollback to a; rollback to a; release a");
  EXPECT_FALSE(savepoints.has_control);
  EXPECT_EQ(savepoints.rollbacks_to, 2u);
}

TEST(StatementsTest, RefusedOneAmongSeveralIsSeen) {
  EXPECT_NE(classify_statements("select 1; prepare transaction 'x'").why, nullptr);
}

TEST(StatementsTest, TextThatTheScannerDoesNotReadIsBroken) {
  for (const auto* text : {"select 'a", "select /* a", "select $a$ b", "select \"a", "commit; select E'\\"})
    EXPECT_TRUE(classify_statements(text).is_broken) << text;
}

// White space from PostgreSQL 16 on, between the parts of a string, too.
TEST(StatementsTest, VerticalTabHidesNothing) {
  for (const auto* text :
       {"\vcommit", "commit\v", "select 1;\vcommit;\vselect 2", "select E'a'\v\n'\\' , '; commit; --'"}) {
    const auto found = classify_statements(text);
    EXPECT_TRUE(found.is_broken || found.has_control) << text;
  }
  for (const auto* text :
       {"select '\v'", "select $$\v$$", "select \"\v\"", "select 1 -- \v", "select /*\v*/ 1"})
    EXPECT_FALSE(classify_statements(text).is_broken) << text;
}

TEST(StatementsTest, NothingIsNoStatement) {
  for (const auto* text : {"", ";", " /* a */ -- b"}) EXPECT_EQ(classify_statements(text).count, 0u) << text;
}

TEST(StatementsTest, LastModeCounts) {
  EXPECT_TRUE(classify_statements("begin isolation level read committed, read only").says_read_only);
  EXPECT_TRUE(classify_statements("begin read only, read write").says_read_write);
  EXPECT_FALSE(classify_statements("begin isolation level read committed").says_read_only);
  EXPECT_TRUE(classify_statements("set a = 1; set transaction read only; select 1").says_read_only);
  EXPECT_FALSE(classify_statements("insert into t values (1); set transaction read only").says_read_only);
}

TEST(StatementsTest, LongTextIsReadByItsBeginning) {
  std::string text = "insert into a values ('";
  text.append(1'000'000, 'x');
  EXPECT_EQ(classify_statements(text + "')").kind, Kind::ordinary);
  EXPECT_EQ(classify_statements("commit /*" + text + "*/").kind, Kind::end);
  EXPECT_TRUE(classify_statements(text + "'; commit").has_control);
}

// However many there are, the word that is cut off at the end of the beginning is not taken for a whole one.
TEST(StatementsTest, CommentsAreNoWords) {
  std::string comments;
  for (int i = 0; i < 40; ++i) comments += "/**/";
  auto cut = comments;
  cut.append(2046 - cut.size(), ' ');
  cut += "commit";
  cut.append(3'000, ' ');
  EXPECT_EQ(classify_statements(cut).kind, Kind::end);
  const auto behind = classify_statements(comments + "--" + std::string(4'100, 'x') + "\ncall writes()");
  EXPECT_EQ(behind.count, 1u);
  EXPECT_EQ(behind.kind, Kind::call);
}

TEST(StatementsTest, MoreModesThanAreLookedAtAreRefused) {
  std::string text = "set session characteristics as transaction";
  for (int i = 0; i < 15; ++i) text += " read only";
  EXPECT_EQ(classify_statements(text + " read write").kind, Kind::refused);
}

}  // namespace
}  // namespace fenceguard::pgwire
