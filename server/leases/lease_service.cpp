#include "server/leases/lease_service.hpp"

#include <spdlog/spdlog.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <future>
#include <thread>
#include <unordered_map>

#include "server/leases/lease_queue.hpp"
#include "server/net/boot_timer.hpp"

namespace fenceguard {
namespace asio = boost::asio;

namespace {

// A few threads for calls that block.
class CallThreads {
 public:
  // For what is bounded already.
  void run(std::function<void()> call) { asio::post(pool_, std::move(call)); }

  // False where too many wait, or the threads have ended.
  bool offer(std::function<void()> call) {
    if (waiting_.fetch_add(1) >= LeaseService::calls_max || is_over_.load()) {
      --waiting_;
      return false;
    }
    run([this, call = std::move(call)] {
      --waiting_;
      call();
    });
    return true;
  }

  void join() {
    pool_.join();
    is_over_ = true;
  }

 private:
  std::atomic<std::size_t> waiting_{0};
  std::atomic<bool> is_over_{false};
  asio::thread_pool pool_{LeaseService::threads};
};

}  // namespace

// The queue and the table of open asks belong to the service's own thread; all other threads post to it.
class LeaseService::Impl : public std::enable_shared_from_this<LeaseService::Impl> {
 public:
  using AskId = LeaseQueue::AskId;
  using Action = LeaseQueue::Action;

  Impl(TokenSource& source, FenceStore& fences, Metrics& metrics, RefusalLog& log)
      : context_{source,
                 fences,
                 metrics,
                 log,
                 pending_,
                 [this](std::function<void()> call) { calls_.run(std::move(call)); },
                 [this](std::function<void()> call) { renewals_.run(std::move(call)); }},
        thread_{[this] { loop_.run(); }} {}

  ~Impl() { stop(); }

  [[nodiscard]] CallThreads& calls() noexcept { return calls_; }
  [[nodiscard]] CallThreads& renewals() noexcept { return renewals_; }

  void post(std::function<void(Impl&)> event) {
    asio::post(loop_, [weak = weak_from_this(), event = std::move(event)] {
      if (const auto self = weak.lock()) event(*self);
    });
  }

  void acquire(Request request, const std::shared_ptr<http::Caller>& caller,
               std::function<void(Answer)> answer);
  void released(const Resource& resource);
  void run_after(std::chrono::milliseconds delay, std::function<void()> call);
  void close();
  void finish();

 private:
  struct Open {
    Request request;
    BootClock::time_point until;
    std::function<void(Answer)> answer;
  };
  class DeliveryReceipt;

  void arrive(Request request, const std::shared_ptr<http::Caller>& caller,
              std::function<void(Answer)> answer);
  void act(const LeaseQueue::Actions& actions);
  void perform(const Action& action);
  void begin_step(AskId id);
  void end_step(AskId id, GrantEnd end);
  [[nodiscard]] GrantEnd after_loss(AskId id) const;
  void begin_revert(const Claim& claim);
  void begin_identify(AskId id);
  void answer(AskId id, Answer answer);
  void set_timer();
  void stop();

  PendingCalls pending_;
  CallThreads calls_;
  CallThreads renewals_;
  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};
  net::BootTimer timer_{loop_};
  GrantStep::Context context_;
  LeaseQueue queue_{asks_max};
  std::unordered_map<AskId, Open> open_;
  std::function<void()> idle_;  // called once when the queue is idle; see finish()
  std::jthread thread_;
};

// Follows an answer that hands out a lease: destroyed without undelivered() it counts as delivered.
class LeaseService::Impl::DeliveryReceipt {
 public:
  DeliveryReceipt(std::weak_ptr<Impl> service, AskId id) : lease_service_{std::move(service)}, id_{id} {}
  DeliveryReceipt(const DeliveryReceipt&) = delete;
  DeliveryReceipt& operator=(const DeliveryReceipt&) = delete;
  ~DeliveryReceipt() {
    if (was_undelivered_.test()) return;
    settle([](LeaseQueue& queue, AskId id, LeaseQueue::Actions& actions) {
      queue.delivered(id, BootClock::now(), actions);
    });
  }

  void undelivered() {
    if (was_undelivered_.test_and_set()) return;
    settle([](LeaseQueue& queue, AskId id, LeaseQueue::Actions& actions) {
      queue.undelivered(id, BootClock::now(), actions);
    });
    if (const auto service = lease_service_.lock()) service->context_.metrics.count(LeaseEvent::undelivered);
  }

 private:
  template <class Event>
  void settle(Event event) {
    const auto service = lease_service_.lock();
    if (!service) return;
    service->post([id = id_, event](Impl& impl) {
      LeaseQueue::Actions actions;
      event(impl.queue_, id, actions);
      impl.act(actions);
    });
  }

  std::weak_ptr<Impl> lease_service_;
  AskId id_;
  std::atomic_flag was_undelivered_;
};

void LeaseService::Impl::acquire(Request request, const std::shared_ptr<http::Caller>& caller,
                                 std::function<void(Answer)> answer) {
  post([request = std::move(request), caller, answer = std::move(answer)](Impl& impl) {
    impl.arrive(request, caller, answer);
  });
}

void LeaseService::Impl::arrive(Request request, const std::shared_ptr<http::Caller>& caller,
                                std::function<void(Answer)> answer) {
  const auto now = BootClock::now();
  LeaseQueue::Actions actions;
  const auto until = now + request.wait;
  const auto id = queue_.arrive({request.resource, request.holder, request.is_named, until}, now, actions);
  if (!id) return answer(Dismissed{});
  open_.emplace(*id, Open{std::move(request), until, std::move(answer)});
  if (caller) {
    caller->watch([weak = weak_from_this(), id = *id] {
      const auto self = weak.lock();
      if (!self) return;
      self->post([id](Impl& impl) {
        LeaseQueue::Actions after;
        impl.queue_.gone(id, BootClock::now(), after);
        impl.act(after);
      });
    });
  }
  act(actions);
}

void LeaseService::Impl::released(const Resource& resource) {
  post([resource](Impl& impl) {
    LeaseQueue::Actions actions;
    impl.queue_.released(resource, BootClock::now(), actions);
    impl.act(actions);
  });
}

void LeaseService::Impl::run_after(std::chrono::milliseconds delay, std::function<void()> call) {
  const auto timer = std::make_shared<asio::steady_timer>(loop_, delay);
  timer->async_wait([timer, call = std::move(call)](boost::system::error_code error) {
    if (!error) call();
  });
}

void LeaseService::Impl::act(const LeaseQueue::Actions& actions) {
  for (const Action& action : actions) perform(action);
  set_timer();
  context_.metrics.set_leases_waiting(queue_.asks_open());
  if (idle_ && queue_.is_idle()) std::exchange(idle_, nullptr)();
}

void LeaseService::Impl::perform(const Action& action) {
  switch (action.kind) {
    case Action::Kind::ask:
      return begin_step(action.ask);
    case Action::Kind::revert:
      return begin_revert(*action.claim);
    case Action::Kind::identify:
      return begin_identify(action.ask);
    case Action::Kind::refuse:
      context_.metrics.count(LeaseEvent::held);
      return answer(action.ask, LockBusy{action.retry_after});
    case Action::Kind::dismiss:
      context_.metrics.count(LeaseEvent::withdrawn);
      return answer(action.ask, Dismissed{});
  }
}

void LeaseService::Impl::begin_step(AskId id) {
  const auto step = std::make_shared<GrantStep>(
      context_, open_.at(id).request, [weak = weak_from_this(), id](GrantEnd end) {
        if (const auto self = weak.lock()) {
          self->post([id, end = std::move(end)](Impl& impl) { impl.end_step(id, end); });
        }
      });
  step->start();
}

// A grant that was lost before it could be told is asked for again, at its place in the queue, while its
// caller still waits.
GrantEnd LeaseService::Impl::after_loss(AskId id) const {
  if (BootClock::now() < open_.at(id).until) return LockBusy{};
  return Fault{
      FaultKind::unavailable,
      "The lease ended while the guard waited for older writes to end. Ask again, with a longer ttl_ms "
      "or with wait_ms."};
}

void LeaseService::Impl::end_step(AskId id, GrantEnd end) {
  LeaseQueue::Actions actions;
  const auto now = BootClock::now();
  if (std::holds_alternative<Expired>(end)) {
    end = after_loss(id);
    // No holder has it, so that no other ask is answered by this one.
    queue_.released(open_.at(id).request.resource, now, actions);
  }
  if (const auto* held = std::get_if<LockBusy>(&end)) {
    queue_.held(id, held->retry_after, now, actions);
  } else if (auto* grant = std::get_if<Grant>(&end)) {
    if (queue_.granted(id, grant->claim, grant->ttl, now, actions, grant->is_new)) {
      context_.metrics.count(grant->is_new ? LeaseEvent::acquired : LeaseEvent::repeated);
      const auto slip = std::make_shared<DeliveryReceipt>(weak_from_this(), id);
      answer(id, Granted{std::move(*grant), [slip] { slip->undelivered(); }});
    }
  } else {
    queue_.failed(id, now, actions);
    context_.metrics.count(LeaseEvent::failed);
    answer(id, std::get<Fault>(std::move(end)));
  }
  act(actions);
}

void LeaseService::Impl::begin_revert(const Claim& claim) {
  calls_.run([this, claim] {
    try {
      context_.source.release(claim);
    } catch (const std::exception& error) {
      spdlog::warn("event=\"lease not taken back\" resource={} token={} reason={}",
                   fenceguard::quoted(claim.resource.name()), claim.token.value(),
                   fenceguard::quoted(error.what()));
    }
    post([resource = claim.resource](Impl& impl) {
      LeaseQueue::Actions actions;
      impl.queue_.reverted(resource, BootClock::now(), actions);
      impl.act(actions);
    });
  });
}

void LeaseService::Impl::begin_identify(AskId id) {
  const auto found = open_.find(id);
  // Taken by value: the ask may end before its turn here comes.
  if (found == open_.end()) return;
  calls_.run([this, id, resource = found->second.request.resource, holder = found->second.request.holder] {
    bool is_holder = false;
    try {
      const auto lease = context_.source.show(resource);
      is_holder = lease && lease->claim.holder == holder;
    } catch (const std::exception&) {
      // Not known to be the holder: it keeps its place in the queue.
    }
    post([id, is_holder](Impl& impl) {
      LeaseQueue::Actions actions;
      impl.queue_.identified(id, is_holder, BootClock::now(), actions);
      impl.act(actions);
    });
  });
}

void LeaseService::Impl::answer(AskId id, Answer answer) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  const Open open = std::move(found->second);
  open_.erase(found);
  open.answer(std::move(answer));
}

void LeaseService::Impl::set_timer() {
  const auto at = queue_.wake_at();
  if (!at) {
    timer_.cancel();
    return;
  }
  timer_.set(*at, [this] {
    LeaseQueue::Actions actions;
    queue_.tick(BootClock::now(), actions);
    act(actions);
  });
}

void LeaseService::Impl::close() {
  post([](Impl& impl) {
    LeaseQueue::Actions actions;
    impl.queue_.close(actions);
    impl.act(actions);
  });
}

void LeaseService::Impl::finish() {
  if (!thread_.joinable()) return;
  auto idle = std::make_shared<std::promise<void>>();
  auto done = idle->get_future();
  post([idle](Impl& impl) {
    impl.idle_ = [idle] { idle->set_value(); };
    impl.act({});
  });
  done.wait();
  stop();
}

void LeaseService::Impl::stop() {
  // Calls of the source may post to the loop, and the store's answers may start calls of the source.
  pending_.wait();
  renewals_.join();
  calls_.join();
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

LeaseService::LeaseService(TokenSource& source, FenceStore& fences, Metrics& metrics, RefusalLog& log)
    : impl_{std::make_shared<Impl>(source, fences, metrics, log)} {}

LeaseService::~LeaseService() {
  close();
  finish();
}

void LeaseService::acquire(Request request, const std::shared_ptr<http::Caller>& caller,
                           std::function<void(Answer)> answer) {
  impl_->acquire(std::move(request), caller, std::move(answer));
}

void LeaseService::released(const Resource& resource) {
  impl_->released(resource);
}
bool LeaseService::run_blocking(std::function<void()> call) {
  return impl_->calls().offer(std::move(call));
}
bool LeaseService::run_renewal(std::function<void()> call) {
  return impl_->renewals().offer(std::move(call));
}
void LeaseService::run_after(std::chrono::milliseconds delay, std::function<void()> call) {
  impl_->run_after(delay, std::move(call));
}
bool LeaseService::answers(std::chrono::milliseconds limit) {
  const auto asked = std::make_shared<std::promise<void>>();
  const auto answer = asked->get_future();
  run_after(std::chrono::milliseconds{0}, [asked] { asked->set_value(); });
  return answer.wait_for(limit) == std::future_status::ready;
}

void LeaseService::close() {
  impl_->close();
}
void LeaseService::finish() {
  impl_->finish();
}

}  // namespace fenceguard
