#include <fmt/format.h>

#include "adapters/redis/demo/client.hpp"
#include "adapters/redis/demo/stories.hpp"
#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::chrono::milliseconds ttl{500};
constexpr std::chrono::milliseconds patience{1'500};  // thrice the time that the lock was meant to live
constexpr std::chrono::milliseconds look_again{100};
constexpr std::chrono::milliseconds exec_ttl{3'000};  // even a busy machine starts a command in less
constexpr const char* redis_lane = "Redis";

// Client A is a process: it sends SETNX, has the answer, and is killed before it sends EXPIRE.
void die_after_setnx(Stage& stage, const Server& server) {
  const auto client = stage.start({.program = "redis-cli",
                                   .package = "redis-tools",
                                   .arguments = {"-h", "127.0.0.1", "-p", std::to_string(server.port())}});
  client->send_line(fmt::format("SETNX {} A", lock_key));
  const auto answer = client->receive_line();
  stage.note({.who = "client A",
              .what = fmt::format("SETNX {} A", lock_key),
              .where = redis_lane,
              .answer = answer,
              .tone = Tone::token});
  client->kill();
  stage.note({.who = "client A", .what = "KILLED by SIGKILL, before it sends EXPIRE", .tone = Tone::pause});
  if (answer != "1") throw Unavailable("SETNX on a free lock answered " + answer);
}

TaleEnd without(Stage& stage) {
  const Server server{stage};
  Actor b{stage, "client B", server, redis_lane};
  die_after_setnx(stage, server);
  int refusals = 0;
  bool is_taken = false;
  const auto began = BootClock::now();
  (void)b.ask(server, redis_lane, {"SETNX", lock_key, "B"});
  while (!is_taken && BootClock::now() - began < patience) {
    is_taken = server.call({"SETNX", lock_key, "B"}).integer == 1;
    if (!is_taken) ++refusals;
    stage.wait(look_again);
  }
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(BootClock::now() - began);
  stage.note(
      {.who = "client B",
       .what = fmt::format("asks {} times more in {} ms", refusals + (is_taken ? 1 : 0), waited.count()),
       .where = redis_lane,
       .answer = is_taken ? "1" : "0, each time",
       .tone = is_taken ? Tone::plain : Tone::bad});
  const auto left = b.ask(server, redis_lane, {"PTTL", lock_key}, Tone::bad).integer;
  TaleEnd end;
  end.is_as_it_must_be = !is_taken && left == -1;
  end.facts = {{"taken_by_b", is_taken ? "1" : "0"},
               {"pttl_ms", std::to_string(left)},
               {"refusals", std::to_string(refusals)},
               {"waited_ms", std::to_string(waited.count())}};
  end.outcome = end.is_as_it_must_be
                    ? fmt::format(
                          "the lock is STUCK: its owner is dead, it has no time to live (PTTL {}), and B "
                          "waits in vain",
                          left)
                    : "the lock is not stuck";
  return end;
}

// Client A is 'fenceguard exec', killed as soon as its command runs: right after it took the lock.
Claim die_after_grant(Stage& stage, const Server& server, TokenSource& source) {
  const auto client =
      stage.start({.arguments = {"exec", "--source", server.url(), "--resource", account, "--ttl",
                                 fmt::format("{}ms", exec_ttl.count()), "--", "/bin/sh", "-c",
                                 "echo \"$FENCING_TOKEN $FENCING_HOLDER\"; exec sleep 60"}});
  const auto line = client->receive_line();
  const auto token = Token::parse(line.substr(0, line.find(' ')));
  if (!token) throw Unavailable("client A has no token");
  stage.note({.who = "client A",
              .what = fmt::format("takes the lock for {} ms, in one step", exec_ttl.count()),
              .where = redis_lane,
              .answer = fmt::format("token {}", to_string(*token)),
              .tone = Tone::token,
              .token = token});
  client->kill();
  stage.note({.who = "client A", .what = "KILLED by SIGKILL, at the same point", .tone = Tone::pause});
  const auto record = source.show(Resource{account});
  stage.note({.who = "client A",
              .what = "leaves the lock behind",
              .where = redis_lane,
              .answer = record ? fmt::format("{} ms to live", record->remaining.count()) : "expired"});
  return {Resource{account}, *token, Holder{line.substr(line.find(' ') + 1)}, std::nullopt};
}

TaleEnd with(Stage& stage) {
  const Server server{stage};
  const auto source = open_source(Url::parse(server.url()));
  initialise_fences(server, source->draw().value());
  open_account(server, 100);
  Actor late{stage, "client A", server, redis_lane};
  Actor b{stage, "client B", server, redis_lane};
  const auto dead = die_after_grant(stage, server, *source);
  const bool was_held = !b.take(*source, redis_lane, ttl);
  const auto taken = b.take_when_free(*source, redis_lane, ttl);
  const auto base = b.read(taken);
  const auto written = b.write(taken, base.value_or(0), 30);
  late.note("a write of A's, delayed in the network, arrives now", Tone::pause);
  const auto verdict = late.write(dead, 100, 50);
  const auto balance = balance_of(server);
  TaleEnd end;
  end.facts = {{"token_a", to_string(dead.token)},
               {"token_b", to_string(taken.token)},
               {"was_held", was_held ? "1" : "0"},
               {"verdict_a", to_string(verdict)},
               {"balance", std::to_string(balance)}};
  end.is_as_it_must_be =
      taken.token > dead.token && written == Verdict::admitted && verdict == Verdict::stale && balance == 130;
  end.outcome = fmt::format("the lock expired by itself, B has the higher token, and A's late write is {}",
                            to_string(verdict));
  return end;
}

}  // namespace

TaleEnd expire_crash(Stage& stage, bool guarded) {
  return guarded ? with(stage) : without(stage);
}

}  // namespace fenceguard::redis::demos
