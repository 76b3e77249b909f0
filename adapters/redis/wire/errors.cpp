#include "adapters/redis/wire/errors.hpp"

#include <fmt/format.h>

#include <utility>

namespace fenceguard::redis {
namespace {

struct Row {
  std::string_view begins;
  FaultKind kind;
  std::string_view hint;  // what to do; empty: the server's own words say it
};

// Most specific first. Everything with kind unavailable is refused before the first write of a script: each
// of our scripts does what may be refused first.
constexpr Row rows[] = {
    {"UNINITIALISED", FaultKind::unavailable, "run 'fenceguard fence init'"},
    {"IMPLAUSIBLE", FaultKind::implausible, ""},
    {"INVALID", FaultKind::invalid_input, ""},
    {"DAMAGED", FaultKind::unavailable, ""},
    {"EXHAUSTED", FaultKind::unavailable, ""},
    {"REPLICA", FaultKind::unavailable, "connect to the master"},
    {"READONLY", FaultKind::unavailable, "this server is a replica; connect to the master"},
    {"LOADING", FaultKind::unavailable, "the server is still loading its data; try again"},
    {"MASTERDOWN", FaultKind::unavailable, "this server is a replica without its master"},
    {"NOREPLICAS", FaultKind::unavailable, "too few replicas are connected (min-replicas-to-write)"},
    {"CLUSTERDOWN", FaultKind::unavailable, "the cluster is not whole; try again"},
    {"TRYAGAIN", FaultKind::unavailable, "the cluster moves these keys just now; try again"},
    {"MOVED", FaultKind::unavailable, "the cluster moves these keys just now; try again"},
    {"ASK", FaultKind::unavailable, "the cluster moves these keys just now; try again"},
    {"CROSSSLOT", FaultKind::invalid_input, "all keys of one call must lie in one slot: use one hash tag"},
    {"BUSY", FaultKind::unavailable, "a script keeps the server busy; try again, or SCRIPT KILL"},
    {"OOM", FaultKind::unavailable, "the server is out of memory (maxmemory)"},
    {"MISCONF", FaultKind::unavailable, "the server cannot save its data; look at its log"},
    {"NOAUTH", FaultKind::unavailable, "the URL needs a password"},
    {"WRONGPASS", FaultKind::unavailable, "the URL's user or password is wrong"},
    {"NOPERM", FaultKind::unavailable, "the user's ACL must allow it; see docs/redis.md"},
    // What an ACL forbids inside of a script: Redis 7.0, then 8.
    {"ERR The user executing the script can't", FaultKind::unavailable,
     "the user's ACL must allow it; see docs/redis.md"},
    {"ERR ACL failure in script", FaultKind::unavailable, "the user's ACL must allow it; see docs/redis.md"},
    // What a cluster refuses inside of a script.
    {"ERR Script attempted to", FaultKind::unavailable,
     "the cluster moves these keys, or is down; try again"},
    {"WRONGTYPE", FaultKind::unavailable, "a key of ours holds something else; rename or remove it"},
    {"NOSCRIPT", FaultKind::unavailable, "the server forgot the script; try again"},
};

constexpr std::string_view inside = " script: ";

// A script that stopped in its middle may have written.
bool is_from_inside(std::string_view text) {
  return text.find(inside) != text.npos && !text.starts_with("ERR increment or decrement would overflow");
}

}  // namespace

Fault fault_of(std::string_view doing, const Reply& reply) {
  // Without where in which script it was raised, which the server appends.
  const auto text = std::string_view{reply.text}.substr(0, reply.text.rfind(inside));
  for (const auto& row : rows) {
    if (!text.starts_with(row.begins)) continue;
    return {row.kind, fmt::format("{}: {}{}{}", doing, text, row.hint.empty() ? "" : "; ", row.hint)};
  }
  const auto kind = is_from_inside(reply.text) ? FaultKind::unknown : FaultKind::unavailable;
  return {kind, fmt::format("{}: {}", doing, text)};
}

Reply unless_error(std::string_view doing, Reply reply) {
  if (reply.is_error()) raise_fault(fault_of(doing, reply));
  return reply;
}

bool is_unknown_script(const Reply& reply) {
  return reply.is_error() && reply.text.starts_with("NOSCRIPT");
}

}  // namespace fenceguard::redis
