#include <fmt/format.h>

#include "adapters/redis/demo/client.hpp"
#include "adapters/redis/demo/stories.hpp"
#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::chrono::milliseconds short_ttl{300};
constexpr std::chrono::milliseconds long_ttl{60'000};
constexpr const char* lane = "Redis";
constexpr std::int64_t add_a = 50, add_b = 30, add_c = 20, expected = 200;

std::vector<std::string> take_plainly(const char* who, std::chrono::milliseconds ttl) {
  return {"SET", lock_key, who, "NX", "PX", std::to_string(ttl.count())};
}

TaleEnd without(Stage& stage) {
  const Server server{stage};
  open_account(server, 100);
  Actor a{stage, "client A", server, lane};
  Actor b{stage, "client B", server, lane};
  Actor c{stage, "client C", server, lane};

  (void)a.ask(server, lane, take_plainly("A", short_ttl), Tone::token);
  const auto base_a = a.read();
  stage.wait_until([&] { return server.call({"PTTL", lock_key}).integer == -2; }, "an end of A's lock");
  a.note("is slow; its lock has expired meanwhile", Tone::pause);
  (void)b.ask(server, lane, take_plainly("B", long_ttl), Tone::token);
  a.write(base_a, add_a);
  const auto base_b = b.read();
  const auto freed = a.ask(server, lane, {"DEL", lock_key}, Tone::bad);
  a.note("believes that this was its own lock");
  const auto entered = c.ask(server, lane, take_plainly("C", long_ttl), Tone::bad);
  const auto base_c = c.read();
  c.note("B and C are both at work now");
  b.write(base_b, add_b);
  c.write(base_c, add_c);

  const auto balance = balance_of(server);
  TaleEnd end;
  end.is_as_it_must_be = freed.integer == 1 && shown(entered) == "OK" && balance != expected;
  end.facts = {{"del", shown(freed)},
               {"c_set", shown(entered)},
               {"balance", std::to_string(balance)},
               {"expected", std::to_string(expected)}};
  end.outcome =
      fmt::format("A freed B's lock and C entered beside B; {}", balance_sentence(balance, expected));
  return end;
}

// Takes the lock, which must be free, reads, adds and gives it back.
bool add(Actor& actor, TokenSource& source, std::int64_t amount) {
  const auto claim = actor.take(source, lane, long_ttl);
  if (!claim) return false;
  const auto base = actor.read(*claim);
  return base && actor.write(*claim, *base, amount) == Verdict::admitted &&
         actor.release(source, lane, *claim) == Release::released;
}

TaleEnd with(Stage& stage) {
  const Server server{stage};
  const auto source = open_source(Url::parse(server.url()));
  initialise_fences(server, source->draw().value());
  open_account(server, 100);
  Actor a{stage, "client A", server, lane};
  Actor b{stage, "client B", server, lane};
  Actor c{stage, "client C", server, lane};

  const auto claim_a = a.take(*source, lane, short_ttl);
  if (!claim_a) throw Unavailable("a free lock was not granted");
  const auto base_a = a.read(*claim_a);
  stage.wait_until([&] { return !source->show(Resource{account}); }, "an end of A's lease");
  a.note("is slow; its lease has run out meanwhile", Tone::pause);
  const auto claim_b = b.take(*source, lane, long_ttl);
  if (!claim_b) throw Unavailable("a lock that expired was not granted");
  const auto base_b = b.read(*claim_b);
  const auto stale = a.write(*claim_a, base_a.value_or(0), add_a);
  const auto late = a.release(*source, lane, *claim_a);
  const bool c_waits = !c.take(*source, lane, long_ttl);
  const auto written = b.write(*claim_b, base_b.value_or(0), add_b);
  const auto released = b.release(*source, lane, *claim_b);
  const bool rest = add(c, *source, add_c) && add(a, *source, add_a);

  const auto balance = balance_of(server);
  TaleEnd end;
  end.facts = {{"token_a", to_string(claim_a->token)},
               {"token_b", to_string(claim_b->token)},
               {"verdict_a", to_string(stale)},
               {"late_release", late == Release::not_held ? "not_held" : "released"},
               {"c_waits", c_waits ? "1" : "0"},
               {"balance", std::to_string(balance)},
               {"expected", std::to_string(expected)}};
  end.is_as_it_must_be = stale == Verdict::stale && late == Release::not_held && c_waits &&
                         written == Verdict::admitted && released == Release::released && rest &&
                         balance == expected;
  end.outcome = fmt::format("A's late write is {}, its release {}, and C waits for B; {}", to_string(stale),
                            late == Release::not_held ? "is refused" : "freed another's lock",
                            balance_sentence(balance, expected));
  return end;
}

}  // namespace

TaleEnd foreign_unlock(Stage& stage, bool guarded) {
  return guarded ? with(stage) : without(stage);
}

}  // namespace fenceguard::redis::demos
