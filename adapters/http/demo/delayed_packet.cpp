#include <fmt/format.h>

#include "adapters/http/demo/network.hpp"
#include "adapters/http/demo/plain_storage.hpp"
#include "adapters/http/demo/scene.hpp"
#include "adapters/http/demo/stories.hpp"
#include "guard/clock.hpp"
#include "guard/error.hpp"

namespace fenceguard::proxy::demos {
namespace {

using Tone = TaleEvent::Tone;
using std::chrono::milliseconds;

constexpr milliseconds ttl{1'000};
constexpr milliseconds ttl_of_b{10'000};
constexpr milliseconds wait{3'000};  // for a lease to end
constexpr milliseconds ask_again{500};
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;

std::string sum_text(std::int64_t base, std::int64_t add) {
  return fmt::format("writes {} + {} = {}", base, add, base + add);
}

Held granted(const std::optional<Held>& held) {
  if (!held) throw Unavailable("the lock was not granted");
  return *held;
}

// A's write comes out of the network, and is seen in the storage.
void let_go(Scene& scene, const std::string& written, bool is_damage) {
  const auto before = scene.balance();
  scene.network().release();
  scene.stage().wait_until([&] { return scene.balance() == written; }, "an arrival of what was held");
  scene.stage().note({.who = "client A",
                      .what = "OUT of the network",
                      .where = "storage",
                      .answer = is_damage ? fmt::format("{} is stored, the {} is gone", written, before)
                                          : fmt::format("{} is stored", written),
                      .tone = is_damage ? Tone::bad : Tone::pause});
}

TaleEnd without(Scene& scene) {
  Actor a{scene, "client A", scene.network().url(), "storage"};
  Actor b{scene, "client B", scene.network().url(), "storage"};
  const auto held_a = granted(a.take(ttl, {}));
  const auto base_a = a.read(std::nullopt);
  scene.network().hold_next();
  const auto written_a = a.write(std::nullopt, base_a + add_a, sum_text(base_a, add_a));
  scene.network().await_held();
  a.note("HELD in the network", Tone::pause);
  const auto held_b = granted(b.take(ttl_of_b, wait));
  const auto base_b = b.read(std::nullopt);
  const auto written_b = b.write(std::nullopt, base_b + add_b, sum_text(base_b, add_b));
  let_go(scene, std::to_string(base_a + add_a), true);
  const auto balance = scene.balance();
  TaleEnd end;
  end.facts = {{"token_a", to_string(held_a.token)},           {"token_b", to_string(held_b.token)},
               {"status_a", std::to_string(written_a.status)}, {"read_by_b", std::to_string(base_b)},
               {"status_b", std::to_string(written_b.status)}, {"balance", balance},
               {"expected", std::to_string(expected)}};
  end.is_as_it_must_be = held_b.token > held_a.token && written_a.status == 0 && base_b == base_a &&
                         written_b.status == 204 && balance == std::to_string(base_a + add_a);
  end.outcome =
      balance == std::to_string(expected)
          ? fmt::format("the account holds {}: nothing is lost", balance)
          : fmt::format("the account holds {}, should be {}: B's update is LOST", balance, expected);
  return end;
}

// B asks until it is let in; the packet comes out after the first refusal.
struct Entry {
  Held held;
  unsigned first_status = 0;
  int refusals = 0;
  milliseconds waited{};
};

Entry enter(Scene& scene, Actor& b, const std::string& in_the_network) {
  auto held = b.take(ttl_of_b, wait);
  const auto first_status = b.status();
  const auto refused_at = BootClock::now();
  let_go(scene, in_the_network, false);
  int refusals = 0;
  const auto is_granted = [&] {
    if (held) return true;
    ++refusals;
    scene.stage().wait(ask_again);
    held = b.ask_again(ttl_of_b, wait);
    return held.has_value();
  };
  scene.stage().wait_until(is_granted, "a grant after the settle time");
  return {*held, first_status, refusals,
          std::chrono::duration_cast<milliseconds>(BootClock::now() - refused_at)};
}

TaleEnd with(Scene& scene) {
  Actor a{scene, "client A", scene.data(), "guard"};
  Actor b{scene, "client B", scene.data(), "guard"};
  const auto held_a = granted(a.take(ttl, {}));
  const auto base_a = a.read(held_a);
  scene.network().hold_next();
  const auto written_a = a.write(held_a, base_a + add_a, sum_text(base_a, add_a));
  scene.network().await_held();
  a.note("HELD in the network", Tone::pause);
  const auto entry = enter(scene, b, std::to_string(base_a + add_a));
  const auto base_b = b.read(entry.held);
  const auto written_b = b.write(entry.held, base_b + add_b, sum_text(base_b, add_b));
  const auto late = a.write(held_a, base_a + add_a, fmt::format("tries its {} again", base_a + add_a));
  const auto balance = scene.balance();
  TaleEnd end;
  end.facts = {{"token_a", to_string(held_a.token)},
               {"token_b", to_string(entry.held.token)},
               {"status_a", std::to_string(written_a.status)},
               {"verdict_a", written_a.verdict},
               {"first_status_b", std::to_string(entry.first_status)},
               {"refusals_b", std::to_string(entry.refusals)},
               {"waited_ms", std::to_string(entry.waited.count())},
               {"read_by_b", std::to_string(base_b)},
               {"verdict_b", written_b.verdict},
               {"late_status_a", std::to_string(late.status)},
               {"late_verdict_a", late.verdict},
               {"balance", balance},
               {"expected", std::to_string(expected)}};
  end.is_as_it_must_be = entry.held.token > held_a.token && written_a.status == 504 &&
                         written_a.verdict == "unknown" && entry.first_status == 503 &&
                         base_b == base_a + add_a && written_b.verdict == "admitted" &&
                         late.verdict == "stale" && balance == std::to_string(expected);
  end.outcome =
      fmt::format("A was told '{}', B waited and read {}; the account holds {}{}", written_a.verdict, base_b,
                  balance, balance == std::to_string(expected) ? ": nothing is lost" : "");
  return end;
}

}  // namespace

TaleEnd delayed_packet(Stage& stage, bool guarded) {
  Scene scene{stage};
  return guarded ? with(scene) : without(scene);
}

void act_delayed_packet(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "storage") return run_plain_storage();
  if (words.size() == 2 && words[0] == "network") return run_network(words[1]);
  throw InvalidInput("an actor of this story is 'storage' or 'network HOST:PORT'");
}

}  // namespace fenceguard::proxy::demos
