#include <fmt/format.h>

#include "adapters/zookeeper/guard.hpp"
#include "adapters/zookeeper/session.hpp"
#include "demo/kit/account.hpp"
#include "demo/kit/client_process.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/zookeeper.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;
using zookeeper::Code;
using zookeeper::Session;

constexpr milliseconds timeout_of_a{3'000};
constexpr milliseconds timeout_of_b{30'000};
constexpr milliseconds ask_again{100};
constexpr const char* lane = "ZooKeeper";
constexpr const char* queue = "/locks/accounts/42";

// What a client without tokens shares between its lock and its account: one session.
using SharedSession = std::shared_ptr<Session>;

// https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks
class RecipeLock : public Lock {
 public:
  explicit RecipeLock(SharedSession session) : session_{std::move(session)} {}

  Reply take(const Reply& /*request*/) override {
    if (name_.empty()) {
      session_->make_path(queue);
      const auto made =
          session_->create(fmt::format("{}/lock-", queue), "", zookeeper::Mode::ephemeral_sequential);
      name_ = made.path.substr(made.path.rfind('/') + 1);
    }
    const auto names = session_->get_children(queue).children;
    if (std::ranges::min(names) != name_) return {};
    return {{"node", name_}};
  }

  bool release(const std::optional<Claim>& /*claim*/, Reply& /*reply*/) override {
    return session_->remove(std::string{queue} + '/' + std::exchange(name_, {})).code == Code::ok;
  }

  bool is_lost() override { return session_->state() == Session::State::expired; }

 private:
  SharedSession session_;
  std::string name_;  // of its node
};

// In the session of the lock until that is over, and then in a new one, as the retries of kazoo and Curator.
class SessionAccount : public AccountAccess {
 public:
  SessionAccount(zookeeper::Address address, SharedSession session)
      : address_{std::move(address)},
        session_{std::move(session)},
        path_{fmt::format("{}/demo/{}", address_.root, zookeeper::segment_of(Resource{account}))} {}

  Reply read(const std::optional<Claim>& /*claim*/) override {
    return {{"verdict", "admitted"}, {"balance", balance_in(session_->get(path_).data)}};
  }

  Reply write(const std::optional<Claim>& /*claim*/, std::int64_t balance) override {
    if (session_->state() == Session::State::expired)
      session_ = std::make_shared<Session>(address_, timeout_of_b);
    session_->wait_until_connected();
    if (session_->set(path_, std::to_string(balance)).code != Code::ok)
      throw Unavailable("nothing was written");
    return {{"verdict", "admitted"}};
  }

 private:
  const zookeeper::Address address_;
  SharedSession session_;
  const std::string path_;
};

// The process of a client that keeps to the lock recipe alone. words: the time-out of its session in ms.
void act(const std::vector<std::string>& words) {
  const milliseconds timeout{parse_decimal(words.at(0)).value()};
  run_client([&](const Reply& options) {
    auto address = zookeeper::address_of(Url::parse(options.at("storage").as_string().c_str()));
    auto session = std::make_shared<Session>(address, timeout);
    session->wait_until_connected();
    return Tools{std::make_unique<RecipeLock>(session), std::make_unique<SessionAccount>(address, session)};
  });
}

ClientOptions options_for(const ZooKeeperServer& server, milliseconds timeout, bool guarded) {
  ClientOptions options{
      .storage = server.url(), .place = "demo", .guarded = guarded, .lock_lane = lane, .storage_lane = lane};
  options.source = fmt::format("{}?session_timeout={}ms", server.url(), timeout.count());
  options.repeats = true;
  if (guarded) return options;
  options.program = "session-expiry";
  options.word = std::to_string(timeout.count());
  return options;
}

std::string grant_of(const Client& client, bool guarded) {
  return guarded ? client.token_text() : client.node();
}

Outcome run(Harness& harness, bool guarded) {
  ZooKeeperServer server{harness};
  initialise_fences(harness, server.url());
  Fixture fixture{harness, options_for(server, timeout_of_a, guarded),
                  options_for(server, timeout_of_b, guarded)};
  auto& [balance, a, b] = fixture;

  a.take(timeout_of_a);
  const auto grant_a = grant_of(a, guarded);
  a.read();
  a.pause();
  const auto paused_at = harness.now();
  a.begin_write(add_a);  // so that writing is the first thing it does when it wakes
  const bool b_waited = !b.try_take(timeout_of_b);
  if (b_waited) b.take_when_free(timeout_of_b, ask_again);
  harness.note(lane,
               fmt::format("A's session, of {} ms, had expired: its node was gone {} after the pause",
                           timeout_of_a.count(), milliseconds_text(harness.now() - paused_at)),
               Tone::pause);
  const auto grant_b = grant_of(b, guarded);
  const bool is_higher = guarded ? b.token() > a.token() : grant_b > grant_a;
  b.read();
  const auto written_b = b.write(add_b);
  a.resume();
  const auto late = a.finish_write();
  const bool is_lost = a.learns_of_loss();
  const std::string session = !is_lost ? "alive" : guarded ? "lost" : "expired";
  a.note(guarded ? "learns from its session that its lease is " + session
                 : "learns that its session has " + session + "; it wrote in a new one");
  bool goes_on = false;
  if (guarded) {
    goes_on = b.give_back();
    a.take_when_free(timeout_of_a, ask_again);
    goes_on = a.add(add_a) && goes_on;
  }

  const auto end = balance.balance();
  const bool is_shown = guarded ? late.verdict == "stale" && goes_on && end == expected : end != expected;
  const auto sentence =
      guarded ? fmt::format("A's write is {}, its lease is {}, and it starts again: ", late.verdict, session)
              : fmt::format("A's session has {}, and A wrote all the same; ", session);
  return {.as_expected = b_waited && written_b.is_admitted() && is_higher && is_lost && is_shown,
          .sentence = sentence + balance_sentence(end, expected),
          .facts = {{"session_a", session},
                    {"b_waited", b_waited},
                    {"verdict_a", late.verdict},
                    {guarded ? "token_a" : "node_a", grant_a},
                    {guarded ? "token_b" : "node_b", grant_b},
                    {"balance", end},
                    {"expected", expected}}};
}

}  // namespace

Scenario session_expiry() {
  return {
      .name = "session-expiry",
      .summary = "a client is stopped past its session (ZooKeeper), and wakes up believing",
      .opening =
          "Clients A and B share an account that holds 100; A adds 50, B adds 30. Lock and account are "
          "in a real ZooKeeper server: the lock is the first of the ephemeral sequential nodes, and with the "
          "guard the czxid of that node is the token. A is stopped until its session has expired.",
      .lanes = {"client A", "client B", lane},
      .run = run,
      .act = act};
}

}  // namespace fenceguard::demo
