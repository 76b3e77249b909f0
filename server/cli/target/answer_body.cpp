#include "server/cli/target/answer_body.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"

namespace fenceguard::cli {

std::string text_in(const json::object& body, std::string_view name) {
  const auto* value = body.if_contains(name);
  if (value == nullptr || !value->is_string()) {
    throw OutcomeUnknown(fmt::format("the server's answer has no '{}'", name));
  }
  return std::string{value->get_string()};
}

Token token_in(const json::object& body) {
  const auto token = Token::parse(text_in(body, "token"));
  if (!token) throw OutcomeUnknown("the server's answer holds no valid token");
  return *token;
}

std::optional<std::int64_t> number_in(const json::object& body, std::string_view name) {
  const auto* value = body.if_contains(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return parse_decimal(value->get_string());
  boost::system::error_code error;
  const auto number = value->to_number<std::int64_t>(error);
  return error ? std::nullopt : std::optional{number};
}

Fence fence_in(const json::object& body) {
  Fence fence{.token = token_in(body), .holder = {}, .sequence = std::nullopt};
  if (const auto number = number_in(body, "sequence")) fence.sequence = Sequence{*number};
  const auto* closed = body.if_contains("closed");
  fence.closed = closed != nullptr && closed->is_bool() && closed->get_bool();
  return fence;
}

std::vector<json::object> entries_in(const json::object& body, std::string_view name) {
  const auto* entries = body.if_contains(name);
  if (entries == nullptr || !entries->is_array())
    throw OutcomeUnknown(fmt::format("the server's answer has no '{}'", name));
  std::vector<json::object> objects;
  for (const auto& entry : entries->get_array()) {
    if (!entry.is_object()) throw OutcomeUnknown(fmt::format("the server's answer has malformed '{}'", name));
    objects.push_back(entry.get_object());
  }
  return objects;
}

bool has_more_in(const json::object& body) {
  const auto* more = body.if_contains("has_more");
  return more != nullptr && more->is_bool() && more->get_bool();
}

}  // namespace fenceguard::cli
