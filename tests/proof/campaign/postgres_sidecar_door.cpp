#include <fmt/format.h>
#include <libpq-fe.h>

#include "adapters/postgres/errors.hpp"
#include "guard/error.hpp"
#include "guard/token.hpp"
#include "tests/proof/campaign/door.hpp"

namespace fenceguard::campaign {
namespace {

using Answer = std::unique_ptr<PGresult, decltype(&PQclear)>;

// The table journal through a sidecar, by a program with its claim in the connection string: as it connects
// its claim is advanced, and each of its statements is a transaction of its own.
class PostgresSidecarDoor : public Door {
 public:
  explicit PostgresSidecarDoor(std::string folder) : folder_{std::move(folder)} {}

  Ruling advance(const Claim& claim) override {
    forget();
    return open(&claim);
  }

  Ruling write(const Claim& claim, const std::string& entry) override {
    if (const auto ruling = open(&claim); ruling.verdict != Verdict::admitted) return ruling;
    const auto answer = run("INSERT INTO journal (resource, entry) VALUES ($1, $2)",
                            {claim.resource.name().c_str(), entry.c_str()});
    return ruling_of(answer, true);
  }

  Read read(const Claim& claim) override {
    Read read{open(&claim)};
    if (read.ruling.verdict != Verdict::admitted) return read;
    const auto answer = select(claim.resource);
    read.ruling = ruling_of(answer, false);
    if (read.ruling.verdict == Verdict::admitted) read.entry = entry_of(answer);
    return read;
  }

  std::optional<std::string> look(const Resource& resource) override {
    (void)open(nullptr);
    const auto answer = select(resource);
    (void)ruling_of(answer, false);
    return entry_of(answer);
  }

  void write_unguarded(const Resource& /*resource*/, const std::string& /*entry*/) override {
    throw InvalidInput("nothing is written here without a claim");
  }

 private:
  // A space or a backslash in options has a backslash in front (docs/postgres/recipes.md).
  static std::string option_of(const Claim& claim) {
    const auto text =
        fmt::format(R"(fenceguard.session_claims=[{{"resource":"{}","token":"{}","holder":"{}"}}])",
                    claim.resource.name(), to_string(claim.token), claim.holder.id());
    std::string escaped = "-c ";
    for (const char c : text) {
      if (c == ' ' || c == '\\') escaped += '\\';
      escaped += c;
    }
    return escaped;
  }

  // The connection under that claim, or without one.
  Ruling open(const Claim* claim) {
    const auto option = claim != nullptr ? option_of(*claim) : std::string{};
    if (connection_ && option == option_ && PQstatus(connection_.get()) == CONNECTION_OK)
      return {.verdict = Verdict::admitted, .fence = {}};
    const char* const names[] = {"host", "port", "dbname", "user", "options", nullptr};
    const char* const values[] = {folder_.c_str(), "5432", "campaign", "postgres", option.c_str(), nullptr};
    connection_.reset(PQconnectdbParams(names, values, 0));
    option_ = option;
    if (PQstatus(connection_.get()) == CONNECTION_OK) return {.verdict = Verdict::admitted, .fence = {}};
    const std::string told = PQerrorMessage(connection_.get());
    forget();
    if (told.find("' is stale") != told.npos) return {.verdict = Verdict::stale, .fence = {}};
    if (told.find("another holder uses") != told.npos) return {.verdict = Verdict::conflict, .fence = {}};
    throw Unavailable("connecting: " + told);
  }

  void forget() { connection_.reset(); }

  Answer run(const char* statement, const std::vector<const char*>& values) {
    return {PQexecParams(connection_.get(), statement, static_cast<int>(values.size()), nullptr,
                         values.data(), nullptr, nullptr, 0),
            &PQclear};
  }

  Answer select(const Resource& resource) {
    return run("SELECT entry FROM journal WHERE resource = $1 ORDER BY position DESC LIMIT 1",
               {resource.name().c_str()});
  }

  // What a failure means is said in docs/postgres-sidecar.md.
  Ruling ruling_of(const Answer& answer, bool writes) {
    const auto status = PQresultStatus(answer.get());
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
      return {.verdict = Verdict::admitted, .fence = {}};
    const char* field = PQresultErrorField(answer.get(), PG_DIAG_SQLSTATE);
    const std::string state = field != nullptr ? field : "";
    const std::string told = PQresultErrorMessage(answer.get());
    forget();
    if (state == "ZF001") return {.verdict = Verdict::stale, .fence = {}};
    if (state == "ZF002") return {.verdict = Verdict::conflict, .fence = {}};
    if (!writes || postgres::is_rolled_back(state)) throw Unavailable(state + ": " + told);
    throw OutcomeUnknown(state + ": " + told);
  }

  static std::optional<std::string> entry_of(const Answer& answer) {
    if (PQntuples(answer.get()) == 0) return std::nullopt;
    return PQgetvalue(answer.get(), 0, 0);
  }

  const std::string folder_;
  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_{nullptr, &PQfinish};
  std::string option_;
};

}  // namespace

std::unique_ptr<Door> open_postgres_sidecar(const std::string& folder) {
  return std::make_unique<PostgresSidecarDoor>(folder);
}

}  // namespace fenceguard::campaign
