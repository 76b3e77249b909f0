#include "server/http/pending_request.hpp"

#include <utility>

namespace fenceguard::http {

PendingRequest::PendingRequest(std::shared_ptr<Loop> loop, std::weak_ptr<Owner> session, std::uint64_t number)
    : loop_{std::move(loop)}, session_{std::move(session)}, number_{number} {
  loop_->in_flight.fetch_add(1, std::memory_order_relaxed);
}

PendingRequest::~PendingRequest() {
  if (is_answered_.load()) return;
  loop_->in_flight.fetch_sub(1, std::memory_order_relaxed);
  try {
    loop_->post([session = session_, number = number_] {
      if (const auto present = session.lock())
        present->take_failure(number, "the request was given up without an answer");
    });
  } catch (...) {
    // Out of memory: the connection stays until the drain.
  }
}

void PendingRequest::reply(Response response) {
  if (is_answered_.exchange(true)) return;
  loop_->in_flight.fetch_sub(1, std::memory_order_relaxed);
  forget_gone();
  if (loop_->is_current()) {
    const auto session = session_.lock();
    if (session && session->is_dispatching(number_)) return session->take_answer(response);
  }
  loop_->post([session = session_, number = number_, answer = std::move(response)]() mutable {
    deliver(session, number, std::move(answer));
  });
}

void PendingRequest::deliver(const std::weak_ptr<Owner>& session, std::uint64_t number, Response response) {
  const auto present = session.lock();
  if (present && present->is_waiting(number)) {
    present->take_answer(response);
  } else {
    call_safely(response.undelivered);
  }
}

void PendingRequest::watch(std::function<void()> gone) {
  {
    const std::lock_guard lock{mutex_};
    if (is_answered_) return;
    if (!is_gone_) gone_ = std::exchange(gone, nullptr);
  }
  if (gone) return call_safely(gone);
  loop_->post([session = session_, number = number_] {
    if (const auto present = session.lock()) present->watch(number);
  });
}

void PendingRequest::tell_gone() {
  std::function<void()> gone;
  {
    const std::lock_guard lock{mutex_};
    is_gone_ = true;
    gone.swap(gone_);
  }
  call_safely(gone);
}

void PendingRequest::forget_gone() {
  std::function<void()> gone;
  const std::lock_guard lock{mutex_};
  gone.swap(gone_);
}

}  // namespace fenceguard::http
