#pragma once

// What the sidecars of Redis and PostgreSQL tell of a ruling that a client was given: to the metrics and the
// log. client: the host that it comes from.
//
// Thread-safe.

#include <cstddef>
#include <string>

#include "guard/judge.hpp"
#include "server/control/metrics.hpp"
#include "server/control/refusal_log.hpp"
#include "server/data/data_service.hpp"

namespace fenceguard {

// count: writes that were ruled on together.
inline void report_ruling(const ServiceContext& context, const char* operation, const Claim& claim,
                          Verdict verdict, std::int64_t highest, const std::string& client,
                          std::size_t count = 1) {
  context.metrics.count(verdict, count);
  Ruling ruling;
  ruling.verdict = verdict;
  ruling.highest = highest;
  context.log.ruled(operation, claim, ruling, client);
}

// No verdict was given.
inline void report_fault(const ServiceContext& context, const char* operation, const Claim& claim,
                         const Fault& fault, const std::string& client, std::size_t count = 1) {
  for (std::size_t i = 0; i < count; ++i) context.metrics.count(fault.kind);
  context.log.failed(operation, claim, fault, client);
}

inline void report_unsigned(const ServiceContext& context, const char* operation, const Claim& claim,
                            const std::string& client) {
  context.metrics.count_unsigned();
  context.log.not_signed(operation, claim, client);
}

}  // namespace fenceguard
