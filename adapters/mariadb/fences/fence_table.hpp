#pragma once

// What the fences' store asks of the fences' tables and procedures, call by call. Throws ServerError,
// ConnectionLost, std::runtime_error.
//
// Thread safety: that of the connection.

#include "adapters/mariadb/connection.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::mariadb {

[[nodiscard]] FenceView view_of(Connection& connection, const Resource& resource);
[[nodiscard]] FencePage list_fences(Connection& connection, const FenceListing& listing);
[[nodiscard]] FenceView revoke(Connection& connection, const Resource& resource,
                               const std::optional<Claim>& lease);
[[nodiscard]] FenceView rebase(Connection& connection, const FenceStore::Rebase& rebase);
[[nodiscard]] std::int64_t init(Connection& connection, std::int64_t floor);
[[nodiscard]] Compaction compact(Connection& connection, Token lowest_live);

// The state as far as the server tells it.
[[nodiscard]] StoreStatus status_of(Connection& connection);

}  // namespace fenceguard::mariadb
