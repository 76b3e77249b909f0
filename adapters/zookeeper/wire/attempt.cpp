#include "adapters/zookeeper/wire/attempt.hpp"

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

// Times that it begins anew because its node was removed, or is not known to be there.
constexpr int attempts = 20;

}  // namespace

Attempt::Attempt(Parts parts, const Resource& resource, const Holder& holder, const AcquireOptions& options)
    : parts_{parts},
      resource_{resource},
      holder_{holder},
      ttl_{options.ttl},
      stop_{options.stop},
      guid_{Holder::random().id()},
      lock_{parts.calls.lock_of(resource)} {}

Attempt::~Attempt() {
  if (is_granted_ || (path_.empty() && !may_exist_)) return;
  try {
    if (!path_.empty() && generation_.session->state() == Session::State::connected) {
      LockClient::remove(*generation_.session, path_);
      return;
    }
  } catch (const Error&) {
    // Then it is done when that can be done.
  }
  parts_.cleaner.remove({generation_.session, lock_, guid_, path_});
}

std::optional<Grant> Attempt::ask() {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    stay_connected();
    try {
      const auto grant = ask_once();
      if (grant || before_) return grant;
    } catch (const OutcomeUnknown& fault) {
      // Whatever became of the node: it is granted nothing without being asked for.
      if (generation_.is_unbroken()) throw Unavailable(std::string{fault.what()} + "; nothing is held");
    } catch (const Unavailable&) {
      if (generation_.is_unbroken()) throw;
    }
  }
  throw Unavailable("the node for the lock of " + resource_.name() + " is lost as often as it is made");
}

void Attempt::stay_connected() {
  if (generation_.session && generation_.is_unbroken()) return;
  auto generation = parts_.sessions.generation(stop_);
  if (generation.session != generation_.session) forget_node();
  generation_ = std::move(generation);
  // It may have been asked for over the connection that broke.
  gone_.reset();
}

// A call that was given up may have made an entry: the first that is found is ours, and any other is removed.
void Attempt::find() {
  const auto found = parts_.calls.find(*generation_.session, lock_, guid_);
  for (std::size_t i = 1; i < found.size(); ++i)
    parts_.cleaner.remove({generation_.session, lock_, guid_, found[i]});
  if (!found.empty()) path_ = found.front();
}

// Its node is watched from then on, because removed by others it ends the lease that lives by it before any
// caller asks. The answer to the watch is not waited for: where the node has gone by then, it tells so.
LockClient::Place Attempt::enter() {
  may_exist_ = true;
  const auto entry = parts_.calls.enter(*generation_.session, lock_, guid_, holder_);
  path_ = entry.path;
  if (!entry.children) return look();
  gone_ = std::make_shared<std::atomic<bool>>(false);
  (void)generation_.session->begin_get(path_, watch_for(gone_));
  return LockClient::place_of(entry);
}

// Neither a grant nor an entry before it: it is not there any more, or no longer certain.
std::optional<Grant> Attempt::ask_once() {
  const auto asked_at = BootClock::now();
  if (path_.empty() && may_exist_) find();
  const auto place = path_.empty() ? enter() : look();
  before_ = place.before;
  if (!place.is_there) {
    forget_node();
    return std::nullopt;
  }
  if (before_) return std::nullopt;
  const Claim claim{resource_, *place.token, holder_, std::nullopt};
  const auto term = lease_term(*generation_.session, ttl_);
  if (!parts_.leases.add(
          {claim, {generation_.session, lock_, guid_, path_}, generation_.since, asked_at + term})) {
    return std::nullopt;
  }
  // Either this sees that the node has gone, or its watch finds the lease.
  if (*gone_) {
    parts_.leases.lose(claim);
    forget_node();
    return std::nullopt;
  }
  is_granted_ = true;
  return Grant{claim, term, true, asked_at};
}

LockClient::Place Attempt::look() {
  auto& session = *generation_.session;
  if (gone_) return parts_.calls.look(session, path_);
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  auto place = parts_.calls.look(session, path_, watch_for(gone));
  gone_ = gone;
  return place;
}

Session::Watch Attempt::watch_for(const std::shared_ptr<std::atomic<bool>>& gone) const {
  return [gone, path = path_, &leases = parts_.leases](bool is_gone) {
    if (!is_gone) return;
    *gone = true;
    leases.lose_node(path);
  };
}

void Attempt::forget_node() {
  path_.clear();
  may_exist_ = false;
  gone_.reset();
}

void Attempt::set_when_next(const std::shared_ptr<Event>& event) {
  parts_.watcher.set_when_gone(*generation_.session, *before_, event);
}

}  // namespace fenceguard::zookeeper
