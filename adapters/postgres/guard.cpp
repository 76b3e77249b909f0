#include "adapters/postgres/guard.hpp"

#include <fmt/format.h>
#include <libpq-events.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <set>

#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/fences/commit_warning.hpp"
#include "adapters/postgres/fences/rulings.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

constexpr const char* read_committed = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

// A savepoint's rollback would take the locks along while the outer transaction writes on.
void require_outermost(pqxx::dbtransaction& tx) {
  if (dynamic_cast<pqxx::subtransaction*>(&tx) == nullptr) return;
  doom(tx);
  throw InvalidInput("a claim is admitted in a transaction, not in a subtransaction: admit before the first");
}

// Judges in a transaction of the caller's.
template <class Function>
auto judged_in(pqxx::dbtransaction& tx, const std::string& doing, const Function& function) {
  require_outermost(tx);
  try {
    return mapped(Stage::before_commit, doing, function);
  } catch (...) {
    doom(tx);
    throw;
  }
}

// The commit that is known to be one. A lost connection is told from what proves a rollback.
template <class Function>
void commit_certainly(AnyConnection& connection, const Function& send) {
  try {
    unless_warned(connection, send);
  } catch (const pqxx::in_doubt_error&) {
    throw;
  } catch (const std::exception& error) {
    if (is_rolled_back(current_state())) throw;
    throw pqxx::in_doubt_error{error.what()};
  }
}

#if PQXX_VERSION_MAJOR < 7
// Whether SQL may end the transaction that it is sent in. Any such word counts, also in a literal. No CALL or
// DO can: the server lets them end none that was begun outside of them. EXECUTE may be of a prepared COMMIT.
bool may_end_transaction(std::string_view sql) {
  static const std::set<std::string_view> ending{"commit", "end", "rollback", "abort", "prepare", "execute"};
  const auto is_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || (c & '\x80') != 0;
  };
  for (auto at = sql.begin(); at != sql.end();) {
    at = std::find_if(at, sql.end(), is_of_word);
    const auto end = std::find_if_not(at, sql.end(), is_of_word);
    std::string word{at, end};
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (ending.contains(word)) return true;
    at = end;
  }
  return false;
}

// Sees by the answers to whatever is sent, by exec_params() as well, that a transaction has ended. Of
// libpqxx's classes the base is the one that shows libpq's connection.
class EndWatch : pqxx::largeobject {
 public:
  explicit EndWatch(const pqxx::dbtransaction& tx) : tx_{tx} {
    // Registered once and for all: libpq forgets none.
    PQregisterEventProc(raw_connection(tx_), &hear, "fenceguard", nullptr);
    is_watching_ = PQsetInstanceData(raw_connection(tx_), &hear, this) != 0;
  }
  ~EndWatch() {
    if (auto* connection = raw_connection(tx_)) PQsetInstanceData(connection, &hear, nullptr);
  }
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  [[nodiscard]] bool may_have_seen_end() const noexcept { return !is_watching_ || has_seen_end_; }

 private:
  static int hear(PGEventId event, void* info, void*) {
    if (event == PGEVT_RESULTCREATE) {
      const auto* created = static_cast<PGEventResultCreate*>(info);
      const std::string_view tag = PQcmdStatus(created->result);
      auto* watch = static_cast<EndWatch*>(PQinstanceData(created->conn, &hear));
      // A rollback to a savepoint has the tag of one of all.
      if (watch != nullptr && (tag.starts_with("COMMIT") || tag.starts_with("ROLLBACK") ||
                               tag.starts_with("PREPARE TRANSACTION")))
        watch->has_seen_end_ = true;
    }
    return 1;
  }

  const pqxx::dbtransaction& tx_;
  bool is_watching_ = false;
  bool has_seen_end_ = false;
};
#endif

// A transaction whose commit fails where the admission does not stand any more or a statement had failed:
// PostgreSQL answers such a COMMIT with ROLLBACK, which libpqxx takes for success. The look travels with the
// COMMIT, in one message.
#if PQXX_VERSION_MAJOR < 7
class GuardedWork : public pqxx::work {
 public:
  GuardedWork(pqxx::connection& connection, const Claim& claim)
      : pqxx::internal::namedclass{"guarded write"}, pqxx::work{connection}, claim_{claim} {}

  [[nodiscard]] bool was_commit_sent() const noexcept { return was_commit_sent_; }
  // Whether the session was lost by a statement of exec(), and nothing before it or in it can have ended the
  // transaction. What exec_params() and exec_prepared() send is not seen until it is answered.
  [[nodiscard]] bool is_certainly_cut_off() const noexcept { return is_cut_off_ && !conn().is_open(); }

 private:
  // Without libpqxx's own answer to a failure, which is to roll back at once: what then comes by
  // exec_params() would run alone. So the transaction stays failed at the server, and takes nothing more.
  pqxx::result do_exec(const char query[]) override {
    // Lost before: by what was not seen.
    if (!is_cut_off_ && !conn().is_open()) may_have_ended_ = true;
    if (!watch_) watch_.emplace(*this);
    may_have_ended_ = may_have_ended_ || may_end_transaction(query);
    try {
      return direct_exec(query);
    } catch (...) {
      is_cut_off_ = !conn().is_open() && !may_have_ended_ && !watch_->may_have_seen_end();
      throw;
    }
  }

  void do_commit() override {
    const auto message = fmt::format("SELECT fenceguard.require_noted({}); {}; COMMIT",
                                     claim_arguments(*this, claim_), hear_warnings_sql);
    was_commit_sent_ = true;
    try {
      commit_certainly(conn(), [&] { direct_exec(message.c_str()); });
    } catch (const pqxx::sql_error& error) {
      // Unless it was the COMMIT that failed, the transaction is still open.
      const auto& state = error.sqlstate();
      if (!state.starts_with("23") && !state.starts_with("P0")) direct_exec("ROLLBACK");
      throw;
    }
  }

  const Claim& claim_;
  std::optional<EndWatch> watch_;  // from the first statement, the admission, on
  bool may_have_ended_ = false;
  bool is_cut_off_ = false;
  bool was_commit_sent_ = false;
};
#else
// libpqxx 7 lets no class of ours override the commit: the look is a round trip of its own.
class GuardedWork {
 public:
  GuardedWork(pqxx::connection& connection, const Claim& claim) : work_{connection}, claim_{claim} {}

  operator pqxx::work&() noexcept { return work_; }
  pqxx::result exec(const std::string& sql) { return work_.exec(sql); }
  void abort() { work_.abort(); }
  void commit() {
    work_.exec(fmt::format("SELECT fenceguard.require_noted({}); {}", claim_arguments(work_, claim_),
                           hear_warnings_sql));
    was_commit_sent_ = true;
    commit_certainly(work_.conn(), [&] { work_.commit(); });
  }
  [[nodiscard]] bool was_commit_sent() const noexcept { return was_commit_sent_; }
  // Nor does it show what was sent.
  [[nodiscard]] bool is_certainly_cut_off() const noexcept { return false; }

 private:
  pqxx::work work_;
  const Claim& claim_;
  bool was_commit_sent_ = false;
};
#endif

// The verdict that the exception now being handled tells of this claim; one of another claim, which the
// caller's own statement made, is the caller's.
std::optional<Verdict> refusal_of(pqxx::connection& connection, const Claim& claim) {
  const auto refusal = refusal_of_state(current_state());
  if (!refusal) return std::nullopt;
  std::string told;
  try {
    throw;
  } catch (const std::exception& error) {
    told = error.what();
  }
  auto name = connection.quote(claim.resource.name());
  name.erase(0, name.find_first_not_of(' '));
  const auto token = fmt::format("\"token\": \"{}\"", claim.token.value());
  const bool is_ours = told.find(name) != std::string::npos && told.find(token) != std::string::npos;
  return is_ours ? refusal : std::nullopt;
}

// Whether the exception now being handled tells that this connection's session has ended: by the drain of a
// newer claim, an administrator, the network. It may be of another connection, which the caller's function
// uses as well; so the connection itself is asked.
bool has_session_ended(const pqxx::connection& connection) noexcept {
  if (connection.is_open()) return false;
  if (is_session_end(current_state())) return true;
  try {
    throw;
  } catch (const pqxx::broken_connection&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::string writing(const Claim& claim) {
  return fmt::format("writing {}", claim.resource.name());
}

}  // namespace

Ruling admit_in(pqxx::dbtransaction& tx, const Claim& claim, const AdmitOptions& options) {
  const auto ruling = judged_in(tx, fmt::format("admitting a claim to {}", claim.resource.name()), [&] {
    // Not exec(), which ends the transaction if it fails.
    const auto rows = exec_params(tx, fmt::format("SELECT verdict, highest FROM fenceguard.rule({})",
                                                  rule_arguments(tx, claim, options)));
    return ruling_of(claim, rows[0]);
  });
  if (ruling.verdict != Verdict::admitted) doom(tx);
  return ruling;
}

std::vector<Ruling> admit_all_in(pqxx::dbtransaction& tx, std::span<const Claim> claims,
                                 const AdmitOptions& options) {
  const auto rulings = judged_in(tx, "admitting several claims", [&] {
    std::set<std::string_view> names;
    for (const Claim& claim : claims) {
      if (names.insert(claim.resource.name()).second) continue;
      throw InvalidInput("two claims of one call name the same resource");
    }
    if (claims.empty()) throw InvalidInput("no claims: name at least one");
    const auto rows = exec_params(
        tx, fmt::format("SELECT r.resource, r.verdict, r.highest FROM fenceguard.rule_all({}::jsonb, {}) r",
                        tx.quote(claims_json(claims)), option_arguments(options)));
    std::map<std::string, pqxx::row> by_resource;
    for (const auto& row : rows) by_resource.emplace(row[0].c_str(), row);
    std::vector<Ruling> result;
    for (const Claim& claim : claims)
      result.push_back(ruling_of(claim, by_resource.at(claim.resource.name())));
    return result;
  });
  for (const auto& ruling : rulings) {
    if (ruling.verdict == Verdict::admitted) continue;
    doom(tx);
    break;
  }
  return rulings;
}

void commit(pqxx::dbtransaction& tx) {
  bool was_sent = false;
  try {
    tx.exec(hear_warnings_sql);  // fails where a statement had failed
    was_sent = true;
    commit_certainly(tx.conn(), [&] { tx.commit(); });
  } catch (const pqxx::usage_error& error) {
    throw OutcomeUnknown(
        fmt::format("committing: {}; statements that were sent after it was aborted may have taken effect",
                    error.what()));
  } catch (...) {
    raise_or_pass(was_sent ? Stage::at_commit : Stage::before_commit, "committing");
  }
}

Ruling Guard::advance(const Claim& claim) {
  return mapped(Stage::statement, fmt::format("advancing {}", claim.resource.name()), [&] {
    pqxx::nontransaction tx{connection_};
    // Two statements in one message are one transaction.
    const auto rows = unless_warned(connection_, [&] {
      return tx.exec(fmt::format("{}; {}; SELECT verdict, highest FROM fenceguard.try_advance({}, {})",
                                 read_committed, hear_warnings_sql, claim_arguments(tx, claim),
                                 option_arguments(options_)));
    });
    return ruling_of(claim.without_sequence(), rows[0]);
  });
}

Ruling Guard::write(const Claim& claim, const std::function<void(pqxx::work&)>& apply) {
  const auto doing = writing(claim);
  auto tx =
      mapped(Stage::before_commit, doing, [&] { return std::make_unique<GuardedWork>(connection_, claim); });
  const auto ruling = mapped(Stage::before_commit, doing, [&] {
    const auto rows = tx->exec(fmt::format("{}; SELECT verdict, highest FROM fenceguard.rule({})",
                                           read_committed, rule_arguments(*tx, claim, options_)));
    return ruling_of(claim, rows[0]);
  });
  if (ruling.verdict != Verdict::admitted) {
    tx->abort();
    tx.reset();
    confirm(claim, ruling);
    return ruling;
  }
  // What the end of the session before our own COMMIT was sent means.
  const auto cut_off = [&] {
    if (tx->is_certainly_cut_off()) return Ruling{};  // stale
    throw OutcomeUnknown(fmt::format(
        "{}: the session ended before COMMIT was sent, but a statement may have ended the transaction before",
        doing));
  };
  try {
    apply(*tx);
  } catch (...) {
    if (has_session_ended(connection_)) return cut_off();
    throw;
  }
  try {
    tx->commit();
  } catch (const pqxx::usage_error&) {
    throw OutcomeUnknown(fmt::format(
        "{}: the transaction was aborted, and statements that were sent after that may have taken effect",
        doing));
  } catch (...) {
    if (current_state() == "ZF003") {
      throw OutcomeUnknown(
          fmt::format("{}: the admission is gone: a statement ended the transaction, or rolled back to a "
                      "savepoint that is older; it may or may not have taken effect",
                      doing));
    }
    if (!tx->was_commit_sent() && has_session_ended(connection_)) return cut_off();
    raise_or_pass(tx->was_commit_sent() ? Stage::at_commit : Stage::before_commit, doing);
  }
  return ruling;
}

std::string Guard::prepared(const std::string& statement) {
  auto& name = prepared_[statement];
  if (name.empty()) {
    const auto fresh = "fenceguard_" + Holder::random().id();
    // By the protocol's own message, which takes one statement and no more.
    connection_.prepare(fresh, statement);
#if PQXX_VERSION_MAJOR < 7
    connection_.prepare_now(fresh);
#endif
    name = fresh;
  }
  return name;
}

pqxx::result Guard::send_guarded(const Claim& claim, const std::string& statement,
                                 const Parameters& parameters) {
  const std::string name = prepared(statement);
  pqxx::nontransaction tx{connection_};
  std::string values;
  for (const auto& value : parameters) {
    values += values.empty() ? "(" : ", ";
    values += value ? tx.quote(*value) : "null";
  }
  if (!values.empty()) values += ")";
  const auto call = fmt::format("EXECUTE {}{}", name, values);
  // In one message: one transaction, which ends with it. After a refusal the statement is not begun.
  const auto message =
      fmt::format("{}; SELECT {}; SELECT fenceguard.require_admitted({}); {}", read_committed,
                  hear_standby_sql, rule_arguments(tx, claim, options_), call);
  return unless_warned_by_standby(tx, [&] { return tx.exec(message); });
}

WriteResult Guard::execute(const Claim& claim, const std::string& statement, const Parameters& parameters) {
  const auto doing = writing(claim);
  for (bool is_first = true;; is_first = false) {
    try {
      auto result = send_guarded(claim, statement, parameters);
      return {make_ruling(claim, Verdict::admitted, claim.token.value()), result};
    } catch (...) {
      const auto state = current_state();
      if (const auto verdict = refusal_of(connection_, claim)) {
        const auto highest = mapped(Stage::before_commit, doing, [&] {
          pqxx::nontransaction tx{connection_};
          return exec_row(tx, "SELECT fenceguard.highest_seen($1)", claim.resource.name())[0]
              .as<std::int64_t>();
        });
        const auto ruling = make_ruling(claim, *verdict, highest);
        confirm(claim, ruling);
        return {ruling, {}};
      }
      // The statement is prepared no more: the session is another one. Nothing was written.
      if (state != "26000" || !is_first) raise_or_pass(Stage::statement, doing);
      prepared_.erase(statement);
    }
  }
}

void Guard::confirm(const Claim& claim, const Ruling& ruling) {
  if (ruling.verdict == Verdict::duplicate) (void)ask(claim);
}

bool Guard::ask(const Claim& claim) {
  if (!claim.sequence) throw InvalidInput("a write without a sequence leaves no trace to ask for");
  return mapped(Stage::before_commit, fmt::format("asking after {}", claim.resource.name()), [&] {
    pqxx::nontransaction tx{connection_};
    // Its commit waits for whatever that of the write waited for.
    return unless_warned(
               connection_,
               [&] {
                 return tx.exec(fmt::format("{}; SELECT fenceguard.took_effect({}, {})", hear_warnings_sql,
                                            claim_arguments(tx, claim), to_string(*claim.sequence)));
               })[0][0]
        .as<bool>();
  });
}

}  // namespace fenceguard::postgres
