// Two processes: what becomes of a lease when its process is killed, or stopped.

#include <gtest/gtest.h>
#include <signal.h>

#include "adapters/postgres/token_source.hpp"
#include "tests/postgres/source/server.hpp"
#include "tests/process/child_process.hpp"

namespace fenceguard::test {
namespace {

using Ms = std::chrono::milliseconds;
constexpr Ms ttl{60'000};

const Resource r{"accounts/42"};
const Holder here{"here"};

class Processes : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<TokenSource> open() { return postgres::open_source(database_.url(GetParam())); }
  [[nodiscard]] std::vector<std::string> arguments(const std::string& holder) const {
    return {fmt::format("postgres://postgres@127.0.0.1:{}/{}{}", server_port(), database_.name(), GetParam()),
            r.name(), holder, std::to_string(ttl.count())};
  }
  // The token that the process was granted; 0: none.
  static std::int64_t token_of(ChildProcess& process) {
    for (auto line = process.read_line(); line; line = process.read_line()) {
      if (line->starts_with("token ")) return std::stoll(line->substr(6));
    }
    return 0;
  }
  const Database database_;
};

TEST_P(Processes, TakeTurnsAndTokensRise) {
  auto present = std::make_unique<ChildProcess>(arguments("0"));
  auto last = token_of(*present);
  EXPECT_GT(last, 0);
  for (int turn = 1; turn < 4; ++turn) {
    auto next = std::make_unique<ChildProcess>(arguments(std::to_string(turn)));
    EXPECT_EQ(next->read_line(), "asking");
    present->close_input();
    EXPECT_EQ(present->read_line(), "released");
    const auto token = token_of(*next);
    EXPECT_GT(token, last);
    last = token;
    present = std::move(next);
  }
}

class KeptProcesses : public Processes {};

TEST_P(KeptProcesses, AKilledProcessFreesItsLockAtOnce) {
  ChildProcess other{arguments("other")};
  const auto first = token_of(other);
  const auto source = open();
  ASSERT_TRUE(std::holds_alternative<LockBusy>(source->try_acquire(r, here, ttl)));
  const auto begin = BootClock::now();
  other.signal(SIGKILL);
  const auto grant = source->wait_acquire(r, here, {.ttl = ttl, .wait = ttl});
  EXPECT_LT(BootClock::now() - begin, ttl / 3);
  ASSERT_TRUE(grant);
  EXPECT_GT(grant->claim.token.value(), first);
}

TEST_P(KeptProcesses, AStoppedProcessKeepsItsLockUntilItIsEnded) {
  ChildProcess other{arguments("other")};
  const auto first = token_of(other);
  other.signal(SIGSTOP);
  const auto source = open();
  EXPECT_FALSE(source->wait_acquire(r, here, {.ttl = ttl, .wait = Ms{500}}));
  EXPECT_EQ(source->end(r), Release::released);
  const auto grant = source->wait_acquire(r, here, {.ttl = ttl, .wait = ttl});
  ASSERT_TRUE(grant);
  EXPECT_GT(grant->claim.token.value(), first);
  // It wakes up to a lost connection, and frees nobody else's lock.
  other.signal(SIGCONT);
  other.close_input();
  const auto lines = other.read_rest();
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(), "not_held");
  EXPECT_EQ(source->renew(grant->claim, ttl), Renewal::renewed);
}

INSTANTIATE_TEST_SUITE_P(Postgres, Processes, testing::Values("", "?lock=row", "?lock=advisory"));
INSTANTIATE_TEST_SUITE_P(Postgres, KeptProcesses, testing::Values("?lock=row", "?lock=advisory"));

}  // namespace
}  // namespace fenceguard::test
