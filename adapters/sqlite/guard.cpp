#include "adapters/sqlite/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/file/schema.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

// The levels of PRAGMA synchronous.
constexpr std::int64_t synchronous_full = 2;
constexpr std::int64_t synchronous_extra = 3;

// An advance must be durable whatever the connection was set to; inside a transaction it cannot be changed
// any more. In the modes with a rollback journal that takes EXTRA: a journal whose removal was not synced is
// rolled back after a power cut. Answers whether there is a log. REQUIRES: no transaction is open.
bool require_durable(sqlite3* connection) {
  Statement journal{connection, "PRAGMA journal_mode"};
  Statement present{connection, "PRAGMA synchronous"};
  const bool is_wal = journal.bind().step() && journal.text(0) == "wal";
  const bool is_enough =
      present.bind().step() && present.integer(0) >= (is_wal ? synchronous_full : synchronous_extra);
  journal.reset();
  present.reset();
  if (!is_enough) execute(connection, is_wal ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = EXTRA");
  return is_wal;
}

// A function of the connection's own is the mark that it has settled the log: the mark goes with it.
// (sqlite3_set_clientdata() came with SQLite 3.44.)
constexpr const char* mark_name = "fenceguard_log_is_settled";

void answer_null(sqlite3_context* context, int, sqlite3_value**) {
  sqlite3_result_null(context);
}

void set_mark(sqlite3* connection, bool is_settled) noexcept {
  sqlite3_create_function_v2(connection, mark_name, 0, SQLITE_UTF8, nullptr,
                             is_settled ? answer_null : nullptr, nullptr, nullptr, nullptr);
}

bool has_mark(sqlite3* connection) {
  sqlite3_stmt* call = nullptr;
  const auto sql = fmt::format("SELECT {}()", mark_name);
  const int code = sqlite3_prepare_v2(connection, sql.c_str(), -1, &call, nullptr);
  sqlite3_finalize(call);
  return code == SQLITE_OK;
}

// Before the first transaction of a connection, for what a process before it has left in the log. While it is
// open no process reads the log anew.
void settle_once(sqlite3* connection) {
  if (has_mark(connection) || !has_table(connection, "fenceguard_schema")) return;
  settle_log(connection);
  set_mark(connection, true);
}

// After a commit that failed: what the next transaction sees is then what a crash leaves, if the disk works
// again by now. If it does not, the next transaction settles the log first.
void settle_again(sqlite3* connection) noexcept {
  set_mark(connection, false);
  try {
    settle_log(connection);
    set_mark(connection, true);
  } catch (const std::exception&) {
    // The end stays unknown, as it was.
  }
}

// Where path leads to another file by now, the lock that was taken there keeps no guard of this one out.
void require_in_place(sqlite3* connection, const char* path) {
  int has_moved = 0;
  sqlite3_file_control(connection, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
  if (has_moved == 0) return;
  throw Unavailable(fmt::format(
      "{} was moved, replaced or deleted while this connection was open: close it and open the database anew",
      path));
}

}  // namespace

class Transaction::State {
 public:
  State(sqlite3* connection, std::int64_t jump_max) : fences_{connection}, jump_max_{jump_max} {
    const char* path = sqlite3_db_filename(connection, "main");
    // A database in memory has no file, and no other process uses it.
    if (path == nullptr || *path == '\0') return;
    no_guard_.emplace(path, GuardLock::Kind::transaction);
    require_in_place(connection, path);
  }

  std::vector<Ruling> admit(std::span<const Claim> claims) {
    refused_ = true;  // until all were admitted, whatever is thrown on the way
    auto row = fences_.load_namespace();
    if (!row)
      throw Unavailable(
          "the database's fences are not initialised: run sqlite::install_in() or 'fenceguard fence init'");
    std::vector<Ruling> rulings;
    bool all_admitted = true;
    for (const Claim& claim : claims) {
      const FenceView view{fences_.load(claim.resource.name()), row->floor};
      rulings.push_back(judge(view, claim));
      if (rulings.back().verdict != Verdict::admitted) all_admitted = false;
      if (rulings.back().changed && is_implausible(claim, row->highest, jump_max_)) {
        throw Implausible(fmt::format("the token for '{}' is more than {} above the highest seen here, {}",
                                      claim.resource.name(), jump_max_, row->highest));
      }
    }
    if (!all_admitted) return rulings;
    for (std::size_t i = 0; i < claims.size(); ++i) record(claims[i].resource, rulings[i], *row);
    if (changed_namespace_) fences_.store_namespace(*row);
    for (const Claim& claim : claims) note_admitted(claim);
    refused_ = was_refused_;
    return rulings;
  }

  // False if what was admitted is on record no more, because a savepoint was rolled back.
  [[nodiscard]] bool is_on_record() {
    return std::all_of(admitted_.begin(), admitted_.end(), [this](const auto& entry) {
      const Claim& claim = entry.second;
      const auto fence = fences_.load(claim.resource.name());
      return fence && fence->token == claim.token && fence->holder == claim.holder &&
             (!claim.sequence || fence->sequence == claim.sequence);
    });
  }

  // A refusal stays for the rest of the transaction.
  void keep_refusal() { was_refused_ = refused_; }
  void refuse() { refused_ = true; }
  [[nodiscard]] bool is_refused() const { return refused_; }

 private:
  void record(const Resource& resource, const Ruling& ruling, NamespaceRow& row) {
    if (!ruling.changed) return;
    if (!fences_.load(resource.name())) ++row.resources;
    row.highest = std::max(row.highest, ruling.fence->token.value());
    fences_.store(resource.name(), *ruling.fence);
    changed_namespace_ = true;
  }

  // A later claim without a sequence does not undo that an earlier one must be on record.
  void note_admitted(Claim claim) {
    const auto before = admitted_.find(claim.resource);
    const bool is_same_token = before != admitted_.end() && before->second.token == claim.token;
    if (is_same_token && !claim.sequence) claim.sequence = before->second.sequence;
    admitted_.insert_or_assign(claim.resource, claim);
  }

  std::optional<GuardLock> no_guard_;
  std::map<Resource, Claim> admitted_;
  FenceTable fences_;
  const std::int64_t jump_max_;
  bool refused_ = false;
  bool was_refused_ = false;
  bool changed_namespace_ = false;
};

void install_in(sqlite3* connection) {
  install(connection);
  Transaction tx{connection};
  FenceTable fences{connection};
  if (!fences.load_namespace()) fences.store_namespace(fences.fresh_namespace(0));
  tx.commit();
}

Transaction::Transaction(sqlite3* connection, std::int64_t jump_max)
    : connection_{connection}, state_{std::make_unique<State>(connection, jump_max)} {
  if (sqlite3_get_autocommit(connection) == 0) {
    throw InvalidInput("a transaction is open on this connection already: end it first");
  }
  if (require_durable(connection)) settle_once(connection);
  execute(connection, "BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  rollback(connection_);
}

void Transaction::commit() {
  if (state_->is_refused()) {
    rollback(connection_);
    throw InvalidInput("a claim was refused in this transaction, so it was rolled back and not committed");
  }
  if (sqlite3_get_autocommit(connection_) != 0) {
    throw OutcomeUnknown(
        "a statement of the transaction's own had ended it: what came before was rolled back, what came "
        "after was not");
  }
  if (!state_->is_on_record()) {
    rollback(connection_);
    throw InvalidInput(
        "a savepoint that was rolled back took an admission with it, so nothing was committed: admit before "
        "the first "
        "savepoint");
  }
  const int code = sqlite3_exec(connection_, "COMMIT", nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return;
  const std::string message = sqlite3_errmsg(connection_);
  const bool was_open = sqlite3_get_autocommit(connection_) == 0;
  rollback(connection_);
  // Busy, or a constraint that was deferred to here: SQLite left the transaction open and wrote nothing.
  const int primary = code & 0xFF;
  if (was_open && (primary == SQLITE_BUSY || primary == SQLITE_CONSTRAINT)) {
    throw Unavailable(fmt::format("committing: {}; rolled back", message));
  }
  settle_again(connection_);
  throw OutcomeUnknown(fmt::format("committing: {}; it may or may not have taken effect", message));
}

Ruling admit_in(Transaction& tx, const Claim& claim) {
  return admit_all_in(tx, {&claim, 1}).front();
}

std::vector<Ruling> admit_all_in(Transaction& tx, std::span<const Claim> claims) {
  std::set<std::string_view> names;
  for (const Claim& claim : claims) {
    if (names.insert(claim.resource.name()).second) continue;
    tx.state_->refuse();
    throw InvalidInput("two claims of one call name the same resource");
  }
  tx.state_->keep_refusal();
  return tx.state_->admit(claims);
}

Ruling Guard::advance(const Claim& claim) {
  Transaction tx{connection_, jump_max_};
  Ruling ruling = admit_in(tx, claim.without_sequence());
  if (ruling.verdict == Verdict::admitted) tx.commit();
  return ruling;
}

Ruling Guard::write(const Claim& claim, const std::function<void(sqlite3*)>& apply) {
  Transaction tx{connection_, jump_max_};
  Ruling ruling = admit_in(tx, claim);
  if (ruling.verdict != Verdict::admitted) return ruling;
  apply(connection_);
  tx.commit();
  return ruling;
}

}  // namespace fenceguard::sqlite
