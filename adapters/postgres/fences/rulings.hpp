#pragma once

// Rulings as SQL: a claim as arguments of the functions of sql/postgres, and their rows as rulings. Shared by
// the guards of this adapter; not installed.
//
// Pure, but for the connection that is asked how to quote.

#include <cstdint>
#include <optional>
#include <pqxx/pqxx>
#include <span>
#include <string>
#include <string_view>

#include "adapters/postgres/admit_options.hpp"
#include "guard/judge.hpp"

namespace fenceguard::postgres {

// 'accounts/42', 34, 'h' and, for rule_arguments(), sequence, drain, cut and jump_max, null where left out.
// As literals, so that several statements may travel in one message.
[[nodiscard]] std::string claim_arguments(const pqxx::transaction_base& tx, const Claim& claim);
[[nodiscard]] std::string rule_arguments(const pqxx::transaction_base& tx, const Claim& claim,
                                         const AdmitOptions& options);
[[nodiscard]] std::string option_arguments(const AdmitOptions& options);

// [{"resource": "accounts/1", "token": "34", "holder": "h", "sequence": "7"}, ...]
[[nodiscard]] std::string claims_json(std::span<const Claim> claims);

// From the columns verdict and highest, which are the row's last two.
[[nodiscard]] Ruling ruling_of(const Claim& claim, const pqxx::row& row);
[[nodiscard]] Ruling ruling_of(const Claim& claim, std::string_view verdict, std::int64_t highest);
// The refusal that require_admitted() and confirm() raise with this SQLSTATE.
[[nodiscard]] std::optional<Verdict> refusal_of_state(std::string_view state) noexcept;
[[nodiscard]] Ruling make_ruling(const Claim& claim, Verdict verdict, std::int64_t highest);

// Makes every later statement of tx fail at the server, and its commit throw.
void doom(pqxx::transaction_base& tx) noexcept;

}  // namespace fenceguard::postgres
