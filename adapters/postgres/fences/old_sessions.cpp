#include "adapters/postgres/fences/old_sessions.hpp"

#include <fmt/format.h>

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

constexpr const char* of_old_sessions =
    " FROM pg_catalog.pg_stat_activity a WHERE a.pid <> pg_catalog.pg_backend_pid()"
    " AND a.datname = pg_catalog.current_database()"
    " AND pg_catalog.substring(a.application_name, $1::text)::numeric <= $2::numeric";

std::string pattern_of(const Resource& resource) {
  return fmt::format("^fenceguard:([0-9]{{1,19}}):{:016x}$", digest(resource.name()));
}

}  // namespace

std::string session_name(const Claim& claim) {
  return fmt::format("fenceguard:{}:{:016x}", claim.token.value(), digest(claim.resource.name()));
}

int terminate_backends(const Url& url, const Resource& resource, Token old_token, milliseconds limit) {
  const auto address = address_with_limits(url, {});
  Session session{address};
  const auto doing = fmt::format("ending the old sessions of {}", resource.name());
  const auto deadline = steady_clock::now() + limit;
  const auto pattern = pattern_of(resource);
  const int ended = session.run(doing, Needs::fences, [&](pqxx::transaction_base& tx) {
    tx.exec(fmt::format("SET LOCAL statement_timeout = {}", limit.count()));
    const auto next = fmt::format("{}", static_cast<std::uint64_t>(old_token.value()) + 1);
    const auto in_transactions =
        exec_params(tx, "SELECT fenceguard.cut($1, $2::bigint)", resource.name(), next);
    const auto by_name =
        exec_params(tx, std::string{"SELECT pg_catalog.pg_terminate_backend(a.pid)"} + of_old_sessions,
                    pattern, old_token.value());
    return in_transactions[0][0].as<int>() + static_cast<int>(by_name.size());
  });
  for (;;) {
    const int left = session.run(doing, Needs::fences, [&](pqxx::transaction_base& tx) {
      return exec_params(tx, std::string{"SELECT count(*)"} + of_old_sessions, pattern,
                         old_token.value())[0][0]
          .as<int>();
    });
    if (left == 0) return ended;
    if (steady_clock::now() >= deadline)
      throw Unavailable(fmt::format("{} of the old sessions did not end", left));
    std::this_thread::sleep_for(look);
  }
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
