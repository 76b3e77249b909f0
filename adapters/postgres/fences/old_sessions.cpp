#include "adapters/postgres/fences/old_sessions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "adapters/postgres/session.hpp"

namespace fenceguard::postgres {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds look{10};

// FNV-1a: short enough for a name of 63 bytes.
std::uint64_t digest(std::string_view text) {
  std::uint64_t state = 14695981039346656037ULL;
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return state;
}

// What a role's name or a session's own tells. A worker of a parallel query ends with its leader.
constexpr const char* other_sessions =
    " FROM pg_catalog.pg_stat_activity a WHERE a.pid <> pg_catalog.pg_backend_pid() AND a.leader_pid IS NULL";
constexpr const char* here = " AND a.datname = pg_catalog.current_database() AND a.usesysid IS NOT NULL";
constexpr const char* of_old_claim =
    " AND pg_catalog.substring(a.application_name, $1::text)::numeric <= $2::numeric";
// Ours, and those of exec's commands, say so. What another role's session is called may not be shown, and is
// null.
constexpr const char* of_unknown_claim =
    " AND (a.application_name ~ '^fenceguard(:[0-9]{1,19}:[0-9a-f]{16})?$') IS NOT TRUE";
constexpr const char* of_role = " AND a.usesysid = $1::pg_catalog.oid";

std::string pattern_of(const Resource& resource) {
  return fmt::format("^fenceguard:([0-9]{{1,19}}):{:016x}$", digest(resource.name()));
}

class OldSessions {
 public:
  OldSessions(const Url& url, const Resource& resource, milliseconds limit)
      : address_{address_with_limits(url, {})},
        doing_{fmt::format("ending the old sessions of {}", resource.name())},
        limit_{limit} {}

  // The first value of a statement.
  template <class Value, class... Arguments>
  Value ask(const std::string& sql, const Arguments&... arguments) {
    return session_.run(doing_, Needs::fences, [&](pqxx::transaction_base& tx) {
      tx.exec(fmt::format("SET LOCAL statement_timeout = {}", limit_.count()));
      return exec_params(tx, sql, arguments...)[0][0].template as<Value>();
    });
  }

  // Asks until the answer, a sentence on what is in the way, is empty. Throws Unavailable with it after the
  // limit.
  template <class Ask>
  void wait_until_none(const Ask& ask_objection) {
    for (;;) {
      const std::string objection = ask_objection();
      if (objection.empty()) return;
      if (steady_clock::now() >= deadline_) throw Unavailable(fmt::format("{}: {}", doing_, objection));
      std::this_thread::sleep_for(look);
    }
  }

 private:
  const Address address_;
  Session session_{address_};
  const std::string doing_;
  const milliseconds limit_;
  const steady_clock::time_point deadline_ = steady_clock::now() + limit_;
};

std::string count_of(std::string_view which) {
  return fmt::format("SELECT count(*){}{}", other_sessions, which);
}
std::string end_of(std::string_view which) {
  return fmt::format("SELECT count(pg_catalog.pg_terminate_backend(a.pid) OR NULL){}{}", other_sessions,
                     which);
}

}  // namespace

std::string session_name(const Claim& claim) {
  return fmt::format("fenceguard:{}:{:016x}", claim.token.value(), digest(claim.resource.name()));
}

int terminate_backends(const Url& url, const Resource& resource, Token old_token, milliseconds limit) {
  OldSessions sessions{url, resource, limit};
  const auto pattern = pattern_of(resource);
  const auto token = old_token.value();
  const auto which = std::string{here} + of_old_claim;
  const auto next = fmt::format("{}", static_cast<std::uint64_t>(token) + 1);
  int ended = sessions.ask<int>("SELECT fenceguard.cut($1, $2::bigint)", resource.name(), next);
  ended += sessions.ask<int>(end_of(which), pattern, token);
  sessions.wait_until_none([&] {
    const int left = sessions.ask<int>(count_of(which), pattern, token);
    return left == 0 ? "" : fmt::format("{} of the old sessions did not end", left);
  });
  const int unknown = sessions.ask<int>(count_of(std::string{here} + of_unknown_claim));
  if (unknown > 0)
    throw Unavailable(fmt::format(
        "{} ended, but {} other sessions of this database do not say under which claim they are, and any "
        "session may "
        "change what it is called: give the holders a role of their own, and terminate-backends:user=ROLE",
        ended, unknown));
  const int prepared = sessions.ask<int>(
      "SELECT count(*) FROM pg_catalog.pg_prepared_xacts x WHERE x.database = pg_catalog.current_database()");
  if (prepared > 0)
    throw Unavailable(
        fmt::format("{} ended, but {} prepared transactions are left, which outlive their sessions: commit "
                    "them or roll them back",
                    ended, prepared));
  return ended;
}

int terminate_role(const Url& url, const std::string& role, const Resource& resource, milliseconds limit) {
  OldSessions sessions{url, resource, limit};
  const auto id = sessions.ask<std::string>(
      "SELECT coalesce((SELECT r.oid::text FROM pg_catalog.pg_roles r WHERE r.rolname = $1), '')", role);
  if (id.empty()) throw Unavailable(fmt::format("there is no role {}", role));
  if (sessions.ask<bool>("SELECT session_user = $1::text", role))
    throw Unavailable(fmt::format("{} is the role of the URL, whose sessions are ours as well", role));
  int ended = 0;
  // One that logs in meanwhile is ended by the next look.
  sessions.wait_until_none([&] {
    const int left = sessions.ask<int>(count_of(of_role), id);
    if (left == 0) return std::string{};
    ended = std::max(ended, sessions.ask<int>(end_of(of_role), id));
    return fmt::format("{} of the sessions of {} did not end", left, role);
  });
  // Its owner is the role that was set at PREPARE: any of those that this one may set.
  sessions.wait_until_none([&] {
    const int left = sessions.ask<int>(
        "SELECT count(*) FROM pg_catalog.pg_prepared_xacts x WHERE pg_catalog.pg_has_role($1::name, x.owner, "
        "'member')",
        role);
    return left == 0 ? ""
                     : fmt::format("{} prepared transactions may be of {}: commit them or roll them back",
                                   left, role);
  });
  return ended;
}

void finish_holder(const Url& url, const Claim& claim) {
  const auto address = address_with_limits(url, {});
  Session session{address};
  session.run(fmt::format("closing the fence of {}", claim.resource.name()), Needs::fences,
              [&](pqxx::transaction_base& tx) {
                return exec_params(tx, "SELECT fenceguard.finish($1, $2, $3)", claim.resource.name(),
                                   claim.token.value(), claim.holder.id())
                    .size();
              });
}

}  // namespace fenceguard::postgres
