#pragma once

// What the tests of the guard share: an initialised namespace, claims, and short names.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "adapters/redis/guard.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::test {

inline Claim claim_of(std::int64_t token, const std::string& holder = "h", const std::string& resource = "r",
                      std::optional<std::int64_t> sequence = {}) {
  Claim claim{Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
  if (sequence) claim.sequence = Sequence{*sequence};
  return claim;
}

inline void init_namespace(RedisServer& server, std::int64_t floor = 0) {
  const auto text = std::to_string(floor);
  server.call({"HSET", "fenceguard:namespace", "floor", text, "highest", text});
}

// The fault that function ends with; a failure of the test if there is none.
template <class Function>
Fault fault_of_call(const Function& function) {
  try {
    (void)function();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  ADD_FAILURE() << "no fault";
  return {FaultKind::invalid_input, ""};
}

inline FaultKind kind_of(const auto& function) {
  return fault_of_call(function).kind;
}

// The record of a resource in the default namespace, its fields in the order of HMGET, '-' for none.
inline std::vector<std::string> record(RedisServer& server, const std::string& resource = "r") {
  const auto reply =
      server.call({"HMGET", "fenceguard:{" + resource + "}", "token", "holder", "sequence", "closed"});
  std::vector<std::string> fields;
  for (const auto& field : reply.elements) fields.push_back(field.is_nil() ? "-" : field.text);
  return fields;
}

}  // namespace fenceguard::test
