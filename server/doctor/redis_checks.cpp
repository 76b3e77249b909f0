#include "server/doctor/redis_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "adapters/redis/wire/scripts.hpp"
#include "guard/error.hpp"
#include "guard/support/read_only_call.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {
namespace {

using Level = Finding::Level;

// The oldest that has what our scripts call (SET with KEEPTTL, 6.0), and the oldest that is tested.
// An older one than we need was refused at the connection.
Finding look_at_version(const ProbedServer& server) {
  return {Level::ok, "server", "Redis " + server.version()};
}

Finding look_at_role(const ProbedServer& server) {
  if (!server.is_replica()) return {Level::ok, "role", "the master"};
  return {Level::danger, "role",
          "a replica: it takes no writes, and what it has may be older than what its master has; connect to "
          "the master"};
}

// What a restart forgets, from the point of view of this use of the server.
std::string what_is_forgotten(Use use) {
  switch (use) {
    case Use::storage:
      return "fences are forgotten with the data, and a write that was refused as stale before may be "
             "admitted after";
    case Use::quorum_node:
    case Use::unsafe_quorum_node:
      return "the node forgets its lock and its counter, and a quorum cannot carry tokens on such nodes";
    case Use::source:
      break;
  }
  return "locks are forgotten, so two clients may hold one; their tokens rise all the same, because the "
         "counter leaps, and a guard tells them apart";
}

Finding look_at_missing_log(ProbedServer& server) {
  const bool is_known = server.use() == Use::source || server.use() == Use::unsafe_quorum_node;
  const auto level = is_known ? Level::warning : Level::danger;
  const auto save = server.setting("save");
  const auto what = save && save->empty() ? "none: after a restart all is gone"
                    : save
                        ? fmt::format("snapshots only (save {}): a restart goes back to the last one", *save)
                        : "no append-only file: a restart goes back to the last snapshot, if there is one";
  return {level, "persistence",
          fmt::format("{}; {}; set appendonly yes", what, what_is_forgotten(server.use()))};
}

Finding look_at_persistence(ProbedServer& server) {
  constexpr auto check = "persistence";
  const auto is_logged = server.info("aof_enabled");
  if (!is_logged) return {Level::warning, check, "cannot be looked at: INFO is refused"};
  if (*is_logged == "0") return look_at_missing_log(server);
  if (server.info("aof_last_write_status").value_or("ok") != "ok") {
    return {Level::danger, check,
            "the append-only file cannot be written just now, and no write is taken; look at the log"};
  }
  const auto sync = server.setting("appendfsync");
  if (!sync) return {Level::warning, check, "appendonly yes; appendfsync could not be seen"};
  if (*sync == "always") return {Level::ok, check, "appendonly yes, appendfsync always"};
  const auto lost =
      *sync == "everysec" ? "the writes of up to two seconds" : "what the kernel had not written";
  return {
      server.use() == Use::quorum_node ? Level::danger : Level::warning, check,
      fmt::format("appendonly yes, appendfsync {}: when the machine fails (not when the process does), {} "
                  "may be lost although acknowledged; then {}; set appendfsync always",
                  *sync, lost, what_is_forgotten(server.use()))};
}

Finding look_at_replication(ProbedServer& server) {
  constexpr auto check = "replication";
  const auto attached = server.info("connected_slaves");
  if (!attached) return {Level::warning, check, "cannot be looked at: INFO is refused"};
  if (server.setting("replica-read-only").value_or("yes") != "yes") {
    return {
        Level::danger, check,
        "replica-read-only no: a master that is made a replica goes on taking writes, and forgets them; set "
        "replica-read-only yes"};
  }
  const auto wanted = server.setting("min-replicas-to-write");
  const auto replicas = fmt::format("{} attached", *attached == "0" ? "no replica" : *attached);
  if (!wanted) return {Level::warning, check, replicas + "; min-replicas-to-write could not be seen"};
  if (*wanted != "0") {
    return {Level::ok, check,
            fmt::format("{}, min-replicas-to-write {}, within {} s", replicas, *wanted,
                        server.setting("min-replicas-max-lag").value_or("?"))};
  }
  if (*attached == "0") return {Level::ok, check, replicas};
  return {Level::warning, check,
          fmt::format("{}, and writes wait for none: a replica that is promoted may have forgotten what was "
                      "acknowledged; {}; set min-replicas-to-write, and use ?wait_replicas=N for leases",
                      replicas, what_is_forgotten(server.use()))};
}

Finding look_at_eviction(ProbedServer& server) {
  constexpr auto check = "eviction";
  auto policy = server.info("maxmemory_policy");
  if (!policy) policy = server.setting("maxmemory-policy");
  if (!policy) return {Level::warning, check, "maxmemory-policy could not be seen"};
  const auto found = "maxmemory-policy " + *policy;
  const bool is_off = server.info("maxmemory").value_or("1") == "0";
  const auto later = is_off ? " (as soon as maxmemory, which is 0 now, is set)" : "";
  if (*policy == "noeviction") return {Level::ok, check, found};
  if (policy->starts_with("allkeys-")) {
    return {Level::danger, check,
            fmt::format("{}: may evict fences, counters and locks{}; set noeviction", found, later)};
  }
  if (server.use() == Use::storage)
    return {Level::ok, check, found + ": fences have no time to live and are not evicted"};
  return {Level::danger, check,
          fmt::format("{}: may evict locks, which have a time to live{}; set noeviction", found, later)};
}

Finding look_at_scripts(ProbedServer& server) {
  const auto reply = server.call({"EVAL", "return redis.call('TIME')[1]", "0"});
  if (!reply.is_error()) return {Level::ok, "scripts", "Lua runs"};
  return {Level::danger, "scripts",
          fmt::format("Lua does not run, and every call of fenceguard is a script: {}", reply.text)};
}

Finding look_at_namespace(ProbedServer& server) {
  constexpr auto check = "namespace";
  const auto& prefix = server.keys().prefix();
  const auto reply = server.call({"HMGET", server.keys().name_space(), "floor", "highest"});
  if (reply.text.starts_with("NOPERM"))
    return {Level::warning, check, fmt::format("cannot be looked at: {}", reply.text)};
  if (reply.is_error()) {
    return {Level::danger, check,
            fmt::format("'{}' is something else's: {}; rename it, or use another ?prefix",
                        server.keys().name_space(), reply.text)};
  }
  const auto& floor = reply.elements.at(0);
  const auto& highest = reply.elements.at(1);
  if (!floor.is_nil() && !highest.is_nil()) {
    return {Level::ok, check,
            fmt::format("'{}', floor {}, highest token {}", prefix, floor.text, highest.text)};
  }
  return {Level::danger, check,
          fmt::format("'{}' has no record, or lost it (FLUSHALL?): every claim is unavailable until you run "
                      "'fenceguard fence init'",
                      prefix)};
}

Finding look_at_counter(ProbedServer& server) {
  constexpr auto check = "counter";
  const auto reply = server.call({"HGET", server.keys().counter(), "value"});
  if (reply.text.starts_with("NOPERM"))
    return {Level::warning, check, fmt::format("cannot be looked at: {}", reply.text)};
  if (reply.is_error()) {
    return {Level::danger, check,
            fmt::format("'{}' is something else's: {}; rename it, or use another ?prefix",
                        server.keys().counter(), reply.text)};
  }
  if (reply.is_nil()) return {Level::ok, check, "no token was drawn yet"};
  if (!Token::parse(reply.text))
    return {Level::danger, check, fmt::format("'{}' holds no number of ours", server.keys().counter())};
  return {Level::ok, check, fmt::format("at {}", reply.text)};
}

// Every address that it listens on is one of this machine alone.
bool is_loopback_only(std::string_view addresses) {
  std::size_t count = 0;
  while (!addresses.empty()) {
    const auto end = std::min(addresses.find(' '), addresses.size());
    auto address = addresses.substr(0, end);
    addresses.remove_prefix(std::min(end + 1, addresses.size()));
    if (address.empty()) continue;
    if (address.front() == '-') address.remove_prefix(1);  // it may be missing
    if (!address.starts_with("127.") && address != "::1") return false;
    ++count;
  }
  return count > 0;
}

// A fence cannot stop a client that bypasses it.
Finding look_at_reach(ProbedServer& server) {
  constexpr auto check = "reach";
  constexpr auto advice =
      "a client that writes there bypasses every fence; set requirepass, or 'ACL setuser default off' and a "
      "user "
      "whose password only guards and services that carry claims know";
  const auto is_open = server.lets_in_without_password();
  if (!is_open) return {Level::warning, check, "whether a password is needed could not be tried"};
  if (!*is_open) return {Level::ok, check, "a password is needed"};
  const auto bind = server.setting("bind");
  const auto is_protected = server.setting("protected-mode");
  const auto port = server.setting("port");
  if (port == "0") return {Level::ok, check, "no password, and no port: through its Unix socket alone"};
  if (is_protected == "yes")
    return {Level::ok, check, "no password, and protected-mode lets in this machine alone"};
  if (bind && is_loopback_only(*bind))
    return {Level::ok, check, fmt::format("no password, and bind {}: this machine alone", *bind)};
  if (!bind || !is_protected)
    return {
        Level::warning, check,
        fmt::format("no password, and who can reach it is not known (CONFIG GET is refused): {}", advice)};
  return {Level::warning, check,
          fmt::format("no password, protected-mode no, and bind {}: other machines can reach it; {}",
                      bind->empty() ? "to every address" : *bind, advice)};
}

// Optional, for clients without a library of ours.
Finding look_at_functions(ProbedServer& server) {
  const auto answer = server.call({"FCALL_RO", "fenceguard_version", "0"});
  const auto ours = scripts::functions_version();
  if (answer.is_error()) return {Level::ok, "functions", fmt::format("not seen ({})", answer.text)};
  if (answer.text == ours) return {Level::ok, "functions", fmt::format("version {}", ours)};
  return {Level::warning, "functions",
          fmt::format("version {}, and this is {}: run 'fenceguard sql redis | redis-cli -x FUNCTION LOAD "
                      "REPLACE' with the newer of both",
                      answer.text, ours)};
}

}  // namespace

ProbedServer::ProbedServer(const Address& address, Use use)
    : address_{address}, connection_{address}, keys_{address.prefix}, use_{use} {
  const auto reply = call({"INFO"});
  std::string_view text = reply.is_error() ? std::string_view{} : reply.text;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\r'));
    if (const auto colon = line.find(':'); colon != line.npos)
      info_.emplace(line.substr(0, colon), line.substr(colon + 1));
    const auto end = text.find('\n');
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
}

std::optional<std::string> ProbedServer::info(const std::string& name) const {
  const auto found = info_.find(name);
  if (found == info_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> ProbedServer::setting(const std::string& name) {
  const auto reply = call({"CONFIG", "GET", name});
  if (reply.elements.size() == 2) return reply.elements[1].text;
  if (std::ranges::find(unseen_, name) == unseen_.end()) unseen_.push_back(name);
  if (reply.is_error()) refusal_ = reply.text;
  return std::nullopt;
}

Reply ProbedServer::call(const std::vector<std::string>& words) {
  const std::vector<std::string_view> views{words.begin(), words.end()};
  return read_only_call([&] { return connection_.call(views); });
}

std::optional<bool> ProbedServer::lets_in_without_password() const {
  if (address_.user.empty() && address_.password.empty()) return true;
  auto stranger = address_;
  stranger.user.clear();
  stranger.password.clear();
  try {
    const Connection connection{stranger};
    return true;
  } catch (const Unavailable& error) {
    if (std::string_view{error.what()}.find("NOAUTH") != std::string_view::npos) return false;
    return std::nullopt;
  }
}

Finding look_at_marker(ProbedServer& server) {
  constexpr auto check = "marker";
  const auto reply = server.call({"GET", server.keys().prefix() + "quorum:marker"});
  if (reply.is_error()) return {Level::warning, check, fmt::format("cannot be looked at: {}", reply.text)};
  if (reply.kind == Reply::Kind::text && !reply.text.starts_with('?'))
    return {Level::ok, check, "there: the server votes"};
  return {
      Level::danger, check,
      "none: the server forgot its state, or never had any, and does not vote; run 'fenceguard fence init' "
      "once for a new quorum, or 'fenceguard lease raise' to let it vote again"};
}

Findings examine(ProbedServer& server) {
  Findings findings{look_at_version(server),     look_at_role(server),     look_at_persistence(server),
                    look_at_replication(server), look_at_eviction(server), look_at_scripts(server)};
  if (server.use() == Use::storage) findings.push_back(look_at_reach(server));
  if (!server.unseen().empty()) {
    findings.push_back(
        {Level::warning, "settings",
         fmt::format("CONFIG GET is refused ({}), so these could not be seen: {}; allow it with "
                     "the ACL rule '+config|get'",
                     server.refusal(), fmt::join(server.unseen(), ", "))});
  }
  if (server.use() == Use::storage) findings.push_back(look_at_functions(server));
  if (is_of_quorum(server.use())) findings.push_back(look_at_marker(server));
  if (server.is_cluster()) return findings;
  if (server.use() == Use::storage) findings.push_back(look_at_namespace(server));
  if (server.use() == Use::source) findings.push_back(look_at_counter(server));
  return findings;
}

std::vector<Endpoint> masters(ProbedServer& server) {
  std::vector<Endpoint> found;
  const auto slots = server.call({"CLUSTER", "SLOTS"});
  for (const auto& range : slots.elements) {
    const auto& master = range.elements.at(2).elements;
    Endpoint endpoint{
        .host = master.at(0).text, .port = static_cast<int>(master.at(1).integer), .socket = {}};
    if (std::ranges::find(found, endpoint) == found.end()) found.push_back(std::move(endpoint));
  }
  if (found.empty()) throw Unavailable(fmt::format("the cluster tells no masters: {}", slots.text));
  return found;
}

}  // namespace fenceguard::redis
