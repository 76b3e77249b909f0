#include "guard/support/wait_for.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "server/lane/store_call.hpp"

// What a lane does where old holders are cut off. The order, and what a guard that dies at each step leaves:
//
//   1  raise the fence, and in the same transaction write down what is owed     before: nothing happened
//   2  run the fence methods; the older writes drain beside it                  the cut is owed: the next
//   guard
//                                                                               finds it with the fence, and
//                                                                               begins again at 2
//   3  take away what is owed                                                   likewise: the methods run
//   twice 4  let the new holder in, once the drain is over too                        nothing is owed
//
// From 1 on the old holder is refused, and until 4 the new one waits, whichever guard it asks, and however
// often: what it asks again finds its own token at the fence, and the cut owed beside it.
namespace fenceguard::proxy {

void LaneScheduler::cut_off_by(HolderFencer& fencer) {
  auto* fencing = dynamic_cast<PendingFencing*>(&state_);
  if (fencing == nullptr)
    throw InvalidInput("--fence-method: this state cannot keep what is owed: use --state sqlite:PATH");
  const std::scoped_lock lock{mutex_};
  fencer_ = &fencer;
  pending_fencing_ = fencing;
}

// A holder that is let in meanwhile would else pass for one that was not: see PendingFencing.
void LaneScheduler::cut_off_none() {
  if (auto* fencing = dynamic_cast<PendingFencing*>(&state_))
    (void)wait_for<bool>([&](Done<bool> done) { fencing->waive(std::move(done)); });
}

void LaneScheduler::finish(Claim claim, Done<bool> done) {
  if (pending_fencing_ == nullptr) return done(true);
  const Ticket ticket = new_ticket();
  feed([&](Actions& actions) {
    const auto told = [done = std::move(done)](const Outcome<FenceView>& outcome) {
      done(outcome.ok() ? Outcome<bool>{true} : Outcome<bool>{outcome.fault()});
    };
    revokes_.emplace(ticket, Revoke{{}, {}, told, claim});
    table_.ask({ticket, Kind::revoke, {claim.without_sequence()}}, {now(), actions});
  });
}

// What is owed is looked up behind the fence. What raises that, or closes it, is not decided on meanwhile,
// and a cut that comes to its end in between is at most begun once more.
void LaneScheduler::load_pending(const Resource& resource, const FenceView& view) noexcept {
  const auto answer = [this, resource, view](const Outcome<std::int64_t>& pending) {
    feed_answer([&](Actions& actions) {
      if (!pending.ok()) return table_.loaded(resource, pending.fault(), {now(), actions});
      table_.loaded(resource, view, {now(), actions}, pending.value());
    });
  };
  call_store(answer, [&] { pending_fencing_->pending(resource, answer); });
}

void LaneScheduler::raise_pending(const Claim& claim) {
  pending_fencing_->raise(claim, [this, claim](const Outcome<PendingFencing::RaiseResult>& outcome) {
    if (outcome.ok() && outcome.value().ruling.changed) tell_raise(claim);
    feed_answer([&](Actions& actions) {
      if (!outcome.ok()) return table_.raised(claim, outcome.fault(), {now(), actions});
      table_.raised(claim, outcome.value().ruling, {now(), actions}, outcome.value().pending);
    });
  });
}

LaneScheduler::Job LaneScheduler::close_pending(Resource resource, const Revoke& revoke, Ticket ticket) {
  return [this, resource = std::move(resource), lease = revoke.lease, finished = revoke.finished, ticket] {
    const auto answer = [this, resource, ticket](const Outcome<PendingFencing::CloseResult>& outcome) {
      Done<FenceView> told;
      feed_answer([&](Actions& actions) {
        Revoke& waiting = revokes_.at(ticket);
        if (waiting.finished) told = std::exchange(waiting.done, nullptr);
        if (!outcome.ok()) return table_.closed(resource, ticket, outcome.fault(), {now(), actions});
        waiting.view = outcome.value().view;
        table_.closed(resource, ticket, outcome.value().view, {now(), actions}, outcome.value().pending);
      });
      if (!told) return;
      told(outcome.ok() ? Outcome<FenceView>{outcome.value().view} : Outcome<FenceView>{outcome.fault()});
    };
    call_store(answer, [&] {
      if (finished) return pending_fencing_->finish(*finished, answer);
      pending_fencing_->revoke(resource, lease, answer);
    });
  };
}

LaneScheduler::Job LaneScheduler::cut_off(CutOff call) {
  ++calls_;
  return [this, call = std::move(call)] {
    const auto told = [this, call](const Outcome<bool>& outcome) {
      feed_answer([&](Actions& actions) {
        table_.cut_off(call.resource, call.old_token, outcome, {now(), actions});
      });
    };
    const auto answer = [this, call, told](const Outcome<bool>& outcome) {
      if (!outcome.ok()) return told(outcome);
      call_store(told, [&] { pending_fencing_->settle(call.resource, call.old_token, told); });
    };
    call_store(answer, [&] { fencer_->cut_off(call.resource, call.old_token, call.new_token, answer); });
  };
}

}  // namespace fenceguard::proxy
