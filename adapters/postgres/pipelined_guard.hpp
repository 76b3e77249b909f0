#pragma once

// Guarded statements at the least cost that PostgreSQL allows without an extension: the judgement and the
// statement are both prepared and travel in one pipeline, which is one transaction and one round trip, with
// no BEGIN, no COMMIT and nothing to be parsed (libpq's pipeline mode, PostgreSQL documentation, section
// 34.5). It needs a connection of its own, because libpqxx cannot do that.
//
//   postgres::PipelinedGuard guard{"postgresql://db/bank"};
//   const auto done = guard.execute(lease->claim(), "UPDATE account SET balance = $1 WHERE id = $2", {"70",
//   "42"}); if (done.ruling.verdict != Verdict::admitted) ...
//
// Thread safety: one thread at a time.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/postgres/admit_options.hpp"
#include "guard/guard.hpp"

struct pg_conn;
struct pg_result;

namespace fenceguard::postgres {

class PipelinedGuard : public fenceguard::Guard {
 public:
  using Values = std::vector<std::optional<std::string>>;  // as text; nothing is null

  struct WriteResult {
    Ruling ruling;
    std::int64_t affected_rows = 0;
    std::vector<Values> rows;  // what the statement RETURNs
  };

  // Connects at the first use, and again after a connection was lost. conninfo: as libpq takes it.
  explicit PipelinedGuard(std::string conninfo, AdmitOptions options = {});
  ~PipelinedGuard() override;
  PipelinedGuard(const PipelinedGuard&) = delete;
  PipelinedGuard& operator=(const PipelinedGuard&) = delete;

  // As Guard::advance(). Throws Unavailable, OutcomeUnknown, Implausible, InvalidInput.
  [[nodiscard]] Ruling advance(const Claim& claim) override;

  // Judges the claim and, if it is admitted, runs the statement: both or nothing. One round trip for a claim
  // that equals its fence; one more where the claim must advance first. The statement is one INSERT, UPDATE,
  // DELETE or MERGE, or a WITH that ends in one, with parameters $1, $2, …; it is prepared at its first use,
  // in the same trip. What the statement itself, or a deferred constraint, raises passes through as
  // pqxx::sql_error, and nothing was written. Throws InvalidInput for another kind of statement; Unavailable
  // if nothing was written; OutcomeUnknown if the connection was lost before the end was seen, or the wait
  // for a synchronous standby was cancelled; Implausible. Never repeats what may have taken effect.
  [[nodiscard]] WriteResult execute(const Claim& claim, const std::string& statement,
                                    const Values& values = {});

  // As Guard::ask().
  [[nodiscard]] bool ask(const Claim& claim);

 private:
  struct Step;
  using Result = std::unique_ptr<pg_result, void (*)(pg_result*)>;

  void connect();
  void disconnect() noexcept;
  std::string prepared(const std::string& sql, std::vector<Step>& steps);
  std::vector<Result> run(const std::vector<Step>& steps);
  void send(const Step& step);
  [[nodiscard]] Values judged_values(const Claim& claim) const;

  const std::string conninfo_;
  const AdmitOptions options_;
  std::unique_ptr<pg_conn, void (*)(pg_conn*)> connection_;
  std::map<std::string, std::string> prepared_;  // SQL -> its name in the session
  std::string warned_;                           // of a commit that a standby may not have
};

}  // namespace fenceguard::postgres
