#pragma once

// Access: from the settings --source, --storage and --server to the things that they name, for commands that
// are clients: exec, lease and fence.

#include <memory>
#include <optional>
#include <vector>

#include "guard/lease.hpp"
#include "guard/token_source.hpp"
#include "server/cli/target/control_client.hpp"
#include "server/cli/target/fences.hpp"
#include "server/cli/terminal/common_settings.hpp"

namespace fenceguard::cli {

// What --prefix, --after and --limit say. Throws InvalidInput.
[[nodiscard]] FenceListing listing_of(const Settings& settings);

// Throws InvalidInput if --server is given together with --storage or --source, or if none of the three is.
void require_one_way(const Settings& settings);

// --signature, if the command has it and it is given; else empty.
[[nodiscard]] std::string given_signature(const Settings& settings);

// The client for --server with its bearer token. REQUIRES: --server is given.
[[nodiscard]] ControlClient open_server(const Settings& settings);

// The token source of --server, of --source, or else of the storage itself. Creates nothing without --init.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Settings& settings);

// A grant that no guard refuses: waits for the lock, and with --storage advances the guard; a grant that is
// fresh and yet refused lifts the source and is taken again, a bounded number of times. Without --storage and
// --server it says on stderr that nothing was advanced. Signed by --claim-key, or by the guard of --server.
struct Taken {
  std::optional<Grant> grant;  // nothing: not taken
  std::optional<Verdict>
      refusal;              // why not, if the guard refused it; nothing: the lock stayed held by others
  std::string signature{};  // of the grant's claim; empty: it is not signed
  // The token of a holder, not known to be over, above whom the fence was raised; 0: none. Looked for only
  // where the command has a --fence-method.
  std::int64_t overtaken = 0;
};
[[nodiscard]] Taken take(const Settings& settings, TokenSource& source, const AcquireOptions& options);

// Why a lease was lost, in words for people. With --server it asks there, for a second at most.
[[nodiscard]] std::string describe_loss(const Settings& settings, const Lease& lease);

}  // namespace fenceguard::cli
