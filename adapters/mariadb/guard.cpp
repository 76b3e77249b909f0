#include "adapters/mariadb/guard.hpp"

#include <fmt/format.h>

#include <map>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/fences/advance.hpp"
#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

// False also where it is not known: an error came, the transaction may be over, and there is no answer.
bool is_open_in(Connection& connection) {
  try {
    return connection.is_in_transaction();
  } catch (const ServerError&) {
    return false;
  } catch (const ConnectionLost&) {
    return false;
  }
}

// Whether the exception now being handled, of a statement before COMMIT, tells that this connection's session
// has ended: by the cut of a newer claim, an administrator, the network.
bool has_session_ended(const Connection& connection) noexcept {
  if (connection.is_open()) return false;  // another one was lost, which the caller's function uses as well
  try {
    throw;
  } catch (const ConnectionLost&) {
    return true;
  } catch (const Unavailable&) {  // what a VersionedTable makes of it
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

Ruling admit_in(Connection& connection, const Claim& claim) {
  const auto doing = fmt::format("admitting '{}'", claim.resource.name());
  auto arguments = arguments_of(claim);
  arguments.push_back(sequence_of(claim));
  connection.send_reads_only();  // unless it is admitted
  const auto rows =
      mapped(Stage::before_commit, doing, [&] { return connection.call("try_admit", arguments); });
  const auto word = text_in(rows, 0);
  if (word == "admitted" || word == "duplicate") connection.send_everything();
  if (word == "outside") {
    throw InvalidInput(fmt::format("{}: no transaction is open, and a claim is judged in one", doing));
  }
  if (word == "advance") {
    throw Unavailable(fmt::format(
        "{}: advance first, in a transaction of its own (Guard::advance()), and begin then; or begin "
        "again, if the snapshot is older than the advance",
        doing));
  }
  return ruling_of(rows, claim);
}

std::vector<Ruling> admit_all_in(Connection& connection, std::span<const Claim> claims) {
  const std::string doing = "admitting several claims";
  const auto doom = [&] { mapped(Stage::before_commit, doing, [&] { connection.doom(); }); };
  std::map<Resource, std::size_t> order;
  for (std::size_t i = 0; i < claims.size(); ++i) order.emplace(claims[i].resource, i);
  if (claims.empty() || order.size() < claims.size()) {
    doom();
    throw InvalidInput(claims.empty() ? "no claims: name at least one"
                                      : "two claims of one call name the same resource");
  }
  std::vector<Ruling> rulings(claims.size());
  bool are_all = true;
  for (const auto& [resource, i] : order) {
    rulings[i] = admit_in(connection, claims[i]);
    are_all = are_all && rulings[i].verdict == Verdict::admitted;
    // What was refused took the transaction along. The others are judged all the same, and keep nothing.
    if (!are_all) {
      mapped(Stage::before_commit, doing, [&] {
        connection.roll_back();
        return connection.run("START TRANSACTION");
      });
    }
  }
  if (!are_all) doom();
  return rulings;
}

void commit(Connection& connection, const Claim& claim) {
  commit(connection, std::span{&claim, 1});
}

void commit(Connection& connection, std::span<const Claim> claims) {
  const std::string doing = "committing";
  if (!is_open_in(connection))
    throw OutcomeUnknown(fmt::format("{}: the transaction was over before; it may have taken effect", doing));
  for (const auto& claim : claims) {
    mapped(Stage::before_commit, doing, [&] {
      try {
        return connection.call("confirm", arguments_of(claim));
      } catch (const ServerError& error) {
        connection.send_reads_only();
        if (!error.state().starts_with("ZF")) throw;
        throw OutcomeUnknown(fmt::format(
            "{} a write to '{}': the claim is not admitted any more ({}): what was open was rolled back, and "
            "what a statement committed by itself before stays",
            doing, claim.resource.name(), error.what()));
      }
    });
  }
  mapped(Stage::at_commit, doing, [&] { connection.commit(); });
}

Ruling Guard::advance(const Claim& claim) {
  const auto doing = fmt::format("advancing '{}'", claim.resource.name());
  const bool is_callers = connection_.is_in_transaction(doing);  // which is refused, and stays open
  try {
    return advance_by(connection_, claim, options_, doing);
  } catch (...) {
    if (!is_callers) roll_back();  // an interrupted call may have left one
    throw;
  }
}

Ruling Guard::start(const Claim& claim) {
  const auto doing = fmt::format("admitting '{}'", claim.resource.name());
  const bool is_callers = connection_.is_in_transaction(doing);  // which is refused, and stays open
  try {
    auto arguments = arguments_of(claim);
    arguments.push_back(sequence_of(claim));
    arguments.push_back(std::to_string(options_.drain.count()));
    arguments.push_back(bound_of(claim, options_.jump_max));
    // What it commits is an advance: nothing of the write.
    const auto call = [&] { return connection_.call("start_admitted", arguments); };
    const auto begin = [&]() -> std::optional<Rows> {
      try {
        return call();
      } catch (const ServerError& error) {
        if (error.number() != lock_wait_timeout || !options_.cut) throw;
        return std::nullopt;
      }
    };
    auto rows = mapped(Stage::before_commit, doing, begin);
    if (!rows || is_to_be_exempt(*rows, claim, options_.jump_max)) {
      roll_back();
      auto at_once = options_;
      if (!rows) at_once.drain = std::chrono::seconds{0};  // it has been waited for
      auto advanced = advance_by(connection_, claim, at_once, doing);
      if (advanced.verdict != Verdict::admitted) return advanced;
      rows = mapped(Stage::before_commit, doing, call);
    }
    return ruling_of(*rows, claim);
  } catch (...) {
    if (!is_callers) roll_back();
    throw;
  }
}

Ruling Guard::write(const Claim& claim, const std::function<void(Connection&)>& apply) {
  auto ruling = start(claim);
  if (ruling.verdict == Verdict::stale || ruling.verdict == Verdict::conflict) {
    roll_back();
    return ruling;
  }
  const auto doing = fmt::format("committing a write to '{}'", claim.resource.name());
  const auto cut_off = [&]() -> Ruling {
    Ruling stale;
    stale.verdict = Verdict::stale;
    if (connection_.is_transaction_whole()) return stale;
    throw OutcomeUnknown(
        fmt::format("{}: the session ended before COMMIT was sent; what was open is rolled back, but a "
                    "statement may have committed by itself before",
                    doing));
  };
  connection_.watch_transaction();
  try {
    if (ruling.verdict == Verdict::admitted) apply(connection_);
  } catch (...) {
    if (has_session_ended(connection_)) return cut_off();
    roll_back();
    throw;
  }
  if (!connection_.is_open()) return cut_off();  // which the function kept to itself
  try {
    mapped(Stage::at_commit, doing, [&] {
      try {
        return connection_.call("commit_admitted");
      } catch (const ServerError& error) {
        // Part of it may have been committed by itself, or by another's statement.
        if (error.state() == "ZF007") {
          throw OutcomeUnknown(fmt::format(
              "{}: a statement ended the transaction, or rolled it back to before its admission; what "
              "was written may or may not have taken effect",
              doing));
        }
        throw;
      }
    });
  } catch (...) {
    roll_back();
    throw;
  }
  return ruling;
}

Ruling Guard::read(const Claim& claim, const std::function<void(Connection&)>& look) {
  auto ruling = start(claim.without_sequence());
  if (ruling.verdict == Verdict::admitted) {
    try {
      look(connection_);
    } catch (...) {
      roll_back();
      throw;
    }
  }
  roll_back();
  return ruling;
}

void Guard::roll_back() noexcept {
  try {
    if (!connection_.is_open()) return;
    connection_.roll_back();
    connection_.run("SET @fenceguard_claims = NULL");  // of the next that uses this session
  } catch (const std::exception&) {
    // The transaction ends with its session.
  }
}

}  // namespace fenceguard::mariadb
