#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/guard_server.hpp"
#include "demo/servers/http_actors.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{1'000};
constexpr milliseconds ttl_of_b{60'000};
constexpr milliseconds beyond_the_lease{100};
constexpr milliseconds lock_wait{8'000};
constexpr std::int64_t balance_of_b = Account::initial + add_b;

// A fence method of this run: it ends the process whose number is in a file.
class PowerSwitch {
 public:
  explicit PowerSwitch(const Harness& harness)
      : pid_file_{harness.folder() + "/pid"}, path_{harness.folder() + "/power-switch"} {
    std::ofstream script{path_};
    script << "#!/bin/sh\nread pid < " << pid_file_ << " && kill -9 $pid\n";
    script.close();
    if (!script) throw Unavailable(fmt::format("cannot write {}", path_));
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }

  void be_for(const Client& client) { std::ofstream{pid_file_} << client.pid() << '\n'; }
  [[nodiscard]] std::vector<std::string> arguments() const {
    return {"--fence-method", "command:" + path_, "--fence-on-failure", "wait"};
  }

 private:
  const std::string pid_file_;
  const std::string path_;
};

// A is stopped in the middle of its work, and B takes over; what B read.
std::int64_t overtake(Client& a, Client& b, const std::function<void()>& once_b_has_the_lock) {
  a.take(ttl);
  a.read();
  a.pause();
  a.begin_write(add_a);
  b.take(ttl_of_b, lock_wait);
  once_b_has_the_lock();
  const auto read = b.read();
  (void)b.write(add_b);
  return read;
}

Outcome refused_alone(Fixture& fixture) {
  auto& [balance, a, b] = fixture;
  const auto read_by_b = overtake(a, b, [] {});
  a.stay_paused(ttl + beyond_the_lease);
  (void)a.resume();
  const auto late = a.finish_write();
  const bool lives = !a.is_over();
  const auto end = balance.balance();
  return {.as_expected = lives && late.status == 412 && late.verdict == "stale" && end == balance_of_b,
          .sentence = fmt::format("A goes on, and its write is refused as {}; the account holds {}",
                                  late.verdict, end),
          .facts = {{"token_a", a.token()},
                    {"token_b", b.token()},
                    {"read_by_b", read_by_b},
                    {"late_status_a", late.status},
                    {"late_verdict_a", late.verdict},
                    {"a_lives", lives},
                    {"balance", end}}};
}

Outcome cut_off_first(Harness& harness, PowerSwitch& power, Fixture& fixture) {
  auto& [balance, a, b] = fixture;
  power.be_for(a);
  bool lives = true;
  const auto read_by_b = overtake(a, b, [&a = a, &lives, &harness] {
    harness.wait_until([&] { return a.is_over(); }, "the end of A");
    lives = false;
    a.note("SHUT OUT by the fence method: it does not go on", Tone::good);
  });
  const auto end = balance.balance();
  return {.as_expected = end == balance_of_b && b.token() > a.token(),
          .sentence = fmt::format(
              "A is gone before B goes on, nothing is left to be refused; the account holds {}", end),
          .facts = {{"token_a", a.token()},
                    {"token_b", b.token()},
                    {"read_by_b", read_by_b},
                    {"a_lives", lives},
                    {"balance", end}}};
}

Outcome run(Harness& harness, bool is_cut_off) {
  PowerSwitch power{harness};
  const auto storage = harness.start({.arguments = {"demo-actor", "cut-off", "storage"}});
  const auto url = "http://" + storage->receive_line();
  const GuardServer guard{harness,
                          {.storage = url,
                           .state = fmt::format("sqlite:{}/state.db", harness.folder()),
                           .initialise = true,
                           .arguments = is_cut_off ? power.arguments() : std::vector<std::string>{}}};
  Fixture fixture{
      harness,
      {.storage = url, .guard = guard.data(), .control = guard.control(), .lock_lane = "guard's locks"}};
  return is_cut_off ? cut_off_first(harness, power, fixture) : refused_alone(fixture);
}

void act(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "storage") return run_plain_storage();
  throw InvalidInput("an actor of this scenario is 'storage'");
}

}  // namespace

Scenario cut_off() {
  return {
      .name = "cut-off",
      .summary = "a stopped client is refused, and once more shut out before the next one goes on",
      .opening =
          "Clients A and B share an account that holds 100, in a plain HTTP storage behind the guard. A is "
          "stopped in the middle of its work until its lease has run out, and B takes over. First the "
          "guard alone keeps A's late write out. Then a fence method, which ends A's process as a power "
          "switch would end its machine, is run before B is let in.",
      .lanes = {"client A", "guard's locks", "client B", "storage"},
      .run = run,
      .act = act,
      .way_without = "refused alone",
      .way_with = "cut off first",
      .guard_line = Scenario::GuardLine::both_runs};
}

}  // namespace fenceguard::demo
