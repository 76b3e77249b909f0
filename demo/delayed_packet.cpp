#include <fmt/format.h>

#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/guard_server.hpp"
#include "demo/servers/http_actors.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{1'000};
constexpr milliseconds ttl_of_b{10'000};
constexpr milliseconds lock_wait{3'000};
constexpr milliseconds settle{2'000};
constexpr milliseconds ask_again{500};
constexpr std::int64_t patience_ms = 800;  // of a client that has no guard to tell it more

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

  // A reads, and its write stays in the network.
  Answer hold_write_of(Client& a) {
    a.read();
    relay_->send_line("hold");
    await("ready");
    auto written = a.write(add_a);
    await("held");
    a.note("HELD in the network", Tone::pause);
    return written;
  }

  // A's write comes out of the network, and is seen in the storage.
  void release(Account& balance) {
    constexpr auto written = Account::initial + add_a;
    const auto before = balance.balance();
    relay_->send_line("release");
    await("released");
    harness_.wait_until([&] { return balance.balance() == written; }, "an arrival of what was held");
    const bool is_damage = before != Account::initial;
    auto answer = fmt::format("{} is stored", written);
    if (is_damage) answer += fmt::format(", and the {} there is gone", before);
    harness_.note({.actor = "client A",
                   .what = "OUT of the network",
                   .target = "storage",
                   .answer = answer,
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

Outcome without(Network& network, Fixture& fixture) {
  auto& [balance, a, b] = fixture;
  a.take(ttl);
  const auto written_a = network.hold_write_of(a);
  b.take(ttl_of_b, lock_wait);
  const auto read_by_b = b.read();
  const auto written_b = b.write(add_b);
  network.release(balance);

  const auto end = balance.balance();
  return {.as_expected = b.token() > a.token() && written_a.verdict.empty() &&
                         read_by_b == Account::initial && written_b.status == 204 && end == read_by_b + add_a,
          .sentence = balance_sentence(end, expected, "B's update"),
          .facts = {{"token_a", a.token()},
                    {"token_b", b.token()},
                    {"status_a", written_a.status},
                    {"status_b", written_b.status},
                    {"read_by_b", read_by_b},
                    {"balance", end},
                    {"expected", expected}}};
}

Outcome with(Harness& harness, Network& network, Fixture& fixture) {
  auto& [balance, a, b] = fixture;
  a.take(ttl);
  const auto written_a = network.hold_write_of(a);
  const bool is_let_in = b.try_take(ttl_of_b, lock_wait);
  const auto first_status = b.status();
  const auto refused_at = harness.now();
  network.release(balance);
  const int refusals = is_let_in ? 0 : 1 + b.take_when_free(ttl_of_b, ask_again, lock_wait);
  const auto waited = std::chrono::duration_cast<milliseconds>(harness.now() - refused_at);
  const auto read_by_b = b.read();
  const auto written_b = b.write(add_b);
  const auto late = a.write(add_a);

  const auto end = balance.balance();
  return {.as_expected = b.token() > a.token() && written_a.status == 504 && written_a.verdict == "unknown" &&
                         first_status == 503 && read_by_b == Account::initial + add_a &&
                         written_b.is_admitted() && late.verdict == "stale" && end == expected,
          .sentence = fmt::format("A was told '{}', B waited and read {}; {}", written_a.verdict, read_by_b,
                                  balance_sentence(end, expected)),
          .facts = {{"token_a", a.token()},
                    {"token_b", b.token()},
                    {"status_a", written_a.status},
                    {"verdict_a", written_a.verdict},
                    {"first_status_b", first_status},
                    {"refusals_b", refusals},
                    {"waited_ms", waited.count()},
                    {"read_by_b", read_by_b},
                    {"verdict_b", written_b.verdict},
                    {"late_status_a", late.status},
                    {"late_verdict_a", late.verdict},
                    {"balance", end},
                    {"expected", expected}}};
}

Outcome run(Harness& harness, bool guarded) {
  Network network{harness};
  const GuardServer guard{
      harness,
      {.storage = network.url(),
       .state = fmt::format("sqlite:{}/state.db", harness.folder()),
       .initialise = true,
       .arguments = {"--settle", fmt::format("{}ms", settle.count()), "--upstream-timeout", "500ms"}}};
  ClientOptions options{.storage = network.storage(),
                        .guard = guarded ? guard.data() : network.url(),
                        .guarded = guarded,
                        .control = guard.control(),
                        .lock_lane = "guard's locks"};
  if (!guarded) options.patience_ms = patience_ms;
  Fixture fixture{harness, options};
  return guarded ? with(harness, network, fixture) : without(network, fixture);
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
