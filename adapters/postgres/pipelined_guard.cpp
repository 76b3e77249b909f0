#include "adapters/postgres/pipelined_guard.hpp"

#include <fmt/format.h>
#include <libpq-fe.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <pqxx/pqxx>
#include <string_view>

#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/fences/rulings.hpp"
#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

// So that a cancelled wait for a standby is told, whatever the session says, until the transaction ends.
#define HEARING "pg_catalog.set_config('client_min_messages', 'warning', true)"
constexpr const char* confirm_sql = "SELECT fenceguard.confirm($1, $2, $3), " HEARING;
constexpr const char* rule_sql = "SELECT fenceguard.require_admitted($1, $2, $3, $4, $5, $6, $7), " HEARING;
constexpr const char* advance_sql =
    "SELECT verdict, highest, " HEARING " FROM fenceguard.try_advance($1, $2, $3, $4, $5, $6)";
constexpr const char* ask_sql = "SELECT fenceguard.took_effect($1, $2, $3, $4), " HEARING;
#undef HEARING
constexpr const char* highest_sql = "SELECT fenceguard.highest_seen($1)";
constexpr const char* read_committed_sql = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

std::string_view field_of(const PGresult* result, int field) {
  const char* text = PQresultErrorField(result, field);
  return text == nullptr ? "" : text;
}

bool is_error(const PGresult* result) {
  return PQresultStatus(result) == PGRES_FATAL_ERROR;
}

[[noreturn]] void raise(const PGresult* result) {
  const std::string state{field_of(result, PG_DIAG_SQLSTATE)};
  if (state.empty()) throw pqxx::broken_connection{PQresultErrorMessage(result)};
  throw pqxx::sql_error{PQresultErrorMessage(result), "", state.c_str()};
}

// What could end the transaction, or go on after the message, is sent by no pipeline.
void require_writing(std::string_view statement, const PipelinedGuard::Values& values) {
  const auto has_null = [](const auto& text) { return text && text->find('\0') != std::string_view::npos; };
  if (has_null(std::optional{statement}) || std::ranges::any_of(values, has_null)) {
    throw InvalidInput("a statement or a value has a null byte, which PostgreSQL's text cannot hold");
  }
  constexpr std::array words{"insert", "update", "delete", "merge", "with"};
  const auto begin = std::ranges::find_if_not(statement, [](unsigned char c) { return std::isspace(c); });
  std::string word;
  for (auto at = begin; at != statement.end() && std::isalpha(static_cast<unsigned char>(*at)); ++at)
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  if (std::ranges::find(words, word) != words.end()) return;
  throw InvalidInput("a guarded statement begins with INSERT, UPDATE, DELETE, MERGE or WITH");
}

// Only the wait for a standby warns from there; what triggers say is theirs.
void hear(void* warned, const PGresult* notice) {
  const auto source = field_of(notice, PG_DIAG_SOURCE_FILE);
  if (!source.empty() && source.find("syncrep") == std::string_view::npos) return;
  auto& text = *static_cast<std::string*>(warned);
  if (text.empty()) text = PQresultErrorMessage(notice);
}

}  // namespace

// One message of the protocol: a statement to be prepared under a name, one that is, or one that is run as it
// is.
struct PipelinedGuard::Step {
  enum class Kind { prepare, run_prepared, run };
  Kind kind = Kind::run;
  std::string name;
  std::string sql;
  Values values;
};

PipelinedGuard::PipelinedGuard(std::string conninfo, AdmitOptions options)
    : conninfo_{std::move(conninfo)}, options_{options}, connection_{nullptr, PQfinish} {}

PipelinedGuard::~PipelinedGuard() = default;

void PipelinedGuard::connect() {
  if (connection_ && PQstatus(connection_.get()) == CONNECTION_OK) return;
  disconnect();
  connection_.reset(PQconnectdb(conninfo_.c_str()));
  // A resource has the same name in every session.
  if (PQstatus(connection_.get()) != CONNECTION_OK || PQsetClientEncoding(connection_.get(), "UTF8") != 0 ||
      PQenterPipelineMode(connection_.get()) != 1) {
    const std::string reason = PQerrorMessage(connection_.get());
    disconnect();
    throw Unavailable(fmt::format("the database cannot be reached: {}", reason));
  }
  PQsetNoticeReceiver(connection_.get(), hear, &warned_);
}

void PipelinedGuard::disconnect() noexcept {
  connection_.reset();
  prepared_.clear();
}

std::string PipelinedGuard::prepared(const std::string& sql, std::vector<Step>& steps) {
  auto& name = prepared_[sql];
  if (name.empty()) {
    name = "fenceguard_" + Holder::random().id();
    steps.push_back({Step::Kind::prepare, name, sql, {}});
  }
  return name;
}

void PipelinedGuard::send(const Step& step) {
  auto* connection = connection_.get();
  std::vector<const char*> values;
  for (const auto& value : step.values) values.push_back(value ? value->c_str() : nullptr);
  const int count = static_cast<int>(values.size());
  const auto was_sent = [&] {
    switch (step.kind) {
      case Step::Kind::prepare:
        return PQsendPrepare(connection, step.name.c_str(), step.sql.c_str(), 0, nullptr);
      case Step::Kind::run_prepared:
        return PQsendQueryPrepared(connection, step.name.c_str(), count, values.data(), nullptr, nullptr, 0);
      case Step::Kind::run:
        break;
    }
    return PQsendQueryParams(connection, step.sql.c_str(), count, nullptr, values.data(), nullptr, nullptr,
                             0);
  }();
  if (was_sent != 1) throw pqxx::broken_connection{PQerrorMessage(connection)};
}

// The steps as one transaction, in one round trip. One result for each, and behind them the commit's error if
// there is one. Throws pqxx::broken_connection if the end was not seen, and in_doubt_error if it came with
// the warning that a standby may not have it; the connection is then given up.
std::vector<PipelinedGuard::Result> PipelinedGuard::run(const std::vector<Step>& steps) {
  warned_.clear();
  auto* connection = connection_.get();
  std::vector<Result> results;
  try {
    for (const auto& step : steps) send(step);
    if (PQpipelineSync(connection) != 1) throw pqxx::broken_connection{PQerrorMessage(connection)};
    while (true) {
      Result result{PQgetResult(connection), PQclear};
      if (PQstatus(connection) != CONNECTION_OK) throw pqxx::broken_connection{PQerrorMessage(connection)};
      if (!result) continue;  // between two steps
      const auto status = PQresultStatus(result.get());
      if (status == PGRES_PIPELINE_SYNC) break;
      if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
        throw pqxx::broken_connection{"it answered with a COPY, which was not asked for"};
      }
      results.push_back(std::move(result));
    }
    if (PQtransactionStatus(connection) != PQTRANS_IDLE) {
      throw pqxx::broken_connection{"the statement left a transaction open"};
    }
  } catch (...) {
    disconnect();
    throw;
  }
  if (!warned_.empty()) throw pqxx::in_doubt_error{warned_};
  return results;
}

PipelinedGuard::Values PipelinedGuard::judged_values(const Claim& claim) const {
  const auto maybe = [](const auto& value, auto&& text) {
    return value ? std::optional<std::string>{text(*value)} : std::nullopt;
  };
  return {claim.resource.name(),
          std::to_string(claim.token.value()),
          claim.holder.id(),
          maybe(claim.sequence, [](const auto& sequence) { return to_string(sequence); }),
          maybe(options_.drain, [](auto drain) { return fmt::format("{} milliseconds", drain.count()); }),
          maybe(options_.cut, [](bool cut) { return cut ? "true" : "false"; }),
          std::to_string(options_.jump_max)};
}

Ruling PipelinedGuard::advance(const Claim& claim) {
  connect();
  return mapped(Stage::statement, fmt::format("advancing {}", claim.resource.name()), [&] {
    auto values = judged_values(claim);
    values.erase(values.begin() + 3);  // the sequence
    const auto results =
        run({{Step::Kind::run, {}, read_committed_sql, {}}, {Step::Kind::run, {}, advance_sql, values}});
    for (const auto& result : results)
      if (is_error(result.get())) raise(result.get());
    const auto* row = results.at(1).get();
    return ruling_of(claim.without_sequence(), PQgetvalue(row, 0, 0), std::stoll(PQgetvalue(row, 0, 1)));
  });
}

PipelinedGuard::WriteResult PipelinedGuard::execute(const Claim& claim, const std::string& statement,
                                                    const Values& values) {
  require_writing(statement, values);
  const auto doing = fmt::format("writing {}", claim.resource.name());
  // What equals the fence is confirmed; where that needs more, and for a sequence, the rule is asked.
  bool is_confirming = !claim.sequence;
  for (bool is_first = true;; is_first = false) {
    connect();
    std::vector<Step> steps;
    if (!is_confirming) steps.push_back({Step::Kind::run, {}, read_committed_sql, {}});
    auto judging = judged_values(claim);
    if (is_confirming) judging.resize(3);
    Step judge{
        Step::Kind::run_prepared, prepared(is_confirming ? confirm_sql : rule_sql, steps), {}, judging};
    Step write{Step::Kind::run_prepared, prepared(statement, steps), {}, values};
    const auto judged_at = steps.size();
    steps.push_back(std::move(judge));
    steps.push_back(std::move(write));
    auto stage = Stage::statement;
    try {
      const auto results = run(steps);
      const auto failed = std::ranges::find_if(results, [](const auto& one) { return is_error(one.get()); });
      if (failed == results.end()) {
        const auto* rows = results.at(judged_at + 1).get();
        WriteResult written{make_ruling(claim, Verdict::admitted, claim.token.value()), 0, {}};
        if (const std::string_view count = PQcmdTuples(const_cast<PGresult*>(rows)); !count.empty()) {
          written.affected_rows = std::stoll(std::string{count});
        }
        for (int i = 0; i < PQntuples(rows); ++i) {
          auto& row = written.rows.emplace_back();
          for (int j = 0; j < PQnfields(rows); ++j) {
            row.push_back(
                PQgetisnull(rows, i, j) == 1
                    ? std::nullopt
                    : std::optional<std::string>{std::in_place, PQgetvalue(rows, i, j),
                                                 static_cast<std::size_t>(PQgetlength(rows, i, j))});
          }
        }
        return written;
      }
      // Nothing was written: an error anywhere in the pipeline takes all of it back.
      const auto index = static_cast<std::size_t>(failed - results.begin());
      const auto state = field_of(failed->get(), PG_DIAG_SQLSTATE);
      if (index < steps.size()) stage = Stage::before_commit;
      // What was to be prepared after it is not; what was before it stays, whatever became of the
      // transaction.
      for (auto i = index; i < steps.size(); ++i) prepared_.erase(steps[i].sql);
      // The session is another one, as behind a pooler; or what the statement returns has changed.
      if (is_first && (state == "26000" || (state == "0A000" && index == judged_at + 1))) {
        if (state == "26000") prepared_.clear();
        prepared_.erase(statement);
        continue;
      }
      if (index == judged_at) {
        if (state == "40001" && is_confirming) {
          is_confirming = false;
          continue;
        }
        if (const auto verdict = refusal_of_state(state)) {
          const auto highest = mapped(Stage::before_commit, doing, [&] {
            const auto seen = run({{Step::Kind::run, {}, highest_sql, {claim.resource.name()}}});
            if (is_error(seen.at(0).get())) raise(seen.at(0).get());
            return std::stoll(PQgetvalue(seen.at(0).get(), 0, 0));
          });
          if (*verdict == Verdict::duplicate) (void)ask(claim);
          return {make_ruling(claim, *verdict, highest), 0, {}};
        }
      }
      raise(failed->get());
    } catch (const Error&) {
      throw;
    } catch (...) {
      raise_or_pass(stage, doing);
    }
  }
}

bool PipelinedGuard::ask(const Claim& claim) {
  if (!claim.sequence) throw InvalidInput("a write without a sequence leaves no trace to ask for");
  connect();
  return mapped(Stage::before_commit, fmt::format("asking after {}", claim.resource.name()), [&] {
    auto values = judged_values(claim);
    values.resize(4);
    const auto results = run({{Step::Kind::run, {}, ask_sql, values}});
    for (const auto& result : results)
      if (is_error(result.get())) raise(result.get());
    return std::string_view{PQgetvalue(results.at(0).get(), 0, 0)} == "t";
  });
}

}  // namespace fenceguard::postgres
