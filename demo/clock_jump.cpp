#include <fmt/format.h>
#include <glob.h>

#include <cstdio>
#include <fstream>

#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/redis.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::chrono::milliseconds ttl{60'000};
constexpr std::chrono::seconds jump{3'600};
constexpr const char* locks = "locks";

std::string find_library() {
  for (const auto* pattern :
       {"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1",
        "/usr/lib64/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1"}) {
    glob_t found{};
    const bool is_there = glob(pattern, 0, nullptr, &found) == 0 && found.gl_pathc > 0;
    const std::string path = is_there ? found.gl_pathv[0] : "";
    globfree(&found);
    if (is_there) return path;
  }
  throw Unavailable(
      "libfaketime was not found, and this scenario needs it to set a server's clock; on Debian it is in the "
      "package faketime");
}

// The clock of a server: a file that libfaketime reads anew each time that it is asked.
class Clock {
 public:
  explicit Clock(const Harness& harness) : file_{harness.folder() + "/clock"}, library_{find_library()} {
    set(std::chrono::seconds{0});
  }

  void set(std::chrono::seconds ahead) const {
    // At once, so that a server never reads half of it.
    const auto fresh = file_ + ".new";
    std::ofstream{fresh} << fmt::format("+{}s\n", ahead.count());
    if (std::rename(fresh.c_str(), file_.c_str()) != 0) throw Unavailable("the clock cannot be set");
  }

  // libc comes second, so that memory is its own and not that of jemalloc, which asks for the time before
  // libfaketime can answer (https://github.com/wolfcw/libfaketime/issues/130). The monotonic clock stays.
  [[nodiscard]] std::map<std::string, std::string> environment() const {
    return {{"LD_PRELOAD", library_ + " libc.so.6"},
            {"FAKETIME_TIMESTAMP_FILE", file_},
            {"FAKETIME_NO_CACHE", "1"},
            {"FAKETIME_DONT_FAKE_MONOTONIC", "1"}};
  }

 private:
  std::string file_;
  std::string library_;
};

std::unique_ptr<RedisServer> start_under(Harness& harness, const Clock& clock) {
  try {
    return std::make_unique<RedisServer>(harness, std::vector<std::string>{}, clock.environment());
  } catch (const Unavailable& error) {
    throw Unavailable(
        fmt::format("redis-server does not run with libfaketime here, and this scenario needs both. Known of "
                    "redis-server 8, which takes some of its memory from jemalloc alone; 7 does. ({})",
                    error.what()));
  }
}

// Answers by how many seconds the server's own clock went on.
std::int64_t leap(Harness& harness, const RedisServer& server, const Clock& clock) {
  const auto seconds = [&] { return parse_decimal(server.call({"TIME"}).elements.at(0).text).value_or(0); };
  const auto before = seconds();
  clock.set(jump);
  const auto ahead = seconds() - before;
  harness.note(locks, fmt::format("its clock jumps by {} s", ahead), Tone::pause);
  return ahead;
}

Outcome run(Harness& harness, bool guarded) {
  const RedisServer storage{harness};
  const Clock clock{harness};
  const auto server = start_under(harness, clock);
  if (guarded) initialise_fences(harness, storage.url(), {"--source", server->url()});
  Fixture fixture{harness,
                  {.storage = storage.url(), .place = "demo", .guarded = guarded, .source = server->url()}};
  auto& [balance, a, b] = fixture;
  const auto take = [&](Client& client) {
    if (!guarded) return shown(server->take_plainly(client.lane(), locks, ttl)) == "OK";
    return client.try_take(ttl);
  };

  const bool a_has_it = take(a);
  const auto left = guarded ? ttl.count() : server->ask(a.lane(), locks, {"PTTL", lock_key}).integer;
  a.read();
  const auto ahead = leap(harness, *server, clock);
  const bool b_has_it = take(b);
  b.read();
  const auto written = b.write(add_b);
  Outcome outcome;
  if (guarded) outcome.facts = {{"token_a", a.token()}, {"token_b", b.token()}};
  const bool is_higher = guarded && b.token() > a.token();
  const auto late = a.write(add_a);
  const bool goes_on = guarded && b.give_back() && take(a) && a.add(add_a);

  const auto end = balance.balance();
  outcome.as_expected =
      a_has_it && b_has_it && left > ttl.count() / 2 && ahead >= jump.count() && written.is_admitted() &&
      (guarded ? is_higher && late.verdict == "stale" && goes_on && end == expected : end != expected);
  outcome.sentence =
      guarded ? fmt::format("B has the lock early here as well, but A's write is {}; A starts again: ",
                            late.verdict)
              : fmt::format("B has the lock although A's had {} ms left; ", left);
  outcome.sentence += balance_sentence(end, expected);
  outcome.facts.insert(
      {{"jump_s", ahead}, {"verdict_a", late.verdict}, {"balance", end}, {"expected", expected}});
  if (!guarded) outcome.facts.insert({{"pttl_ms", left}, {"b_set", b_has_it ? "OK" : "(nil)"}});
  return outcome;
}

}  // namespace

Scenario clock_jump() {
  return {.name = "clock-jump",
          .summary = "the clock of a Redis server jumps: a lock of a minute expires at once",
          .opening =
              "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock is in a "
              "real redis-server whose clock can be set (libfaketime), for a minute; the account is in "
              "another one. The clock jumps by an hour.",
          .lanes = {"client A", "client B", locks, "storage"},
          .run = run};
}

}  // namespace fenceguard::demo
