#pragma once

// What an error that an etcd server answered means to us: the one place where its words become our faults.
// All functions are thread-safe.

#include <string>
#include <string_view>

#include "guard/error.hpp"

namespace fenceguard::etcd {

// An answer that is no success.
struct Refusal {
  int http_status = 0;
  int code = 0;      // of gRPC; 0: the answer named none
  std::string text;  // 'etcdserver: request timed out'
};

// The fault that a refusal stands for. doing begins its message: 'http://h1:2379: a transaction'. writes:
// whether the call, had it been carried out, would have changed anything.
[[nodiscard]] Fault fault_of(std::string_view doing, const Refusal& refusal, bool writes);

// True where the call was refused before it was looked at, because its token of the authentication is no good
// any more, or is missing: with a new one it may be made again.
[[nodiscard]] bool is_outdated_authentication(const Refusal& refusal) noexcept;

// Out of space. Says nothing of what was sent: the member may have applied it.
[[nodiscard]] bool is_out_of_space(const Refusal& refusal) noexcept;

// A call that writes was refused so.
class OutOfSpace : public OutcomeUnknown {
 public:
  using OutcomeUnknown::OutcomeUnknown;
};

// A call that writes was refused because the lease that it names is not there.
class MissingLease : public Unavailable {
 public:
  using Unavailable::Unavailable;
};

// The server wants no authentication.
[[nodiscard]] bool is_authentication_off(const Refusal& refusal) noexcept;

// A lease of this id was granted before.
[[nodiscard]] bool is_existing_lease(const Refusal& refusal) noexcept;

// There is no lease of this id.
[[nodiscard]] bool is_missing_lease(const Refusal& refusal) noexcept;

}  // namespace fenceguard::etcd
