#include "server/resp/upstream/client_links.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fenceguard::resp {

ClientLinks::ClientLinks(net::Session& session, Relay& relay, std::shared_ptr<Upstreams> upstreams,
                         UnsettledClaims& unsettled, std::int64_t number, Events events)
    : session_{session},
      relay_{relay},
      upstreams_{std::move(upstreams)},
      unsettled_claims_{unsettled},
      events_{std::move(events)},
      shared_{upstreams_, number} {
  wanted_.lane = static_cast<std::size_t>(number) % Upstreams::lanes;
}

ClientLinks::~ClientLinks() {
  if (!unsettled_.empty()) unsettled_claims_.remove(unsettled_);
}

template <class Action>
void ClientLinks::tell(const Action& action) noexcept {
  if (is_closed_) return;
  try {
    action();
    events_.changed();
  } catch (...) {
    events_.failed();
  }
}

template <class Action>
auto ClientLinks::later(Action action) {
  return [this, weak = session_.weak_from_this(), action = std::move(action)](const auto&... arguments) {
    if (const auto session = weak.lock()) tell([&] { action(arguments...); });
  };
}

void ClientLinks::note_unsettled(std::string_view unread) noexcept {
  try {
    auto keys = relay_.claims_under_way(unread);
    if (keys.empty()) return;
    unsettled_.reserve(unsettled_.size() + keys.size());
    unsettled_claims_.add(keys);
    std::ranges::move(keys, std::back_inserter(unsettled_));
  } catch (const std::bad_alloc&) {
    // A later write of this client is not kept from overtaking it.
  }
}

void ClientLinks::close_all() noexcept {
  is_closed_ = true;
  note_unsettled();
  for (const auto& [channel, link] : {std::pair{Channel::own, own_}, std::pair{Channel::spare, spare_}})
    if (link) relay_.awaits_judged_write(channel) ? link->fail("its client is gone") : link->close();
  shared_.leave_own_lane();
}

void ClientLinks::prepare(Channel channel, int slot, bool stays) {
  if (is_closed_) return;
  auto& link = owned(channel);
  const bool is_elsewhere =
      link && !stays && is_cluster() && slot >= 0 && link->server() != upstreams_->endpoint_of(slot);
  if (is_elsewhere) link->close();
  if (!link || !link->is_open()) link = upstreams_->open_owned(shared_.place(), slot, channel, self());
}

void ClientLinks::send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) {
  if (channel == Channel::shared) return shared_.send(self(), slot, bytes, replies);
  if (const auto link = owned(channel)) link->send(self(), bytes, replies, waits);
}

void ClientLinks::send(Channel channel, int slot, const ScriptCall& call, bool with_text) {
  if (channel == Channel::shared) return shared_.send(self(), slot, call, with_text);
  if (const auto link = owned(channel)) link->send(self(), call, false, with_text);
}

void ClientLinks::close(Channel channel) {
  if (const auto link = std::exchange(owned(channel), nullptr)) link->close();
}

void ClientLinks::bind(const Identity& identity, int database) {
  wanted_.identity = identity;
  wanted_.database = database;
  upstreams_->bind(wanted_, later([this, place = wanted_](const Greeting& greeting) {
                     if (relay_.bound(greeting.error, greeting.needs_password)) shared_.move_to(place);
                   }));
}

void ClientLinks::learn_command(std::string_view name) {
  upstreams_->learn_command(shared_.place(), std::string{name}, later([this] { relay_.learned(); }));
}

void ClientLinks::sleep(int ms) {
  const auto timer = std::make_shared<net::Timer>(session_.loop().context());
  timer->expires_after(std::chrono::milliseconds{ms});
  timer->async_wait(later([this, timer](const boost::system::error_code& /*error*/) { relay_.woken(); }));
}

void ClientLinks::link_replied(Channel channel, std::string_view reply, net::SteadyTime sent_at) {
  if (is_closed_ || (channel == Channel::shared && !shared_.end_awaited())) return;
  sent_at_ = sent_at;
  if (channel == Channel::shared) shared_.note_reply();
  tell([&] {
    relay_.replied(channel, reply);
    shared_.send_kept(self());
  });
}

void ClientLinks::link_lost(Channel channel, bool was_sent, std::string_view why) {
  if (is_closed_ || (channel == Channel::shared && !shared_.end_awaited())) return;
  if (channel != Channel::shared) owned(channel) = nullptr;
  tell([&] {
    if (channel == Channel::shared && shared_.send_read_elsewhere(self(), was_sent)) return;
    relay_.lost(channel, was_sent, why);
    shared_.send_kept(self());
  });
}

}  // namespace fenceguard::resp
