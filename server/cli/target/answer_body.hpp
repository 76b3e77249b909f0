#pragma once

// Members of the control side's answers. What must be there and is not throws OutcomeUnknown: the answer is
// not whole.
//
// Pure; safe to use from any thread.

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/judge.hpp"

namespace fenceguard::cli {

namespace json = boost::json;

[[nodiscard]] std::string text_in(const json::object& body, std::string_view name);
[[nodiscard]] Token token_in(const json::object& body);
// Nothing if it is not there, or no number and no text that is one.
[[nodiscard]] std::optional<std::int64_t> number_in(const json::object& body, std::string_view name);
[[nodiscard]] Fence fence_in(const json::object& body);
// The objects of a page, and whether there are more.
[[nodiscard]] std::vector<json::object> entries_in(const json::object& body, std::string_view name);
[[nodiscard]] bool has_more_in(const json::object& body);

}  // namespace fenceguard::cli
