// Each work of a shared transaction is answered exactly once, whatever the others' receivers do, and soon,
// whoever reads the file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <stdexcept>

#include "adapters/sqlite/guard.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using testing::ElementsAre;

class Answers : public testing::Test {
 protected:
  // Both are queued while the committer is busy, so that one transaction has them.
  void advance_together(const Claim& first, Done<Ruling> first_done, const Claim& second,
                        Done<Ruling> second_done) {
    std::promise<void> queued;
    storage_.fences().advance(claim_of("other", 1), [&](const auto&) { queued.get_future().wait(); });
    storage_.fences().advance(first, std::move(first_done));
    storage_.fences().advance(second, std::move(second_done));
    queued.set_value();
    storage_.close();  // answers what is open
  }

  const TempDir folder_;
  OpenStorage storage_{folder_.file("fences.db")};
};

TEST_F(Answers, AReceiverThatThrowsNeitherHearsTwiceNorTakesTheOthersAnswers) {
  int thrown = 0;
  std::vector<std::string> heard;
  advance_together(
      claim_of("a", 1),
      [&](const Outcome<Ruling>&) {
        ++thrown;
        throw std::runtime_error{"no memory for the answer"};
      },
      claim_of("b", 1),
      [&](const Outcome<Ruling>& outcome) {
        heard.emplace_back(outcome.ok() ? to_string(outcome.value().verdict) : outcome.fault().message);
      });
  EXPECT_EQ(thrown, 1);
  EXPECT_THAT(heard, ElementsAre("admitted"));
}

// A new file with pages so small that its log soon has very many of them.
void make_with_small_pages(const std::string& path) {
  sqlite3* connection = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &connection), SQLITE_OK);
  sqlite::execute(connection, "PRAGMA page_size = 512");
  sqlite::install_in(connection);
  sqlite3_close_v2(connection);
}

// The longest that a lease waited for its renewal while the log of a new file grew until it is to be emptied,
// which a reader that was stopped prevents.
std::chrono::nanoseconds longest_renewal_beside_reader() {
  constexpr std::uintmax_t truncated_above_bytes = 40'000 * (512 + 24);
  const TempDir folder{TempDir::Place::memory};
  const auto path = folder.file("fences.db");
  make_with_small_pages(path);
  const OpenStorage storage{path};
  auto& source = *storage->own_source();
  const auto answer = source.try_acquire(Resource{"lease"}, Holder{"h"}, std::chrono::hours{1});
  const auto claim = std::get<Grant>(answer).claim;
  const sqlite::Database reader{path, sqlite::Database::Mode::look};
  sqlite::execute(reader.handle(), "BEGIN");
  sqlite::execute(reader.handle(), "SELECT count(*) FROM fenceguard_fence");

  const auto log_bytes = [&] { return std::filesystem::file_size(path + "-wal"); };
  const std::string body(1'000'000, 'x');
  std::chrono::nanoseconds longest{0};
  for (int i = 0; i < 3 || log_bytes() < truncated_above_bytes; ++i) {
    if (i == 100) throw std::runtime_error{"the log does not grow"};
    (void)storage.put(claim_of("a", 1), body);
    const auto asked_at = BootClock::now();
    EXPECT_EQ(source.renew(claim, std::chrono::hours{1}), Renewal::renewed);
    longest = std::max<std::chrono::nanoseconds>(longest, BootClock::now() - asked_at);
  }
  return longest;
}

// The guard tries to empty the log, and must not make a lease wait for as long as it lives: the limit here is
// half of the time to live that is the default. A busy machine may exceed it, but not with every file.
TEST(LongLog, IsEmptiedWithoutKeepingLeasesWaitingForAReader) {
  constexpr std::chrono::seconds limit{5};
  auto longest = longest_renewal_beside_reader();
  for (int tries = 1; tries < 5 && longest >= limit; ++tries) longest = longest_renewal_beside_reader();
  EXPECT_LT(longest, limit);
}

}  // namespace
}  // namespace fenceguard::test
