#include "adapters/zookeeper/wire/errors.hpp"

#include <fmt/format.h>
#include <zookeeper/zookeeper.h>

namespace fenceguard::zookeeper {
namespace {

struct Row {
  int code;
  FaultKind of_write;  // a read that failed is always 'unavailable', unless its input was invalid
  std::string_view text;
};

// What is 'unavailable' for a write is refused before it becomes a transaction of the ensemble, or was never
// sent.
constexpr Row rows[] = {
    {ZCONNECTIONLOSS, FaultKind::unknown, "the connection broke before the answer came"},
    {ZOPERATIONTIMEOUT, FaultKind::unknown, "the server went silent before the answer came"},
    {ZCLOSING, FaultKind::unknown, "the session was closed before the answer came"},
    // The C client says so of calls that were sent on the session's last connection, too.
    {ZSESSIONEXPIRED, FaultKind::unknown, "the session expired before the answer came"},
    {ZINVALIDSTATE, FaultKind::unavailable, "the session is over"},
    {ZMARSHALLINGERROR, FaultKind::unavailable, "the request could not be made"},
    {ZBADARGUMENTS, FaultKind::invalid_input, "ZooKeeper takes no such path"},
    {ZSESSIONMOVED, FaultKind::unavailable, "the session has moved to another server; try again"},
    // QuotaExceeded, of 3.7 and later; the C client knows no name for it.
    {-125, FaultKind::unavailable,
     "the quota of what lies above the node does not allow it; raise it (setquota), or take something out"},
    {ZTHROTTLEDOP, FaultKind::unavailable, "the server has too much to do; try again"},
    {ZNOTREADONLY, FaultKind::unavailable, "the server is cut off from its quorum and only reads"},
    {ZEPHEMERALONLOCALSESSION, FaultKind::unavailable,
     "local sessions hold no locks; set localSessionsUpgradingEnabled at the servers"},
    {ZNOAUTH, FaultKind::unavailable,
     "the node's ACL does not allow it; use the user that created it, as zookeeper://USER:PASSWORD@…"},
    {ZINVALIDACL, FaultKind::unavailable, "the server does not take digest authentication"},
    {ZAUTHFAILED, FaultKind::unavailable, "the credentials were refused"},
    {ZSESSIONCLOSEDREQUIRESASLAUTH, FaultKind::unavailable,
     "the servers require SASL, which is not spoken here"},
    {ZUNIMPLEMENTED, FaultKind::unavailable, "the server is too old; 3.5 or later is needed"},
};

}  // namespace

std::optional<Code> code_of(int code) noexcept {
  switch (code) {
    case ZOK:
      return Code::ok;
    case ZNONODE:
      return Code::no_node;
    case ZNODEEXISTS:
      return Code::node_exists;
    case ZBADVERSION:
      return Code::bad_version;
    case ZNOTEMPTY:
      return Code::not_empty;
    case ZNOCHILDRENFOREPHEMERALS:
      return Code::no_children;
    default:
      return std::nullopt;
  }
}

Fault fault_of(int code, Access access, std::string_view doing) {
  auto kind = FaultKind::unknown;
  std::string_view text = zerror(code);
  for (const auto& row : rows) {
    if (row.code != code) continue;
    kind = row.of_write;
    text = row.text;
  }
  if (access == Access::read && kind == FaultKind::unknown) kind = FaultKind::unavailable;
  return {kind, fmt::format("{}: {}", doing, text)};
}

Fault late_fault(Access access, std::string_view doing, std::chrono::milliseconds timeout) {
  return {access == Access::read ? FaultKind::unavailable : FaultKind::unknown,
          fmt::format("{}: no answer within {} ms", doing, timeout.count())};
}

}  // namespace fenceguard::zookeeper
