#include "guard/support/coalesced_scan.hpp"

#include <algorithm>

namespace fenceguard {

CoalescedScan::Found CoalescedScan::since(Time since, const Look& look, Time meanwhile) {
  std::unique_lock lock{mutex_};
  for (;;) {
    if (last_ && last_->begun >= since) return *last_;
    if (!is_running_) break;
    if (last_ && last_->begun >= meanwhile) return *last_;
    ended_.wait(lock, [&, ends = ends_] { return ends_ != ends; });
    if (fault_) std::rethrow_exception(fault_);
  }
  if (last_ && paid_until_ - now_() > debt_max) {
    if (fault_) std::rethrow_exception(fault_);
    return *last_;
  }
  return make(lock, look);
}

CoalescedScan::Found CoalescedScan::make(std::unique_lock<std::mutex>& lock, const Look& look) {
  is_running_ = true;
  Found found{now_()};
  lock.unlock();
  std::exception_ptr fault;
  try {
    found.number = look();
  } catch (...) {
    fault = std::current_exception();
  }
  lock.lock();
  paid_until_ = std::max(paid_until_, found.begun) + cost_factor * (now_() - found.begun);
  is_running_ = false;
  ++ends_;
  fault_ = fault;
  if (!fault) last_ = found;
  ended_.notify_all();
  if (fault) std::rethrow_exception(fault);
  return found;
}

}  // namespace fenceguard
