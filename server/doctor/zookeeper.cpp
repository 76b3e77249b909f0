#include "server/doctor/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "adapters/zookeeper/client.hpp"
#include "adapters/zookeeper/fences/versioned_fence.hpp"
#include "adapters/zookeeper/wire/four_letter_words.hpp"
#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

using Level = Finding::Level;
// A server logs what the others agreed on a moment later.
constexpr std::chrono::seconds sync_timeout{3};
constexpr std::chrono::milliseconds look_again{50};

constexpr std::string_view allow_words = "4lw.commands.whitelist=srvr,conf,mntr in its zoo.cfg shows it";

// '3.8.0' of '3.8.0-${mvngit.commit.id}, built on ...'.
std::string short_version(const std::string& text) {
  return text.substr(0, text.find_first_of("-, "));
}

bool is_too_old(const std::string& version) {
  int major = 0;
  int minor = 0;
  const char* end = version.data() + version.size();
  const auto [rest, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc{} || rest == end) return false;
  (void)std::from_chars(rest + 1, end, minor);
  return major < 3 || (major == 3 && minor < 5);
}

Finding look_at_server(const std::string& host) {
  const auto check = "server " + host;
  const auto answer = ask_server(host, "srvr");
  if (!answer) {
    return {Level::warning, check,
            "cannot be reached, or says nothing: the ensemble has one less to lose; start it"};
  }
  if (is_forbidden(*answer)) {
    return {Level::warning, check,
            fmt::format("takes connections; its version and its role it does not tell: {}", allow_words)};
  }
  const auto mode = after(*answer, "Mode: ");
  if (!mode) return {Level::warning, check, "runs and does not serve: it has no quorum; look at its log"};
  const auto version = short_version(after(*answer, "Zookeeper version: ").value_or("?"));
  if (is_too_old(version)) {
    return {Level::danger, check,
            fmt::format("ZooKeeper {}, {}: 3.5 or later is needed; the locks' nodes are containers", version,
                        *mode)};
  }
  return {Level::ok, check, fmt::format("ZooKeeper {}, {}", version, *mode)};
}

// A server counts its calls of fsync. One that has just logged a transaction and counts none leaves it out.
// REQUIRES: a transaction was just sent to the ensemble.
Finding look_at_sync(const std::string& host) {
  const auto check = "durability " + host;
  const auto deadline = std::chrono::steady_clock::now() + sync_timeout;
  for (;;) {
    const auto answer = ask_server(host, "mntr");
    const auto count = answer ? after(*answer, "zk_cnt_fsynctime\t") : std::nullopt;
    if (!count) {
      return {Level::warning, check,
              fmt::format("whether it syncs its log before it answers cannot be seen; {}", allow_words)};
    }
    if (*count != "0") return {Level::ok, check, "its log is synced before it answers"};
    if (std::chrono::steady_clock::now() > deadline) {
      return {Level::danger, check,
              "logs transactions and never syncs them (forceSync=no): after the machines lose power, "
              "acknowledged fences and locks are forgotten, and tokens repeat; take the setting out"};
    }
    std::this_thread::sleep_for(look_again);
  }
}

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

Finding look_at_size(const std::vector<std::string>& hosts) {
  constexpr auto check = "ensemble";
  std::size_t servers = hosts.size();
  for (const auto& host : hosts) {
    const auto answer = ask_server(host, "conf");
    if (!answer || is_forbidden(*answer) || answer->find("clientPort=") == answer->npos) continue;
    servers = std::max<std::size_t>(1, count_of(*answer, ":participant"));
    break;
  }
  const auto found =
      fmt::format("{} server{}, {} may fail", servers, servers == 1 ? "" : "s", (servers - 1) / 2);
  if (servers == 1)
    return {Level::warning, check, found + ": where it stops, all locks and guarded writes stop; use three"};
  if (servers % 2 == 0)
    return {Level::warning, check, found + ": one less is as safe, and an odd number is better"};
  if (hosts.size() < servers) {
    return {Level::warning, check,
            fmt::format("{}; the URL names only {} of them, so clients cannot move to the others", found,
                        hosts.size())};
  }
  return {Level::ok, check, found};
}

Finding look_at_acl(const Address& address) {
  constexpr auto check = "access";
  if (address.user.empty()) {
    return {Level::warning, check,
            "without a user every node is open: any client that reaches the servers can write fences and end "
            "locks; use zookeeper://USER:PASSWORD@..."};
  }
  if (address.acl == Acl::open)
    return {Level::warning, check,
            "acl=open: any client that reaches the servers can write fences and end locks"};
  return {Level::ok, check, fmt::format("nodes belong to the user {}", address.user)};
}

// The ensemble by itself, whatever it is used for.
Findings look_at_ensemble(Client& client) {
  const auto hosts = each_host(client.address().hosts);
  Findings findings;
  for (const auto& host : hosts) findings.push_back(look_at_server(host));
  findings.push_back(look_at_size(hosts));
  findings.push_back(look_at_acl(client.address()));
  try {
    const auto connection = client.connection();
    // Whatever it answers, it is a transaction.
    (void)certain([&] { return connection.session->multi({check(client.paths().root(), any_version)}); });
    findings.push_back({Level::ok, "session",
                        fmt::format("opened, lives {} ms without its client",
                                    connection.session->session_timeout().count())});
  } catch (const Unavailable& error) {
    findings.push_back({Level::danger, "session", error.what()});
    return findings;
  }
  for (const auto& host : hosts) findings.push_back(look_at_sync(host));
  return findings;
}

bool has_session(const Findings& findings) {
  return std::ranges::none_of(
      findings, [](const Finding& one) { return one.check == "session" && one.level == Level::danger; });
}

// The token source's offset; nothing if it cannot be read as a number.
std::optional<std::int64_t> offset_of(const Answer& answer) {
  return answer.code == Code::no_node ? 0 : parse_decimal(answer.data);
}

Finding look_at_offset(Client& client) {
  constexpr auto check = "offset";
  const auto& path = client.paths().offset();
  try {
    const auto answer = client.connection().session->get(path);
    const auto offset = offset_of(answer);
    if (!offset) {
      return {
          Level::danger, check,
          fmt::format("{} holds no number of ours, and no lock can be granted; set it to a number that is "
                      "not lower than it ever was, or remove it and run 'fenceguard lease raise' with the "
                      "highest token that the guards have seen",
                      path)};
    }
    if (answer.code == Code::no_node) return {Level::ok, check, "none: tokens are zxids as they come"};
    return {Level::ok, check, fmt::format("{}, added to every zxid", *offset)};
  } catch (const Unavailable& error) {
    return {Level::danger, check, error.what()};
  }
}

// A zxid that was given out already: what the servers say, and what the nodes show.
std::int64_t known_zxid(Client& client, std::int64_t at_least) {
  auto zxid = at_least;
  for (const auto& host : each_host(client.address().hosts)) {
    const auto answer = ask_server(host, "srvr");
    const auto text = answer ? after(*answer, "Zxid: 0x") : std::nullopt;
    if (!text) continue;
    std::int64_t one = 0;
    (void)std::from_chars(text->data(), text->data() + text->size(), one, 16);
    zxid = std::max(zxid, one);
  }
  return zxid;
}

struct Highest {
  std::int64_t token = 0;
  std::optional<Resource> resource;  // nothing: the floor's
};

// damaged: those that cannot be read.
Highest highest_fence(const Client::Connection& connection, const FencePaths& paths, std::int64_t floor,
                      std::vector<Resource>& damaged) {
  Highest highest{floor, std::nullopt};
  const auto resources = read_resources(*connection.session, paths);
  const auto fences = read_each(*connection.session, paths, resources);
  for (std::size_t i = 0; i < resources.size(); ++i) {
    if (fences[i].fence && fences[i].fence->token.value() > highest.token)
      highest = {fences[i].fence->token.value(), resources[i]};
    if (fences[i].is_damaged) damaged.push_back(resources[i]);
  }
  return highest;
}

// Where this ensemble is the token source too.
Finding look_at_counter(Client& client, const Highest& highest, std::int64_t floor_zxid) {
  constexpr auto check = "counter";
  const auto offset = offset_of(client.connection().session->get(client.paths().offset()));
  const auto zxid = known_zxid(client, floor_zxid);
  if (!offset || zxid >= highest.token - *offset) {
    return {Level::ok, check, fmt::format("at zxid {}, above the fences", zxid)};
  }
  const auto& resource = highest.resource;
  return {
      Level::danger, check,
      fmt::format("at zxid {} with offset {}, behind {}, which has seen {}: the ensemble was restored or "
                  "built anew, or tokens come from another source. New holders are refused; one that "
                  "holds the lock freshly raises the source by itself, or run 'fenceguard lease raise "
                  "--resource {} --token {}'",
                  zxid, *offset, resource ? fmt::format("the fence of '{}'", resource->name()) : "the floor",
                  highest.token, resource ? resource->name() : "R", highest.token)};
}

Findings look_at_fences(Client& client) {
  constexpr auto check = "fences";
  const auto& paths = client.paths();
  Findings findings;
  try {
    const auto connection = client.connection();
    const auto answer = connection.session->get(paths.floor());
    const auto floor = floor_of(paths, answer);
    std::vector<Resource> damaged;
    const auto highest = highest_fence(connection, paths, floor, damaged);
    for (const auto& resource : damaged) {
      findings.push_back(
          {Level::danger, check,
           fmt::format("the fence of '{}' is damaged, and nothing is written there; 'fenceguard "
                       "fence rebase' sets it anew, on stopped guards",
                       resource.name())});
    }
    findings.push_back({Level::ok, check,
                        fmt::format("'{}', floor {}, highest token {}", paths.root(), floor, highest.token)});
    findings.push_back(look_at_counter(client, highest, answer.stat.mzxid));
  } catch (const Unavailable& error) {
    findings.push_back({Level::danger, check, error.what()});
  }
  return findings;
}

}  // namespace

Findings examine_source(const Url& url) {
  Client client{address_beside_source(url)};
  auto findings = look_at_ensemble(client);
  if (has_session(findings)) findings.push_back(look_at_offset(client));
  return findings;
}

Findings examine_storage(const Url& url) {
  Client client{address_beside_source(url)};
  auto findings = look_at_ensemble(client);
  if (!has_session(findings)) return findings;
  findings.push_back(look_at_offset(client));
  for (auto&& finding : look_at_fences(client)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace fenceguard::zookeeper
