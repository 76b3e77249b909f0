// A guard and a service's own transactions keep each other out of one database, whatever name each of them
// knows it by.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "adapters/sqlite/guard.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/process/child_process.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using sqlite::Database;
using sqlite::Transaction;

class ServiceDatabase : public testing::Test {
 protected:
  ServiceDatabase() { sqlite::install_in(db()); }
  [[nodiscard]] sqlite3* db() const { return database_.handle(); }

  TempDir folder_;
  const std::string path_ = folder_.file("service.db");
  Database database_{path_, Database::Mode::create};
};

// What keeps a guard and a service's transactions apart must hold whatever name each of them knows the
// database by, and without its lock file, which people delete because it looks stale.
enum class Way { lock_file_deleted, symbolic_link, hard_link, bound_file };

class OtherWay : public ServiceDatabase, public testing::WithParamInterface<Way> {
 protected:
  ~OtherWay() override {
    if (is_bound_) umount(other_.c_str());
  }

  // Makes the other way to the database; false if this user has no right to.
  [[nodiscard]] bool make() {
    switch (GetParam()) {
      case Way::lock_file_deleted:
        other_ = path_;
        return std::filesystem::remove(path_ + "-guard");
      case Way::symbolic_link:
        std::filesystem::create_symlink(path_, other_);
        return true;
      case Way::hard_link:
        std::filesystem::create_hard_link(path_, other_);
        return true;
      case Way::bound_file:
        std::ofstream{other_};
        is_bound_ = mount(path_.c_str(), other_.c_str(), nullptr, MS_BIND, nullptr) == 0;
        return is_bound_;
    }
    return false;
  }

  // Another name means another log, so that it must not be used before or afterwards either.
  [[nodiscard]] static bool is_other_name() {
    return GetParam() == Way::hard_link || GetParam() == Way::bound_file;
  }

  std::string other_ = folder_.file("other.db");
  bool is_bound_ = false;
};

// A guard has fence 5 in its cache; another process then comes with token 9, and must not be admitted beside
// it.
TEST_P(OtherWay, BesideARunningGuardNothingIsAdmitted) {
  OpenStorage guard{path_};
  ASSERT_EQ(guard.put(claim_of("a", 5), "five").ruling.verdict, Verdict::admitted);
  if (!make()) GTEST_SKIP() << "no right to mount";
  ChildProcess service{{"advance", other_, "a", "9"}};
  EXPECT_THAT(service.read_line().value_or(""), testing::StartsWith("refused: "));
  EXPECT_EQ(guard.put(claim_of("a", 5), "five again").ruling.verdict, Verdict::admitted);
  guard.close();
  ChildProcess later{{"advance", other_, "a", "9"}};
  const auto answer = later.read_line().value_or("");
  EXPECT_THAT(answer, testing::StartsWith(is_other_name() ? "refused: " : "admitted"));
}

TEST_P(OtherWay, DuringATransactionNoGuardBegins) {
  { const OpenStorage makes_the_lock_file{path_}; }
  if (GetParam() != Way::lock_file_deleted && !make()) GTEST_SKIP() << "no right to mount";
  ChildProcess service{{"transaction", GetParam() == Way::lock_file_deleted ? path_ : other_, "a", "9"}};
  const auto answer = service.read_line().value_or("");
  if (is_other_name()) {
    EXPECT_THAT(answer, testing::StartsWith("refused: "));
    return;
  }
  ASSERT_EQ(answer, "admitted");
  if (GetParam() == Way::lock_file_deleted) {
    ASSERT_TRUE(make());
  }
  EXPECT_THROW(OpenStorage{path_}, Unavailable);
  service.close_input();
  service.wait();
  const OpenStorage guard{path_};
  EXPECT_EQ(guard.put(claim_of("a", 5), "five").ruling.verdict, Verdict::stale);
}

std::string name_of(const testing::TestParamInfo<Way>& way) {
  constexpr std::array names{"lock_file_deleted", "symbolic_link", "hard_link", "bound_file"};
  return names[static_cast<std::size_t>(way.param)];
}

INSTANTIATE_TEST_SUITE_P(Ways, OtherWay,
                         testing::Values(Way::lock_file_deleted, Way::symbolic_link, Way::hard_link,
                                         Way::bound_file),
                         name_of);

// The connection still has the old file, and the lock would be on the new one.
TEST_F(ServiceDatabase, ADatabaseThatWasReplacedUnderItsConnectionIsRefused) {
  std::filesystem::copy_file(path_, folder_.file("copy.db"));
  std::filesystem::rename(folder_.file("copy.db"), path_);
  EXPECT_THROW(Transaction{db()}, Unavailable);
  std::filesystem::remove(path_);
  EXPECT_THROW(Transaction{db()}, Unavailable);
}

// Several connections of one process share what keeps guards out, and the last of them lets go of it.
TEST_F(ServiceDatabase, TransactionsOfOneProcessKeepAGuardOutUntilTheLastHasEnded) {
  Database second{path_, Database::Mode::read_write};
  auto first = std::make_unique<Transaction>(db());
  std::jthread waiting{[&] { Transaction tx{second.handle()}; }};  // for the first one's end
  first.reset();
  waiting.join();
  {
    Transaction tx{second.handle()};
    ASSERT_TRUE(std::filesystem::remove(path_ + "-guard"));
    EXPECT_THROW(OpenStorage{path_}, Unavailable);
  }
  const OpenStorage guard{path_};
  EXPECT_THROW(Transaction{db()}, Unavailable);
}

}  // namespace
}  // namespace fenceguard::test
