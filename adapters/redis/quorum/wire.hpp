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
#include <string_view>
#include <vector>

#include "adapters/redis/quorum/message.hpp"
#include "adapters/redis/wire/reply.hpp"
#include "adapters/redis/wire/script.hpp"

namespace fenceguard::redis::quorum {

// A script with its words, ready to be sent.
struct Command {
  const Script* script = nullptr;
  std::vector<std::string> words;  // the number of keys, the keys, the arguments

  // EVALSHA, or EVAL with the text.
  [[nodiscard]] std::vector<std::string_view> views(bool by_hash) const;
};

[[nodiscard]] Command command_of(const std::string& prefix, const Request& request);

// Nothing for a reply that is no answer of the script: an error, or a value that no script of ours wrote.
[[nodiscard]] std::optional<Answer> answer_of(Request::What what, const Reply& reply);

}  // namespace fenceguard::redis::quorum
