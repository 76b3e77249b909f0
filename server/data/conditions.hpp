#pragma once

// If-Match and If-None-Match (RFC 9110, section 13.1): read from header fields, and evaluated for reads. A
// write's are evaluated by the storage, in the same step as the write.
//
// Pure; safe to use from any thread.

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "guard/store/storage.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

struct Conditions {
  std::optional<Precondition> if_match;
  std::optional<Precondition> if_none_match;
};

struct BadConditions {
  std::string reason;
};

// Several lines of one field are one list. Bad: '*' beside tags, a tag without quotes, an empty list.
[[nodiscard]] std::variant<Conditions, BadConditions> parse_conditions(const http::Fields& fields);

// What the conditions say about a read; etag is empty if there is no object.
enum class ReadCondition { proceed, not_modified, failed };
[[nodiscard]] ReadCondition evaluate_read(const Conditions& conditions, std::string_view etag);

}  // namespace fenceguard
