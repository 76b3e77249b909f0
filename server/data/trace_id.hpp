#pragma once

// The trace that a request belongs to, by its field traceparent (W3C Trace Context). The guard makes no spans
// of its own: the field is passed on as it came, and its trace id is told where a request was refused.
//
// Pure; safe to use from any thread.

#include <string_view>

#include "server/http/wire/message.hpp"

namespace fenceguard {

inline constexpr std::string_view trace_field = "traceparent";

// The 32 hexadecimal digits of the trace id; empty where there is no such field, more than one, or one that
// is malformed: what a client made up must not get into a log. The view is of the fields.
[[nodiscard]] std::string_view trace_id_of(const http::Fields& fields) noexcept;

}  // namespace fenceguard
