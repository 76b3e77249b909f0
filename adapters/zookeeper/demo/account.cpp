#include "adapters/zookeeper/demo/account.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "adapters/zookeeper/fence_calls.hpp"
#include "adapters/zookeeper/guard.hpp"
#include "adapters/zookeeper/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/url.hpp"

namespace fenceguard::zookeeper::demos {
namespace {

constexpr const char* line = "/locks/accounts/42";
constexpr int attempts_max = 20;
constexpr std::chrono::milliseconds pause_between{100};
constexpr std::chrono::milliseconds long_timeout{30'000};

std::int64_t number_of(const Answer& answer) {
  const auto number = parse_decimal(answer.data);
  if (answer.code != Code::ok || !number) throw Unavailable("the account holds no balance");
  return *number;
}

// What a client does that believes in its lock: it tries until there is an answer.
template <class Attempt>
auto persist(const Attempt& attempt) {
  for (int i = 1;; ++i) {
    try {
      return attempt();
    } catch (const Error&) {
      if (i == attempts_max) throw;
    }
    std::this_thread::sleep_for(pause_between);
  }
}

class PlainClient : public AccountClient {
 public:
  PlainClient(Address address, std::string who, std::chrono::milliseconds session_timeout)
      : address_{std::move(address)},
        who_{std::move(who)},
        lock_session_{std::make_shared<Session>(address_, session_timeout)},
        session_{lock_session_} {
    lock_session_->wait_until_connected();
  }

  // https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks
  std::optional<std::string> take() override {
    auto& session = *lock_session_;
    if (name_.empty()) {
      session.make_path(line);
      const auto made = session.create(std::string{line} + "/lock-", who_, Mode::ephemeral_sequential);
      name_ = made.path.substr(made.path.rfind('/') + 1);
    }
    const auto names = session.get_children(line).children;
    if (std::ranges::min(names) != name_) return std::nullopt;
    return name_;
  }

  bool give_back() override {
    return lock_session_->remove(std::string{line} + '/' + std::exchange(name_, {})).code == Code::ok;
  }

  std::optional<std::int64_t> read() override { return number_of(session_->get(balance_path)); }

  Written write(std::int64_t balance) override {
    return persist([&] {
      if (session_->state() == Session::State::expired)
        session_ = std::make_shared<Session>(address_, long_timeout);
      session_->wait_until_connected();
      auto before = session_->begin_get(balance_path);
      auto after = session_->begin_set(balance_path, std::to_string(balance));
      const auto found = before.get();
      // Nobody has come between the two, so that what is told of the value before is true.
      if (after.get().stat.version != found.stat.version + 1) throw Unavailable("somebody else writes");
      return Written{.before = number_of(found)};
    });
  }

  bool knows_of_loss() override { return lock_session_->state() == Session::State::expired; }

 private:
  const Address address_;
  const std::string who_;
  const std::shared_ptr<Session> lock_session_;
  std::shared_ptr<Session> session_;  // for the data: the same, until that one is over
  std::string name_;                  // of its node
};

class FencedClient : public AccountClient {
 public:
  FencedClient(const std::string& url, std::string who, std::chrono::milliseconds session_timeout)
      : who_{std::move(who)},
        ttl_{session_timeout},
        source_{open_source(Url::parse(fmt::format("{}?session_timeout={}ms", url, ttl_.count())))},
        client_{url},
        guard_{client_} {}

  std::optional<std::string> take() override {
    lease_ = source_->acquire(Resource{account}, {.ttl = ttl_, .holder = Holder{who_}});
    if (!lease_) return std::nullopt;
    return to_string(lease_->claim().token);
  }

  bool give_back() override { return lease_->release() == Release::released; }

  std::optional<std::int64_t> read() override {
    const auto read = persist([&] { return guard_.read(lease_->claim(), balance_path); });
    if (!read.answer) return std::nullopt;
    return number_of(*read.answer);
  }

  Written write(std::int64_t balance) override {
    const auto written =
        persist([&] { return guard_.write(lease_->claim(), {set(balance_path, std::to_string(balance))}); });
    if (written.ruling.verdict == Verdict::admitted && !written.took_effect())
      throw Unavailable("the balance is not there");
    return {.verdict = written.ruling.verdict, .highest = written.ruling.highest};
  }

  bool knows_of_loss() override { return lease_->lost().stop_requested(); }

 private:
  const std::string who_;
  const std::chrono::milliseconds ttl_;
  const std::unique_ptr<TokenSource> source_;
  Client client_;
  Guard guard_;
  std::optional<Lease> lease_;
};

}  // namespace

void open_account(const Server& server, std::int64_t balance) {
  Session session{server.address(), long_timeout};
  session.wait_until_connected();
  session.make_path(balance_path);
  (void)session.set(balance_path, std::to_string(balance));
}

std::int64_t balance_of(const Server& server) {
  Session session{server.address(), long_timeout};
  session.wait_until_connected();
  return number_of(session.get(balance_path));
}

void initialise_fences(const Server& server) {
  const auto source = open_source(Url::parse(server.url()));
  Client client{server.url()};
  (void)init(client, source->draw().value());
}

std::string balance_sentence(std::int64_t balance, std::int64_t expected) {
  if (balance == expected) return fmt::format("the account holds {}: nothing is lost", balance);
  return fmt::format("the account holds {}, should be {}: an update is LOST", balance, expected);
}

std::unique_ptr<AccountClient> plain_client(const std::string& url, const std::string& who,
                                            std::chrono::milliseconds session_timeout) {
  return std::make_unique<PlainClient>(address_of(Url::parse(url)), who, session_timeout);
}

std::unique_ptr<AccountClient> fenced_client(const std::string& url, const std::string& who,
                                             std::chrono::milliseconds session_timeout) {
  return std::make_unique<FencedClient>(url, who, session_timeout);
}

}  // namespace fenceguard::zookeeper::demos
