#include "server/doctor/doctor.hpp"

#include <fmt/format.h>

#include "adapters/postgres/connect.hpp"
#include "adapters/postgres/fences/schema.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"
#include "server/doctor/postgres_checks.hpp"

namespace fenceguard::postgres {
namespace {

using Level = Finding::Level;

std::string first_line(std::string_view text) {
  return std::string{text.substr(0, text.find('\n'))};
}

class Examination {
 public:
  explicit Examination(const Url& url)
      : connection_{connect(address_of(url, {"lock"}))}, quiet_{*connection_} {}

  void run(const std::vector<Check>& checks) {
    for (const auto& check : checks) {
      try {
        pqxx::work tx{*connection_};
        for (auto&& finding : check.look(tx, check.name)) findings_.push_back(std::move(finding));
      } catch (const pqxx::sql_error& error) {
        if (!connection_->is_open())
          throw Unavailable(fmt::format("{}: {}", check.name, first_line(error.what())));
        findings_.push_back(
            {Level::warning, check.name,
             fmt::format("cannot be looked at with this role: {}", first_line(error.what()))});
      } catch (const pqxx::failure& error) {
        throw Unavailable(fmt::format("{}: {}", check.name, first_line(error.what())));
      }
    }
  }

  // A lock that lives by a connection does not live through a pooler.
  void examine_pooler(bool needs_session) {
    constexpr auto check = "pooler";
    if (!is_pooled(*connection_)) return findings_.push_back({Level::ok, check, "none between"});
    if (needs_session) {
      return findings_.push_back({Level::danger, check,
                                  "one stands between (PgBouncer): a lease of lock=row or lock=advisory does "
                                  "not stay with its connection; "
                                  "go to the server itself"});
    }
    findings_.push_back(
        {Level::warning, check,
         "one stands between (PgBouncer): claims and leases by time work, because they are the "
         "transaction's; waiting for a lock is not woken by LISTEN, and lock=row or lock=advisory do "
         "not work. An advance cuts what the server sees: the pooler's connections"});
  }

  // True if the fences can be looked at.
  bool examine_schema() {
    pqxx::work tx{*connection_};
    const int version = installed_version(tx);
    const auto extension =
        tx.exec("SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'fenceguard'");
    const auto form = extension.empty() ? std::string{"plain SQL"}
                                        : fmt::format("the extension fenceguard {} with its functions in C",
                                                      extension[0][0].c_str());
    const auto message = fmt::format("version {} of {}, {}", version, schema_version, form);
    const std::string upgrade =
        extension.empty() ? "run 'fenceguard sql postgres | psql'" : "run ALTER EXTENSION fenceguard UPDATE";
    if (version == schema_version) {
      // The last function that this version gained.
      const bool is_whole =
          tx.exec("SELECT pg_catalog.to_regprocedure('fenceguard.row_trigger_call(text, text)') IS NOT NULL")
              [0][0]
                  .as<bool>();
      findings_.push_back(
          {is_whole ? Level::ok : Level::warning, "schema",
           is_whole ? message
                    : message + ", installed by an older fenceguard: " + upgrade + " again, at any time"});
      return true;
    }
    findings_.push_back({Level::danger, "schema",
                         version == 0               ? "none: run 'fenceguard sql postgres | psql'"
                         : version > schema_version ? message + ": made by a newer fenceguard; use that one"
                                                    : message + ": " + upgrade + " to upgrade it"});
    return false;
  }

  [[nodiscard]] Findings take() { return std::move(findings_); }

 private:
  std::unique_ptr<pqxx::connection> connection_;
  Quiet quiet_;
  Findings findings_;
};

Findings examine(const Url& url, const std::vector<Check>& own_checks, bool needs_session) {
  Examination examination{url};
  examination.run(server_checks());
  examination.examine_pooler(needs_session);
  if (examination.examine_schema()) {
    examination.run(role_checks());
    examination.run(own_checks);
  }
  return examination.take();
}

}  // namespace

Findings examine_source(const Url& url) {
  const auto lock = url.parameters.find("lock");
  return examine(url, source_checks(), lock != url.parameters.end() && lock->second != "ttl");
}

Findings examine_storage(const Url& url) {
  return examine(url, fence_checks(), false);
}

}  // namespace fenceguard::postgres
