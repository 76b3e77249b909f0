#include "tests/proof/simulation/clients.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fenceguard::proof {

using Ruled = fenceguard::Verdict;

namespace {

constexpr std::int64_t timeout_ms = 150;
constexpr std::int64_t beyond = std::int64_t{1} << 60;

}  // namespace

struct Clients::Client {
  std::int64_t process = 0;
  std::int64_t second_process = 0;  // of the other half of a write to both resources
  std::int64_t sequence = 0;
  bool is_dead = false;
  std::unique_ptr<Fiber> fiber;
};

// What the Runner advances by.
class Clients::ClientGuard : public Guard {
 public:
  ClientGuard(Clients& clients, Client& client) : clients_{clients}, client_{client} {}
  Ruling advance(const Claim& claim) override {
    clients_.yesterday_.push_back(claim);
    client_.sequence = 0;
    const std::size_t resource = claim.resource.name() == clients_.world_.history.resources[0].name ? 0 : 1;
    const Told told = clients_.ask(client_, Kind::advance, resource, claim);
    if (told.answer == Answer::unknown) throw OutcomeUnknown{"the advance"};
    if (told.answer == Answer::unavailable) throw Unavailable{"the advance"};
    if (told.answer == Answer::implausible) throw Implausible{"the advance"};
    return {static_cast<Ruled>(told.answer), told.highest, std::nullopt};
  }

 private:
  Clients& clients_;
  Client& client_;
};

Clients::Clients(World& world, SimulatedSource& source, Door& door, int operations_max)
    : world_{world}, source_{source}, door_{door}, operations_max_{operations_max} {}

Clients::~Clients() = default;

void Clients::start(int count) {
  for (int i = 0; i < count; ++i) {
    clients_.push_back(std::make_unique<Client>());
    Client& client = *clients_.back();
    client.fiber = std::make_unique<Fiber>([this, &client] { live(client); });
    world_.after(world_.random(50), [&client] { client.fiber->resume(); });
  }
  source_.is_caller_dead = [this] {
    return std::ranges::any_of(clients_, [](const auto& client) {
      return client->fiber.get() == Fiber::current() && client->is_dead;
    });
  };
}

bool Clients::are_over() const {
  return std::ranges::all_of(clients_, [](const auto& client) { return client->fiber->is_over(); });
}

bool Clients::is_time_over() const {
  return asked_ >= operations_max_ || world_.now_ms() > 60'000;
}

void Clients::live(Client& client) {
  client.process = ++processes_;
  client.second_process = ++processes_;
  while (!is_time_over()) {
    try {
      world_.random.percent(world_.weather.rogue) ? wander(client) : work(client);
    } catch (const ClientCrash&) {
      ++world_.counts.client_crashes;
      client.is_dead = false;
      client.process = ++processes_;
      client.second_process = ++processes_;
    } catch (const Error&) {
      // The library has repeated nothing, and neither does the client.
    }
    if (!is_time_over()) world_.sleep(world_.random(20));
  }
}

void Clients::work(Client& client) {
  const std::size_t resource = world_.random.percent(75) ? 0 : 1;
  ClientGuard guard{*this, client};
  const RetryPolicy policy{.attempts_max = 3,
                           .ttl = std::chrono::milliseconds{20 + world_.random(60)},
                           .wait = std::chrono::milliseconds{world_.random(60)},
                           .pause = std::chrono::milliseconds{0},
                           .pause_max = std::chrono::milliseconds{0}};
  const auto result =
      Runner{source_, guard, policy}.run(Resource{world_.history.resources[resource].name},
                                         [&](const Lease& lease) { return body(client, lease); });
  world_.counts.runs_done += result.ending == RunResult::Ending::done;
}

// Reads, and writes what it makes of it, several times, paused in between.
Ruled Clients::body(Client& client, const Lease& lease) {
  const Claim& claim = lease.claim();
  const std::size_t resource = claim.resource.name() == world_.history.resources[0].name ? 0 : 1;
  for (int steps = 1 + world_.random(6); steps > 0 && !is_time_over(); --steps) {
    pause(client);
    const int what = world_.random(100);
    Told told;
    if (what < 30) {
      told = ask(client, Kind::read, resource, claim);
    } else if (what < 90) {
      const bool is_numbered = world_.random.percent(40);
      const bool again = is_numbered && client.sequence > 0 && world_.random.percent(25);
      if (is_numbered && !again) ++client.sequence;
      told = ask(client, Kind::write, resource, is_numbered ? claim.with(Sequence{client.sequence}) : claim);
    } else {
      told = write_both(client, claim);
    }
    if (told.answer == Answer::stale || told.answer == Answer::conflict)
      return static_cast<Ruled>(told.answer);
  }
  return Ruled::admitted;
}

// A client that no lock holds back: old claims, plain reads, revokes, floors, absurd numbers.
void Clients::wander(Client& client) {
  pause(client);
  const std::size_t resource = world_.random.percent(75) ? 0 : 1;
  auto& random = world_.random;
  const int what = random(100);
  if (what < world_.weather.floor) {
    const std::int64_t floor = std::max(source_.issued(), door_.highest());
    if (floor == 0) return;
    door_.raise_floor(floor);
    return record_floor(floor);
  }
  if (what < world_.weather.floor + world_.weather.revoke) {
    (void)ask(client, Kind::revoke, resource, std::nullopt);
    return;
  }
  if (what < 25 || yesterday_.empty()) {
    (void)ask(client, Kind::read, resource, std::nullopt);
    return;
  }
  const int back = std::min<int>(static_cast<int>(yesterday_.size()), 1 + random(6));
  Claim claim = yesterday_[yesterday_.size() - static_cast<std::size_t>(back)];
  const bool is_first = claim.resource.name() == world_.history.resources[0].name;
  if (what < 27 && door_.highest() < beyond)
    claim.token = Token{door_.highest() + jump_max + 1 + random(1000)};
  if (what == 27) claim.holder = Holder{"another"};
  const Kind kind = random.percent(25) ? Kind::advance : random.percent(70) ? Kind::write : Kind::read;
  if (kind == Kind::write && random.percent(30)) claim = claim.with(Sequence{1 + random(3)});
  (void)ask(client, kind, is_first ? 0 : 1, claim);
}

// It may die here, or stand still for longer than its lease lives.
void Clients::pause(Client& client) {
  if (world_.is_calm) return;
  if (world_.random.percent(world_.weather.client_crash)) {
    client.is_dead = true;
    throw ClientCrash{};
  }
  const bool is_long = world_.random.percent(world_.weather.pause);
  world_.sleep(world_.random(is_long ? world_.weather.pause_ms : 5));
}

Question Clients::question_of(Client& client, Kind kind, std::size_t resource, std::optional<Claim> claim) {
  (void)client;
  Question question{kind, resource, {}, {}};
  if (claim) question.claims.push_back(*std::move(claim));
  if (kind == Kind::write) question.values.push_back(world_.history.texts.id(fmt::format("v{}", ++values_)));
  return question;
}

Told Clients::ask(Client& client, Kind kind, std::size_t resource, std::optional<Claim> claim) {
  return ask_door(client, question_of(client, kind, resource, std::move(claim))).at(0);
}

// Under the lease of the one and the last claim that is known of the other.
Told Clients::write_both(Client& client, const Claim& claim) {
  Question question = question_of(client, Kind::write, 0, claim);
  const auto other = std::find_if(yesterday_.rbegin(), yesterday_.rend(),
                                  [&](const Claim& known) { return known.resource != claim.resource; });
  if (other != yesterday_.rend()) {
    question.claims.push_back(*other);
    question.values.push_back(world_.history.texts.id(fmt::format("v{}", ++values_)));
  }
  return ask_door(client, question).at(0);
}

Reply Clients::ask_door(Client& client, const Question& question) {
  ++asked_;
  const std::int64_t called = world_.stamp_ns();
  auto reply = world_.await<Reply>(timeout_ms, [&](auto done) { door_.ask(question, std::move(done)); });
  const auto count = std::max<std::size_t>(1, question.claims.size());
  record(client, question, reply.value_or(Reply{}), called);
  if (reply) return *std::move(reply);
  // Its outcome is not known, so the process that asked is over, as far as the history goes.
  client.process = ++processes_;
  client.second_process = ++processes_;
  return Reply(count, Told{Answer::unknown});
}

void Clients::record(Client& client, const Question& question, const Reply& reply, std::int64_t called) {
  const std::int64_t returned = reply.empty() ? never : world_.stamp_ns();
  const auto count_of = std::max<std::size_t>(1, question.claims.size());
  for (std::size_t i = 0; i < count_of; ++i) {
    Operation operation;
    operation.kind = question.kind;
    operation.process = i == 0 ? client.process : client.second_process;
    operation.called = called;
    operation.returned = returned;
    std::size_t resource = question.resource;
    if (!question.claims.empty()) {
      const Claim& claim = question.claims[i];
      resource = claim.resource.name() == world_.history.resources[0].name ? 0 : 1;
      operation.token = claim.token.value();
      operation.holder = world_.history.texts.id(name_of_holder(claim.holder));
      if (question.kind == Kind::write && claim.sequence) operation.sequence = claim.sequence->value();
    }
    if (question.kind == Kind::write) operation.value = question.values[i];
    if (!reply.empty()) {
      operation.answer = reply[i].answer;
      operation.highest = reply[i].highest;
      if (question.kind == Kind::read) operation.value = reply[i].value;
    }
    world_.history.resources[resource].operations.push_back(operation);
    count(question, reply.empty() ? Told{} : reply[i]);
  }
}

// The library draws holders at random, so the history names them in the order in which they came.
std::string Clients::name_of_holder(const Holder& holder) {
  return fmt::format("h{}", holders_.try_emplace(holder.id(), holders_.size() + 1).first->second);
}

void Clients::count(const Question& question, const Told& told) {
  Counts& counts = world_.counts;
  ++counts.operations;
  counts.admitted += told.answer == Answer::admitted;
  counts.refused += told.answer == Answer::stale;
  counts.duplicates += told.answer == Answer::duplicate;
  counts.conflicts += told.answer == Answer::conflict;
  counts.implausible += told.answer == Answer::implausible;
  counts.unknown += told.answer == Answer::unknown;
  if (question.kind != Kind::advance || told.answer != Answer::admitted) return;
  auto& highest = highest_admitted_[question.claims[0].resource.name()];
  const std::int64_t token = question.claims[0].token.value();
  counts.takeovers += highest > 0 && token > highest;
  highest = std::max(highest, token);
}

void Clients::record_floor(std::int64_t floor) {
  for (auto& resource : world_.history.resources) {
    Operation operation;
    operation.kind = Kind::floor;
    operation.answer = Answer::admitted;
    operation.process = ++processes_;
    operation.token = floor;
    operation.called = world_.stamp_ns();
    resource.operations.push_back(operation);
  }
  for (auto& resource : world_.history.resources) resource.operations.back().returned = world_.stamp_ns();
}

}  // namespace fenceguard::proof
