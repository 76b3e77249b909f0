#include "guard/store/storage.hpp"

#include "guard/support/wait_for.hpp"

namespace fenceguard {

Ruling StoreGuard::advance(const Claim& claim) {
  return wait_for<Ruling>([&](Done<Ruling> done) { store_.advance(claim, std::move(done)); });
}

}  // namespace fenceguard
