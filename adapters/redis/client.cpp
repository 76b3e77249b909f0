#include "adapters/redis/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "adapters/redis/wire/errors.hpp"
#include "guard/source/url.hpp"
#include "guard/support/read_only_call.hpp"

namespace fenceguard::redis {
namespace {

constexpr int attempts_max = 8;
constexpr std::size_t lost_max = 64;
constexpr std::chrono::milliseconds first_pause{2};  // doubled with each attempt

// A reply by which a server says that it ran nothing, and which is not the end of it.
bool is_not_run(const Reply& reply, bool is_cluster) {
  if (!reply.is_error()) return false;
  if (is_unknown_script(reply)) return true;
  return is_cluster && (is_try_again(reply) || reply.text.starts_with("MOVED ") ||  //
                        reply.text.starts_with("ASK "));
}

// A replica that takes writes would judge by an old fence, and forget what it admitted.
void require_master(const Connection& connection, const Endpoint& server) {
  if (!connection.server().is_cluster && connection.server().is_replica)
    throw Unavailable(fmt::format("{} is a replica; connect to the master", to_string(server)));
}

}  // namespace

std::vector<std::string_view> command_of(const Run& run, bool by_hash, const std::string& key_count) {
  std::vector<std::string_view> words;
  words.reserve(3 + run.keys.size() + run.arguments.size());
  words.push_back(by_hash ? "EVALSHA" : "EVAL");
  words.push_back(by_hash ? run.script.hash() : run.script.text());
  words.push_back(key_count);
  words.insert(words.end(), run.keys.begin(), run.keys.end());
  words.insert(words.end(), run.arguments.begin(), run.arguments.end());
  return words;
}

Client::Client(Address address, std::shared_ptr<CommandTable> commands)
    : address_{std::move(address)},
      keys_{address_.prefix},
      commands_{commands ? std::move(commands) : std::make_shared<CommandTable>()} {
  open();
}

Client::Client(std::string_view url) : Client{Url::parse(url)} {}
Client::Client(const Url& url) : Client{address_of(url)} {}

void Client::open() {
  std::string reasons;
  for (const auto& seed : address_.endpoints) {
    try {
      Connection connection{address_.at(seed)};
      require_master(connection, seed);
      is_cluster_ = connection.server().is_cluster;
      if (!is_cluster_ && address_.endpoints.size() > 1) {
        throw InvalidInput(
            fmt::format("{} names several servers, which are taken for the seeds of one Redis Cluster, but "
                        "{} is a server "
                        "by itself; name that one server alone",
                        address_.shown, to_string(seed)));
      }
      if (is_cluster_) learn_slots(seed, connection);
      links_.insert_or_assign(seed, Link{std::move(connection), {}});
      return;
    } catch (const PasswordRequired&) {
      throw;  // the others want one too
    } catch (const Unavailable& error) {
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", error.what());
    }
  }
  throw Unavailable(reasons);
}

void Client::learn_slots(const Endpoint& from, Connection& connection) {
  const std::string_view words[] = {"CLUSTER", "SLOTS"};
  const auto reply = read_only_call([&] { return connection.call(words); });
  if (reply.is_error())
    throw Unavailable(fmt::format("{} does not tell its cluster's slots: {}", to_string(from), reply.text));
  slots_.learn(reply, from);
}

// From the first server that answers: those that are known to have slots, then the seeds.
void Client::learn_slots_again() {
  auto candidates = slots_.servers();
  candidates.insert(candidates.end(), address_.endpoints.begin(), address_.endpoints.end());
  std::string reasons;
  for (const auto& server : candidates) {
    try {
      return learn_slots(server, link(server).connection);
    } catch (const Unavailable& error) {
      reasons = error.what();
    }
  }
  throw Unavailable("no server of the cluster answers; the last: " + reasons);
}

Client::Link& Client::link(const Endpoint& server) {
  const auto found = links_.find(server);
  if (found != links_.end()) {
    if (found->second.connection.is_usable()) return found->second;
    note_lost(server, found->second.connection);
    links_.erase(found);
  }
  Connection connection{address_.at(server)};
  require_master(connection, server);
  if (connection.server().is_cluster != is_cluster_)
    throw Unavailable(fmt::format("{} is another kind of server than before", to_string(server)));
  return links_.emplace(server, Link{std::move(connection), {}}).first->second;
}

// Of a client that nobody asks to settle, as many as need not be counted.
void Client::note_lost(const Endpoint& server, const Connection& connection) {
  if (!connection.lost_at()) return;
  if (lost_.size() == lost_max) lost_.erase(lost_.begin());
  lost_.push_back({server, connection.server(), *connection.lost_at()});
}

std::string Client::end_at_server(const Lost& lost) {
  if (lost.connection.id.empty()) return "the server did not tell its number (CLIENT INFO)";
  if (lost.connection.run_id.empty()) return "the server did not tell which process it is (INFO server)";
  // By number and address: after a restart of the server another connection may have the number.
  const std::string_view words[] = {"CLIENT",           "KILL", "ID",
                                    lost.connection.id, "ADDR", lost.connection.address};
  try {
    for (;;) {
      auto& connection = link(lost.server).connection;
      // A name may lead to another server by now, or the server have been started anew: what it does not have
      // may still be had by the one that was lost.
      if (connection.server().run_id != lost.connection.run_id) {
        links_.erase(lost.server);  // the next may lead back
        return "another server answers at that address now, or the same was started anew";
      }
      const auto reply = connection.call(words);
      if (reply.is_error()) return reply.text;
      if (reply.integer == 0) return {};
    }
  } catch (const Error& error) {
    return error.what();
  }
}

void Client::settle_lost(std::chrono::milliseconds settle) {
  for (auto found = links_.begin(); found != links_.end();) {
    note_lost(found->first, found->second.connection);
    found = found->second.connection.lost_at() ? links_.erase(found) : std::next(found);
  }
  while (!lost_.empty()) {
    const auto lost = lost_.back();
    const auto left =
        std::chrono::ceil<std::chrono::seconds>(lost.at + settle - std::chrono::steady_clock::now());
    if (const auto why = left.count() > 0 ? end_at_server(lost) : std::string{}; !why.empty())
      throw Unavailable(
          fmt::format("an earlier call may still take effect, and its connection to {} could not be ended "
                      "there: {}; nothing was written, try again, at the latest in {} s",
                      to_string(lost.server), why, left.count()));
    std::erase_if(lost_, [&](const Lost& one) { return one.at == lost.at && one.server == lost.server; });
  }
}

Endpoint Client::server_of(std::string_view key) {
  if (!is_cluster_) return address_.endpoints.front();
  const auto slot = slot_of(key);
  if (slots_.find(slot) == nullptr) learn_slots_again();
  const auto* server = slots_.find(slot);
  if (server == nullptr) throw Unavailable(fmt::format("no server of the cluster has the slot {}", slot));
  return *server;
}

std::vector<Endpoint> Client::servers() const {
  return is_cluster_ ? slots_.servers() : std::vector{address_.endpoints.front()};
}

Connection& Client::connection(std::string_view key) {
  const auto server = server_of(key);
  try {
    return link(server).connection;
  } catch (const Unavailable&) {
    if (!is_cluster_) throw;
  }
  // It may have died, and another have taken its slots.
  learn_slots_again();
  return link(server_of(key)).connection;
}

// Sends until a server has run it: send(link, is_asked) to the server of key, and then to the one that it
// names.
template <class Send>
Reply Client::route(std::string_view key, const Send& send) {
  auto pause = first_pause;
  std::optional<Endpoint> asked;
  for (int attempt = 1;; ++attempt) {
    const auto server = asked ? *asked : server_of(key);
    Reply reply;
    try {
      reply = send(link(server), asked.has_value());
    } catch (const Unavailable&) {
      if (!is_cluster_ || attempt == attempts_max) throw;
      asked.reset();
      std::this_thread::sleep_for(pause);
      pause *= 2;
      learn_slots_again();
      continue;
    }
    if (!is_cluster_ || attempt == attempts_max) return reply;
    asked.reset();
    if (const auto redirection = redirection_of(reply, server)) {
      if (redirection->kind == Redirection::Kind::ask) {
        asked = redirection->to;
      } else {
        // The others may have moved with it. What this server was told comes first, though: gossip is slow.
        learn_slots_again();
        slots_.set(redirection->slot, redirection->to);
      }
      if (attempt < 3) continue;  // later it is a server that does not know yet
    } else if (!is_try_again(reply)) {
      return reply;
    }
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

Reply Client::call(std::string_view key, Arguments arguments) {
  return route(key, [&](Link& link, bool is_asked) {
    if (!is_asked) return link.connection.call(arguments);
    const std::vector<std::vector<std::string_view>> commands{{"ASKING"},
                                                              {arguments.begin(), arguments.end()}};
    return std::move(link.connection.call_all(commands).back());
  });
}

void Client::require_one_slot(const Run& run) const {
  if (!is_cluster_) return;
  const auto slot = slot_of(run.keys.front());
  for (const auto key : run.keys) {
    if (slot_of(key) == slot) continue;
    throw InvalidInput(fmt::format(
        "the keys '{}' and '{}' lie in different slots of the Redis Cluster: give them one hash tag",
        run.keys.front(), key));
  }
}

Reply Client::run_at(Link& link, const Run& run, bool is_asked) {
  const auto key_count = std::to_string(run.keys.size());
  for (const bool by_hash : {true, false}) {
    auto words = command_of(run, by_hash, key_count);
    if (is_asked && run.asked != Run::none) words.at(3 + run.keys.size() + run.asked) = run.asked_text;
    // One ASKING serves one command.
    auto reply = is_asked ? std::move(link.connection
                                          .call_all(std::vector<std::vector<std::string_view>>{
                                              {"ASKING"}, std::move(words)})
                                          .back())
                          : link.connection.call(words);
    if (!by_hash || !is_unknown_script(reply)) return reply;
  }
  return {};
}

Reply Client::run(const Run& run) {
  require_one_slot(run);
  return route(run.keys.front(), [&](Link& link, bool is_asked) { return run_at(link, run, is_asked); });
}

// What goes to one server at once.
struct Client::Batch {
  Endpoint server;
  std::vector<std::size_t> places;  // of the runs
  Link* link = nullptr;
  std::optional<Fault> fault;  // of those without a reply
};

void Client::send(Batch& batch, std::span<const Run> runs) {
  try {
    batch.link = &link(batch.server);
    std::string key_count;
    for (const auto place : batch.places) {
      const auto& run = runs[place];
      key_count = std::to_string(run.keys.size());
      // The text where the server may not have it yet, so that not one is refused while a later one is run.
      const bool is_sent = !batch.link->scripts.insert(run.script.hash()).second;
      batch.link->connection.queue(command_of(run, is_sent, key_count));
    }
    batch.link->connection.send();
  } catch (const Error&) {
    batch.fault = current_fault();
  }
}

void Client::receive(Batch& batch, std::vector<Outcome<Reply>>& outcomes) {
  for (const auto place : batch.places) {
    if (!batch.fault) {
      try {
        auto reply = batch.link->connection.receive();
        if (is_unknown_script(reply)) batch.link->scripts.clear();
        outcomes[place] = std::move(reply);
        continue;
      } catch (const Error&) {
        batch.fault = current_fault();
      }
    }
    outcomes[place] = *batch.fault;
  }
}

// Those that a server did not run, one after another; but never behind a later one that was run, nor after an
// earlier one that is unknown, because that one may still be on its way.
void Client::run_again(std::span<const Run> runs, std::vector<Outcome<Reply>>& outcomes) {
  std::map<std::string_view, std::size_t> last_run;  // by first key
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool is_not = outcomes[i].ok() && is_not_run(outcomes[i].value(), is_cluster_);
    if (!is_not) last_run[runs[i].keys.front()] = i;
  }
  std::set<std::string_view> unknown;  // first keys
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!outcomes[i].ok() || !is_not_run(outcomes[i].value(), is_cluster_)) continue;
    const auto key = runs[i].keys.front();
    const auto later = last_run.find(key);
    const bool is_late = later != last_run.end() && later->second > i;
    if (is_late || unknown.contains(key)) {
      outcomes[i] = Fault{FaultKind::unavailable,
                          fmt::format("it was not run ({}), and what {}", outcomes[i].value().text,
                                      is_late ? "was sent after it was" : "came before it is unknown")};
      continue;
    }
    try {
      outcomes[i] = run(runs[i]);
    } catch (const Error&) {
      outcomes[i] = current_fault();
      if (outcomes[i].fault().kind == FaultKind::unknown) unknown.insert(key);
    }
  }
}

std::vector<Outcome<Reply>> Client::run_all(std::span<const Run> runs) {
  for (const auto& run : runs) require_one_slot(run);
  std::map<Endpoint, Batch> batches;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto server = server_of(runs[i].keys.front());
    auto& batch = batches.try_emplace(server, Batch{server, {}, nullptr, {}}).first->second;
    batch.places.push_back(i);
  }
  for (auto& [server, batch] : batches) send(batch, runs);
  std::vector<Outcome<Reply>> outcomes(runs.size(), Outcome<Reply>{Reply{}});
  for (auto& [server, batch] : batches) receive(batch, outcomes);
  run_again(runs, outcomes);
  return outcomes;
}

}  // namespace fenceguard::redis
