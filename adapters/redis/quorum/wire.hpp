#pragma once

// How the requests of a quorum read in Redis: the script and its words for a Request, the Answer in a Reply,
// and the keys of a node.
//
//   {prefix}quorum:marker            the epoch in which the node votes, or '?' and a nonce: a candidate
//   {prefix}quorum:counter           the last number
//   {prefix}quorum:lock:{RESOURCE}   the lock: 'NUMBER HOLDER NONCE'
//
// Values; the functions are thread-safe.

#include <optional>
#include <string>

#include "adapters/redis/quorum/message.hpp"
#include "adapters/redis/wire/reply.hpp"

namespace fenceguard::redis::quorum {

// The request as it is sent: EVALSHA, or EVAL with the text.
[[nodiscard]] std::string encoded(const std::string& prefix, const Request& request, bool by_hash);

// Nothing for a reply that is no answer of the script: an error, or a value that no script of ours wrote.
[[nodiscard]] std::optional<Answer> answer_of(Request::What what, const Reply& reply);

}  // namespace fenceguard::redis::quorum
