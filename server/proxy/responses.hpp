#pragma once

// What clients of the proxy are told, besides what the storage says itself.
//
// Pure; safe to use from any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "guard/judge.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard::proxy {

// Adds the verdict and the highest token to an answer of the storage's own.
void add_ruling(http::Response& response, const Ruling& ruling);
// Adds what the answer to a read needs, so that no cache answers a fenced read with what it kept.
void add_cache_rules(http::Response& response, bool is_fenced);
// The same to an answer that is no Response: add(name, value) takes each field.
template <class Add>
void add_ruling_to(Add add, Verdict verdict, std::int64_t highest) {
  add("Fencing-Verdict", to_string(verdict));
  add("Fencing-Highest", std::to_string(highest));
}
template <class Add>
void add_cache_rules_to(Add add, bool is_fenced) {
  if (is_fenced) {
    add("Cache-Control", "no-store");
  } else {
    // A cache in front must not answer a fenced read with what it kept of a plain one: nothing would advance.
    add("Vary", "Fencing-Token");
  }
}

// A claim that was not admitted: stale, conflict or duplicate.
[[nodiscard]] http::Response turned_down(const Claim& claim, const Ruling& ruling);

// A write was forwarded and its end was not seen. status: 502, 504 or 500.
[[nodiscard]] http::Response outcome_unknown(unsigned status, std::string_view detail, const Claim& claim,
                                             const Ruling& ruling);

// Nothing was written. status: 503 where nothing was sent; 502 or 504 where a read was not answered.
[[nodiscard]] http::Response upstream_unavailable(unsigned status, std::string_view detail,
                                                  const Resource& resource);

}  // namespace fenceguard::proxy
