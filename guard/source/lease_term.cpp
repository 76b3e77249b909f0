#include "guard/source/lease_term.hpp"

namespace fenceguard {

LeaseTerm::LeaseTerm(Duration ttl, Time asked_at, Duration time_to_stop)
    : ttl_{ttl}, time_to_stop_{time_to_stop} {
  count_from(asked_at);
}

void LeaseTerm::count_from(Time sent_at) {
  renew_at_ = sent_at + ttl_ / 3 - time_to_stop_ / 2;
  lost_at_ = sent_at + ttl_ - ttl_ / 10 - time_to_stop_;
}

void LeaseTerm::renewed(Time sent_at, Time now) {
  if (!is_lost(now)) count_from(sent_at);
}

void LeaseTerm::renewal_failed(Time now) {
  renew_at_ = now + ttl_ / 12;
}

}  // namespace fenceguard
