#include "adapters/postgres/fences/rulings.hpp"

#include <fmt/format.h>

#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

constexpr const char* doomed = "a claim was not admitted in this transaction, so it was rolled back";

// What libpqxx says at the next commit. Nothing else makes it refuse one and still keeps exec_params() in the
// transaction: after abort() that one goes out alone, and takes effect.
#if PQXX_VERSION_MAJOR < 7
class PendingError : pqxx::internal::transactionfocus {
 public:
  explicit PendingError(pqxx::transaction_base& tx)
      : pqxx::internal::namedclass{"claim"}, pqxx::internal::transactionfocus{tx} {
    reg_pending_error(doomed);
  }
};
#else
class PendingError : pqxx::transaction_focus {
 public:
  explicit PendingError(pqxx::transaction_base& tx) : pqxx::transaction_focus{tx, "claim"} {
    reg_pending_error(doomed);
  }
};
#endif

// A resource and a holder have no control characters.
std::string json_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace

std::string claim_arguments(const pqxx::transaction_base& tx, const Claim& claim) {
  return fmt::format("{}, {}, {}", tx.quote(claim.resource.name()), claim.token.value(),
                     tx.quote(claim.holder.id()));
}

std::string option_arguments(const AdmitOptions& options) {
  return fmt::format(
      "{}, {}, {}",
      options.drain ? fmt::format("interval '{} milliseconds'", options.drain->count()) : "null",
      options.cut ? (*options.cut ? "true" : "false") : "null", options.jump_max);
}

std::string rule_arguments(const pqxx::transaction_base& tx, const Claim& claim,
                           const AdmitOptions& options) {
  return fmt::format("{}, {}, {}", claim_arguments(tx, claim),
                     claim.sequence ? to_string(*claim.sequence) : "null", option_arguments(options));
}

std::string claims_json(std::span<const Claim> claims) {
  std::string result;
  for (const Claim& claim : claims) {
    result += fmt::format(R"({}{{"resource":{},"token":"{}","holder":{},"sequence":{}}})",
                          result.empty() ? "" : ",", json_quoted(claim.resource.name()), claim.token.value(),
                          json_quoted(claim.holder.id()),
                          claim.sequence ? json_quoted(to_string(*claim.sequence)) : "null");
  }
  return "[" + result + "]";
}

Ruling make_ruling(const Claim& claim, Verdict verdict, std::int64_t highest) {
  Ruling ruling{verdict, highest, std::nullopt, false};
  if (claim.sequence && (verdict == Verdict::admitted || verdict == Verdict::duplicate)) {
    ruling.fence = Fence{claim.token, claim.holder, claim.sequence, false};
  }
  return ruling;
}

Ruling ruling_of(const Claim& claim, std::string_view verdict, std::int64_t highest) {
  const auto known = parse_verdict(verdict);
  if (!known) throw Unavailable(fmt::format("the database answered '{}', which is no verdict", verdict));
  return make_ruling(claim, *known, highest);
}

Ruling ruling_of(const Claim& claim, const pqxx::row& row) {
  const auto last = row.size();
  return ruling_of(claim, row[last - 2].c_str(),
                   row[last - 1].is_null() ? 0 : row[last - 1].as<std::int64_t>());
}

std::optional<Verdict> refusal_of_state(std::string_view state) noexcept {
  if (state == "ZF001") return Verdict::stale;
  if (state == "ZF002") return Verdict::conflict;
  if (state == "ZF005") return Verdict::duplicate;
  return std::nullopt;
}

void doom(pqxx::transaction_base& tx) noexcept {
  try {
    exec_params(tx, fmt::format("DO $$ BEGIN RAISE EXCEPTION '{}' USING ERRCODE = 'ZF001'; END $$", doomed));
  } catch (const std::exception&) {
    // That is what it is for; and where the connection is lost, so is the transaction.
  }
  try {
    PendingError{tx};
  } catch (const std::exception&) {
    tx.abort();
  }
}

}  // namespace fenceguard::postgres
