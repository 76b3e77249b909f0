// State files that are old, new, damaged, or not ours: upgraded, or refused with a sentence that says what to
// do; a fence is never silently another one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>

#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/schema.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/process/child_process.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream{path, std::ios::binary | std::ios::trunc} << content;
}

class StateFile : public testing::Test {
 protected:
  // The message with which the guard refuses the file; '' if it does not.
  [[nodiscard]] std::string refusal() const {
    try {
      const OpenStorage storage{path_, StorageOptions{}};
      return "";
    } catch (const Unavailable& error) {
      return error.what();
    }
  }

  TempDir folder_;
  const std::string path_ = folder_.file("fenceguard.db");
};

// The tables of an older version, as its files made them.
class OlderFile : public StateFile, public testing::WithParamInterface<int> {};

TEST_P(OlderFile, IsUpgradedWithEverythingInIt) {
  const int version = GetParam();
  const std::vector<std::string> files{"001_fences", "002_leases", "003_objects", "004_lane"};
  for (int i = 0; i < version; ++i) {
    change(path_,
           content_of(FENCEGUARD_SOURCE_DIR "/sql/sqlite/" + files[static_cast<std::size_t>(i)] + ".sql"));
  }
  change(path_, "INSERT INTO fenceguard_schema VALUES (1, " + std::to_string(version) + ")");
  {
    sqlite::Database database{path_, sqlite::Database::Mode::read_write};
    sqlite::FenceTable fences{database.handle()};
    auto row = fences.fresh_namespace(20);
    row.highest = 34;
    row.resources = 1;
    fences.store_namespace(row);
    fences.store("accounts/42", fence_of(34, "b"));
  }
  const OpenStorage storage{path_, StorageOptions{}};
  EXPECT_EQ(query(path_, "SELECT version FROM fenceguard_schema"), std::to_string(sqlite::schema_version()));
  EXPECT_EQ(storage.status().state, StoreState::ready);
  EXPECT_EQ(storage.status().floor, 20);
  EXPECT_EQ(storage.status().highest, 34);
  EXPECT_EQ(storage.show("accounts/42"), (FenceView{fence_of(34, "b"), 20}));
  EXPECT_EQ(storage.put(claim_of("accounts/42", 33, "a"), "x").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage.put(claim_of("accounts/42", 34, "b"), "x").ruling.verdict, Verdict::admitted);
  EXPECT_EQ(storage->own_source()->draw(), Token{1});
}

INSTANTIATE_TEST_SUITE_P(Versions, OlderFile, testing::Values(1, 2, 3, 4));

TEST_F(StateFile, ANewerVersionIsRefusedAndLeftAlone) {
  { const OpenStorage storage{path_}; }
  change(path_, "UPDATE fenceguard_schema SET version = 99");
  EXPECT_THAT(refusal(), HasSubstr("version 99"));
  EXPECT_THAT(refusal(), HasSubstr("newer fenceguard"));
  EXPECT_EQ(query(path_, "SELECT version FROM fenceguard_schema"), "99");
}

TEST_F(StateFile, AVersionThatNeverWasIsRefusedAndLeftAlone) {
  { const OpenStorage storage{path_}; }
  for (const std::string version : {"0", "-3", "-9223372036854775808", "9223372036854775807"}) {
    change(path_, "UPDATE fenceguard_schema SET version = " + version);
    EXPECT_THAT(refusal(), HasSubstr("version " + version + ": the file is damaged"));
    EXPECT_EQ(query(path_, "SELECT version FROM fenceguard_schema"), version);
  }
}

TEST_F(StateFile, AnEmptyFileIsRefused) {
  write_file(path_, "");
  EXPECT_THAT(refusal(), HasSubstr("is empty"));
  EXPECT_EQ(fs::file_size(path_), 0u);
}

TEST_F(StateFile, WhatIsNotADatabaseIsRefusedAndLeftAlone) {
  for (const auto& content : {std::string{"hello"}, std::string(100'000, 'x'), std::string(4'096, '\0')}) {
    write_file(path_, content);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(path_), HasSubstr("not a")));
    EXPECT_EQ(content_of(path_), content);
  }
}

TEST_F(StateFile, AFolderIsRefused) {
  fs::create_directory(path_);
  EXPECT_THAT(refusal(), HasSubstr("is not a file"));
}

TEST_F(StateFile, EveryTruncationIsRefused) {
  {
    const OpenStorage storage{path_};
    for (int i = 0; i < 300; ++i)
      (void)storage.put(claim_of("r/" + std::to_string(i), 5), std::string(200, 'x'));
  }
  const auto whole = content_of(path_);
  ASSERT_GT(whole.size(), 20u * 4096);
  for (std::size_t size = 1; size < whole.size(); size += 4096 / 2 - 1) {
    fs::remove(path_ + "-wal");
    fs::remove(path_ + "-shm");
    write_file(path_, whole.substr(0, size));
    EXPECT_THAT(refusal(), HasSubstr(path_)) << "truncated to " << size;
  }
}

// One bit in many places, each in a fresh copy: the file is refused, or every fence is what it was.
TEST_F(StateFile, AFlippedBitIsNoticedOrChangesNoFence) {
  constexpr int resources = 60;
  std::map<std::string, FenceView> model;
  {
    const OpenStorage storage{path_};
    (void)storage.init(3);
    for (int i = 0; i < resources; ++i) {
      const auto name = "accounts/" + std::to_string(i * i * 7919);
      (void)storage.put(claim_of(name, 10 + i, "holder-" + std::to_string(i)).with(Sequence{i}), "some body");
      if (i % 7 == 0) (void)storage.revoke(name);
      model[name] = storage.show(name);
    }
    (void)storage->own_source()->draw();
  }
  const auto whole = content_of(path_);
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 11);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random{seed};
  int refused = 0;
  const TempDir memory{TempDir::Place::memory};
  const std::string copy = memory.file("copy.db");
  const int rounds = scaled(1'500);
  for (int round = 0; round < rounds; ++round) {
    for (const char* suffix : {"", "-wal", "-shm", "-guard"}) fs::remove(copy + suffix);
    const auto place = random() % whole.size();
    const int bit = static_cast<int>(random() % 8);
    auto damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << bit));
    write_file(copy, damaged);
    SCOPED_TRACE("bit " + std::to_string(bit) + " of byte " + std::to_string(place));
    try {
      const OpenStorage storage{copy, initialised()};
      for (const auto& [name, view] : model) {
        ASSERT_EQ(storage.show(name), view) << name;
        const auto claim = claim_of(name, view.record->token.value() - 1, "late");
        ASSERT_EQ(storage.advance(claim).verdict, Verdict::stale) << name;
        ASSERT_EQ(storage.body(name), "some body");
      }
      ASSERT_EQ(storage->own_source()->draw(), Token{2});
    } catch (const Unavailable& error) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

// Damage that looks sound to SQLite: every value of a row changed to another one of its kind.
TEST_F(StateFile, AChangedRowIsRefused) {
  {
    const OpenStorage storage{path_};
    (void)storage.put(claim_of("a", 5, "x").with(Sequence{3}), "body");
    (void)storage.put(claim_of("b", 6, "x"), "body");
  }
  const auto whole = content_of(path_);
  for (const char* damage : {
           "UPDATE fenceguard_fence SET token = 4 WHERE resource = 'a'",
           "UPDATE fenceguard_fence SET resource = 'c' WHERE resource = 'a'",
           "UPDATE fenceguard_fence SET holder = 'y' WHERE resource = 'a'",
           "UPDATE fenceguard_fence SET sequence = 2 WHERE resource = 'a'",
           "UPDATE fenceguard_fence SET sequence = NULL WHERE resource = 'a'",
           "UPDATE fenceguard_fence SET closed = 1 WHERE resource = 'a'",
           "UPDATE fenceguard_fence SET checksum = checksum + 1 WHERE resource = 'b'",
           "UPDATE fenceguard_fence SET token = 0 WHERE resource = 'a'",
           "DELETE FROM fenceguard_fence WHERE resource = 'a'",
           "UPDATE fenceguard_fence SET resource = CAST(resource AS BLOB) WHERE resource = 'a'",
           "UPDATE fenceguard_object SET path = CAST(path AS BLOB) WHERE path = 'a'",
           "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'done_by', 'done_bx')",
           "UPDATE fenceguard_namespace SET floor = 1",
           "UPDATE fenceguard_namespace SET highest = 1",
           "UPDATE fenceguard_object SET body = x'00' WHERE path = 'a'",
           "UPDATE fenceguard_object SET version = 9 WHERE path = 'a'",
       }) {
    fs::remove(path_);
    write_file(path_, whole);
    change(path_, damage);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(path_), HasSubstr("damaged"))) << damage;
  }
}

TEST_F(StateFile, ADamagedCounterDrawsNothing) {
  const OpenStorage storage{path_};
  (void)storage->own_source()->draw();
  change(path_, "UPDATE fenceguard_counter SET last = 0");
  EXPECT_THROW((void)storage->own_source()->draw(), Unavailable);
  EXPECT_THROW((void)storage->own_source()->try_acquire(Resource{"a"}, Holder{}, std::chrono::seconds{1}),
               Unavailable);
  EXPECT_EQ(storage.advance(claim_of("a", 1)).verdict, Verdict::admitted);
}

TEST_F(StateFile, AProcessWithoutWritePermissionIsToldSo) {
  { const OpenStorage storage{path_}; }
  fs::permissions(folder_.path(), fs::perms::all);
  fs::permissions(path_, fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  std::string said;
  if (geteuid() == 0) {
    ChildProcess child{{"open-as-nobody", path_}};
    said = child.read_line().value_or("");
  } else {
    said = refusal();
  }
  EXPECT_THAT(said, HasSubstr("cannot be written"));
  EXPECT_THAT(said, HasSubstr("check owner, mode and mount"));
}

TEST_F(StateFile, AFolderThatMayNotBeWrittenIsRefusedToo) {
  { const OpenStorage storage{path_}; }
  fs::permissions(path_, fs::perms::all);
  fs::permissions(path_ + "-guard", fs::perms::all);
  fs::permissions(folder_.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                                      fs::perms::others_exec);
  std::string said;
  if (geteuid() == 0) {
    ChildProcess child{{"open-as-nobody", path_}};
    said = child.read_line().value_or("");
  } else {
    said = refusal();
  }
  fs::permissions(folder_.path(), fs::perms::owner_all);
  EXPECT_THAT(said, HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace fenceguard::test
