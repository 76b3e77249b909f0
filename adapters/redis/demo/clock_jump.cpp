#include <fmt/format.h>
#include <glob.h>

#include <cstdio>
#include <fstream>

#include "adapters/redis/demo/client.hpp"
#include "adapters/redis/demo/stories.hpp"
#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::chrono::milliseconds ttl{60'000};
constexpr std::chrono::seconds jump{3'600};
constexpr const char* locks = "locks";
constexpr const char* storage_lane = "storage";
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;

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
      "libfaketime was not found, and this story needs it to set a server's clock; on Debian it is in the "
      "package faketime");
}

// The clock of a server: a file that libfaketime reads anew each time that it is asked.
class Clock {
 public:
  explicit Clock(Stage& stage) : file_{stage.folder() + "/clock"}, library_{find_library()} {
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

Server start_under(Stage& stage, const Clock& clock) {
  try {
    return Server{stage, {}, clock.environment()};
  } catch (const Unavailable& error) {
    throw Unavailable(
        fmt::format("redis-server does not run with libfaketime here, and this story needs both. Known of "
                    "redis-server 8, which takes some of its memory from jemalloc alone; 7 does. ({})",
                    error.what()));
  }
}

// The server of the locks, and its clock.
class Locks {
 public:
  explicit Locks(Stage& stage) : stage_{stage}, clock_{stage}, server_{start_under(stage, clock_)} {}

  [[nodiscard]] const Server& server() const { return server_; }

  // Answers by how many seconds the server's own clock went on.
  std::int64_t leap() {
    const auto before = seconds();
    clock_.set(jump);
    const auto ahead = seconds() - before;
    stage_.note({.who = locks, .what = fmt::format("its clock jumps by {} s", ahead), .tone = Tone::pause});
    return ahead;
  }

 private:
  [[nodiscard]] std::int64_t seconds() const {
    return parse_decimal(server_.call({"TIME"}).elements.at(0).text).value_or(0);
  }

  Stage& stage_;
  Clock clock_;
  Server server_;
};

TaleEnd without(Stage& stage) {
  const Server storage{stage};
  Locks locks_of_server{stage};
  const auto& server = locks_of_server.server();
  open_account(storage, 100);
  Actor a{stage, "client A", storage, storage_lane};
  Actor b{stage, "client B", storage, storage_lane};
  const std::vector<std::string> command{"SET", lock_key, "", "NX", "PX", std::to_string(ttl.count())};
  const auto take = [&](Actor& actor, const char* who) {
    auto words = command;
    words[2] = who;
    return shown(actor.ask(server, locks, words, Tone::token));
  };
  const auto taken_a = take(a, "A");
  const auto left = a.ask(server, locks, {"PTTL", lock_key}).integer;
  const auto base_a = a.read();
  const auto ahead = locks_of_server.leap();
  const auto taken_b = take(b, "B");
  const auto base_b = b.read();
  b.write(base_b, add_b);
  a.write(base_a, add_a);

  const auto balance = balance_of(storage);
  TaleEnd end;
  end.is_as_it_must_be = taken_a == "OK" && taken_b == "OK" && left > ttl.count() / 2 &&
                         ahead >= jump.count() && balance != expected;
  end.facts = {{"pttl_ms", std::to_string(left)},
               {"jump_s", std::to_string(ahead)},
               {"b_set", taken_b},
               {"balance", std::to_string(balance)},
               {"expected", std::to_string(expected)}};
  end.outcome = fmt::format("B has the lock although A's had {} ms left; {}", left,
                            balance_sentence(balance, expected));
  return end;
}

TaleEnd with(Stage& stage) {
  const Server storage{stage};
  Locks locks_of_server{stage};
  const auto source = open_source(Url::parse(locks_of_server.server().url()));
  open_account(storage, 100);
  initialise_fences(storage, source->draw().value());
  Actor a{stage, "client A", storage, storage_lane};
  Actor b{stage, "client B", storage, storage_lane};
  const auto claim_a = a.take(*source, locks, ttl);
  if (!claim_a) throw Unavailable("a free lock was not granted");
  const auto base_a = a.read(*claim_a);
  const auto ahead = locks_of_server.leap();
  const auto claim_b = b.take(*source, locks, ttl);
  if (!claim_b) throw Unavailable("a lock that expired was not granted");
  const auto base_b = b.read(*claim_b);
  const auto written = b.write(*claim_b, base_b.value_or(0), add_b);
  const auto late = a.write(*claim_a, base_a.value_or(0), add_a);
  const bool is_free = b.release(*source, locks, *claim_b) == Release::released;
  const auto again = a.take(*source, locks, ttl);
  const auto base = again ? a.read(*again) : std::nullopt;
  const bool goes_on = is_free && base && a.write(*again, *base, add_a) == Verdict::admitted;

  const auto balance = balance_of(storage);
  TaleEnd end;
  end.facts = {{"token_a", to_string(claim_a->token)}, {"token_b", to_string(claim_b->token)},
               {"verdict_a", to_string(late)},         {"jump_s", std::to_string(ahead)},
               {"balance", std::to_string(balance)},   {"expected", std::to_string(expected)}};
  end.is_as_it_must_be = claim_b->token > claim_a->token && written == Verdict::admitted &&
                         late == Verdict::stale && goes_on && balance == expected;
  end.outcome = fmt::format("B has the lock early here as well, but A's write is {}; A starts again: {}",
                            to_string(late), balance_sentence(balance, expected));
  return end;
}

}  // namespace

TaleEnd clock_jump(Stage& stage, bool guarded) {
  return guarded ? with(stage) : without(stage);
}

}  // namespace fenceguard::redis::demos
