#pragma once

// Settings that several commands share.

#include <array>
#include <string_view>

#include "server/cli/terminal/settings.hpp"

namespace fenceguard::cli {

inline constexpr Setting json_setting{.name = "json", .kind = Kind::flag, .help = "print one JSON object"};
inline constexpr Setting config_setting{
    .name = "config", .kind = Kind::file, .placeholder = "FILE", .help = "read options from this INI file"};
inline constexpr Setting resource_setting{.name = "resource",
                                          .kind = Kind::resource,
                                          .placeholder = "RESOURCE",
                                          .help = "what the lock protects, such as accounts/42",
                                          .is_required = true};
inline constexpr Setting source_setting{
    .name = "source",
    .kind = Kind::url,
    .placeholder = "URL",
    .help = "the token source, such as sqlite:leases.db or postgres://HOST/DATABASE"};
inline constexpr Setting storage_setting{
    .name = "storage",
    .kind = Kind::url,
    .placeholder = "URL",
    .help = "the storage that is protected; no guard may be running on it if it is a file"};
inline constexpr std::array<std::string_view, 3> local_settings{"source", "storage", "claim-key"};
inline constexpr Setting server_setting{
    .name = "server",
    .kind = Kind::url,
    .placeholder = "URL",
    .help = "the control side of a running guard: http://HOST:PORT or unix:/path",
    .excludes = local_settings};
inline constexpr Setting server_token_setting{
    .name = "server-token", .kind = Kind::secret, .help = "the bearer token for --server"};
inline constexpr Setting server_token_file_setting{.name = "server-token-file",
                                                   .kind = Kind::file,
                                                   .placeholder = "FILE",
                                                   .help = "a file with the bearer token for --server"};
inline constexpr Setting ttl_setting{.name = "ttl",
                                     .kind = Kind::duration,
                                     .placeholder = "TIME",
                                     .fallback = "10s",
                                     .help = "time to live of the lease"};
inline constexpr Setting init_setting{
    .name = "init",
    .kind = Kind::flag,
    .help = "create the file of an sqlite: source or storage that is not there; without it that is a fault"};
inline constexpr Setting wait_setting{
    .name = "wait",
    .kind = Kind::duration,
    .placeholder = "TIME",
    .fallback = "30s",
    .help =
        "how long to wait for the lock, and for a guard that is unavailable for now; "
        "0s tries once"};

inline constexpr Setting claim_key_setting{
    .name = "claim-key",
    .kind = Kind::file,
    .placeholder = "FILE",
    .help = "with --source or --storage: sign the claim with the keys in this file"};
inline constexpr Setting claim_space_setting{.name = "claim-space",
                                             .placeholder = "NAME",
                                             .fallback = "fenceguard",
                                             .help = "the namespace that is signed, as at the guard"};
inline constexpr Setting signature_setting{
    .name = "signature",
    .placeholder = "TEXT",
    .help = "with --server: the claim's signature, as granted, for a guard that asks for it"};

inline constexpr Setting prefix_setting{
    .name = "prefix", .placeholder = "TEXT", .help = "only resources that start with this"};
inline constexpr Setting after_setting{
    .name = "after", .placeholder = "RESOURCE", .help = "only resources that sort after this"};
inline constexpr Setting limit_setting{.name = "limit",
                                       .kind = Kind::number,
                                       .placeholder = "COUNT",
                                       .fallback = "100",
                                       .help = "at most so many"};

}  // namespace fenceguard::cli
