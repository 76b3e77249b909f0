// How a session ends whose claims the sidecar held, and lost: no sooner than what may be committed is known,
// and with nothing said of it that is not known.

#include <algorithm>
#include <utility>

#include "server/postgres/relay/relay.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {

void Relay::lose_claims() {
  if (is_over() || std::exchange(is_lost_, true)) return;
  if (!is_begun_)
    return end("57P03", "the sidecar lost what it held before this session began", "Connect again.");
  end_where_lost();
  // Of a pipeline whose Sync is not taken any more the server answers what it has done.
  if (!is_over() && is_in_flight_) add_message(to_server_, 'H', {});
}

void Relay::end_where_lost() {
  if (!is_lost_ || is_over()) return;
  // Amid a message of the server's the client would take it for a part of that.
  if (server_passing_ > 0 && !is_dropping_ && !may_be_committing()) {
    phase_ = Phase::over;
    return;
  }
  if (!may_be_committing())
    return end("57P01",
               "terminating connection because the sidecar no longer holds what this session writes under",
               "Nothing that was not committed is kept. Connect again, and start over from the read.");
  // The rest of this message would have to come before the answers do: the client is not told what is not
  // known.
  if (client_passing_ > 0 && is_in_flight_) phase_ = Phase::over;
}

// Something that the client has sent is perhaps being committed, and its answer is to come.
bool Relay::may_be_committing() const noexcept {
  const bool is_known_end = std::ranges::any_of(expected_, [](const Expected& e) { return e.is_end; });
  if (is_known_end || status_ != 'I' || is_copying_in_) return is_known_end;
  return std::ranges::any_of(expected_,
                             [](const Expected& e) { return e.request == 'S' || e.request == 'Q'; });
}

}  // namespace fenceguard::pgwire
