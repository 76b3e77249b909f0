#include <fmt/format.h>

#include "guard/error.hpp"
#include "server/demo/kit/account.hpp"
#include "server/demo/scenarios.hpp"
#include "server/demo/servers/guard_server.hpp"
#include "server/demo/servers/network.hpp"
#include "server/demo/servers/plain_storage.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{1'000};
constexpr milliseconds ttl_of_b{10'000};
constexpr milliseconds lock_wait{3'000};
constexpr milliseconds settle{2'000};
constexpr milliseconds ask_again{500};
constexpr std::int64_t patience_ms = 800;  // of a client that has no guard to tell it more
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;

// The storage, and the network in front of it, which can hold a request.
class Network {
 public:
  explicit Network(Harness& harness)
      : harness_{harness},
        storage_{harness.start({.arguments = {"demo-actor", "delayed-packet", "storage"}})},
        storage_address_{storage_->receive_line()},
        relay_{harness.start({.arguments = {"demo-actor", "delayed-packet", "network", storage_address_}})},
        url_{"http://" + relay_->receive_line()} {}

  [[nodiscard]] std::string storage() const { return "http://" + storage_address_; }
  [[nodiscard]] const std::string& url() const noexcept { return url_; }

  void hold_next() {
    relay_->send_line("hold");
    await("ready");
  }
  void await_held() { await("held"); }

  // A's write comes out of the network, and is seen in the storage.
  void release(Account& balance, std::int64_t written) {
    const auto before = balance.balance();
    relay_->send_line("release");
    await("released");
    harness_.wait_until([&] { return balance.balance() == written; }, "an arrival of what was held");
    const bool is_damage = before != Account::initial;
    harness_.note({.actor = "client A",
                   .what = "OUT of the network",
                   .target = "storage",
                   .answer = is_damage
                                 ? fmt::format("{} is stored, and the {} there is gone", written, before)
                                 : fmt::format("{} is stored", written),
                   .tone = is_damage ? Tone::bad : Tone::pause,
                   .stored = written});
  }

 private:
  void await(const std::string& word) {
    if (const auto line = relay_->receive_line(); line != word)
      throw Unavailable("the network says: " + line);
  }

  Harness& harness_;
  std::unique_ptr<Process> storage_;
  std::string storage_address_;
  std::unique_ptr<Process> relay_;
  std::string url_;
};

Outcome without(Network& network, Account& balance, Client& a, Client& b) {
  a.take(ttl);
  const auto base = a.read();
  network.hold_next();
  const auto written_a = a.write(add_a);
  network.await_held();
  a.note("HELD in the network", Tone::pause);
  b.take(ttl_of_b, lock_wait);
  const auto read_by_b = b.read();
  const auto written_b = b.write(add_b);
  network.release(balance, base + add_a);

  const auto end = balance.balance();
  Outcome outcome{.sentence = balance_sentence(end, expected, "B's update")};
  outcome.facts = {{"token_a", a.token_text()},
                   {"token_b", b.token_text()},
                   {"status_a", std::to_string(written_a.status)},
                   {"status_b", std::to_string(written_b.status)},
                   {"read_by_b", std::to_string(read_by_b)},
                   {"balance", std::to_string(end)},
                   {"expected", std::to_string(expected)}};
  outcome.as_expected = b.token() > a.token() && written_a.verdict.empty() && read_by_b == base &&
                        written_b.status == 204 && end == base + add_a;
  return outcome;
}

Outcome with(Harness& harness, Network& network, Account& balance, Client& a, Client& b) {
  a.take(ttl);
  const auto base = a.read();
  network.hold_next();
  const auto written_a = a.write(add_a);
  network.await_held();
  a.note("HELD in the network", Tone::pause);
  const bool is_let_in = b.try_take(ttl_of_b, lock_wait);
  const auto first_status = b.status();
  const auto refused_at = harness.now();
  network.release(balance, base + add_a);
  const int refusals = is_let_in ? 0 : 1 + b.take_when_free(ttl_of_b, ask_again, lock_wait);
  const auto waited = std::chrono::duration_cast<milliseconds>(harness.now() - refused_at);
  const auto read_by_b = b.read();
  const auto written_b = b.write(add_b);
  const auto late = a.write(add_a);

  const auto end = balance.balance();
  Outcome outcome{.sentence = fmt::format("A was told '{}', B waited and read {}; {}", written_a.verdict,
                                          read_by_b, balance_sentence(end, expected))};
  outcome.facts = {{"token_a", a.token_text()},
                   {"token_b", b.token_text()},
                   {"status_a", std::to_string(written_a.status)},
                   {"verdict_a", written_a.verdict},
                   {"first_status_b", std::to_string(first_status)},
                   {"refusals_b", std::to_string(refusals)},
                   {"waited_ms", std::to_string(waited.count())},
                   {"read_by_b", std::to_string(read_by_b)},
                   {"verdict_b", written_b.verdict},
                   {"late_status_a", std::to_string(late.status)},
                   {"late_verdict_a", late.verdict},
                   {"balance", std::to_string(end)},
                   {"expected", std::to_string(expected)}};
  outcome.as_expected = b.token() > a.token() && written_a.status == 504 && written_a.verdict == "unknown" &&
                        first_status == 503 && read_by_b == base + add_a && written_b.is_admitted() &&
                        late.verdict == "stale" && end == expected;
  return outcome;
}

Outcome run(Harness& harness, bool guarded) {
  Network network{harness};
  Account balance{harness, network.storage(), ""};
  GuardServer guard{
      harness,
      {.storage = network.url(),
       .state = fmt::format("sqlite:{}/state.db", harness.folder()),
       .initialise = true,
       .arguments = {"--settle", fmt::format("{}ms", settle.count()), "--upstream-timeout", "500ms"}}};
  ClientOptions options{.guard = guarded ? guard.data() : network.url(),
                        .guarded = guarded,
                        .control = guard.control(),
                        .lock_lane = "guard's locks"};
  if (!guarded) options.patience_ms = patience_ms;
  Client a{harness, "client A", options};
  Client b{harness, "client B", options};
  harness.restart_clock();
  return guarded ? with(harness, network, balance, a, b) : without(network, balance, a, b);
}

void act(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "storage") return run_plain_storage();
  if (words.size() == 2 && words[0] == "network") return run_network(words[1]);
  throw InvalidInput("an actor of this scenario is 'storage' or 'network HOST:PORT'");
}

}  // namespace

Scenario delayed_packet() {
  return {
      .name = "delayed-packet",
      .summary = "a write is held in the network (HTTP), and lands after the next holder's",
      .opening =
          "Clients A and B share an account that holds 100; A adds 50, B adds 30. The account is in a plain "
          "HTTP storage, which knows nothing of tokens. A's write is held in the network for longer than "
          "its lease lasts. Both times the lock is the guard's; first the clients write round the guard, "
          "then through it.",
      .lanes = {"client A", "guard's locks", "client B", "storage"},
      .run = run,
      .act = act};
}

}  // namespace fenceguard::demo
