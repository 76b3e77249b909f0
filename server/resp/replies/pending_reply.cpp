#include "server/resp/replies/pending_reply.hpp"

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {

PendingReply::Answer PendingReply::lost(bool was_sent, std::string_view why) {
  const bool is_unknown = was_sent && writes();
  return fail({is_unknown ? FaultKind::unknown : FaultKind::unavailable, std::string{why}});
}

std::string_view PendingReply::fail(const Fault& fault) {
  answer_.clear();
  add_error(answer_, fault_text(fault));
  return answer_;
}

}  // namespace fenceguard::resp
