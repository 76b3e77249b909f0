#pragma once

// What the fences' store asks of the schema fenceguard, call by call: each function is one step within the
// transaction that it is given. Throws pqxx exceptions.
//
// Thread safety: that of the connection.

#include <optional>
#include <pqxx/pqxx>
#include <string>

#include "guard/store/storage.hpp"

namespace fenceguard::postgres {

// The claim judged alone and, if it is admitted, recorded. jump_max: 0 is no bound.
[[nodiscard]] Ruling rule_in(pqxx::transaction_base& tx, const Claim& claim, std::int64_t jump_max);

[[nodiscard]] FenceView view_in(pqxx::transaction_base& tx, const Resource& resource);
[[nodiscard]] FencePage list_in(pqxx::transaction_base& tx, const FenceListing& listing);
[[nodiscard]] FenceView revoke_in(pqxx::transaction_base& tx, const Resource& resource,
                                  const std::optional<Claim>& lease);
[[nodiscard]] Compaction compact_in(pqxx::transaction_base& tx, Token lowest_live);
[[nodiscard]] std::int64_t init_in(pqxx::transaction_base& tx, std::int64_t floor);
[[nodiscard]] FenceView rebase_in(pqxx::transaction_base& tx, const FenceStore::Rebase& rebase);

// The state as far as the database tells it.
[[nodiscard]] StoreStatus status_in(pqxx::transaction_base& tx);

}  // namespace fenceguard::postgres
