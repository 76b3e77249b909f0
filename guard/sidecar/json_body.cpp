#include "guard/sidecar/json_body.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "guard/error.hpp"

namespace fenceguard {
namespace json = boost::json;

JsonBody::JsonBody(std::string_view body) {
  if (body.empty()) return;
  if (body.size() > bytes_max) throw InvalidInput("The body has more than 64 KiB.");
  json::parse_options options;
  options.max_depth = depth_max;
  json::error_code error;
  auto value = json::parse(body, error, {}, options);
  if (error) throw InvalidInput("The body is not JSON: " + error.message() + ".");
  if (!value.is_object()) throw InvalidInput("The body is not a JSON object.");
  members_ = std::move(value.get_object());
}

std::optional<std::string> JsonBody::text(std::string_view name) {
  const auto* member = members_.if_contains(name);
  if (member == nullptr) return std::nullopt;
  if (!member->is_string()) throw InvalidInput("The member '" + std::string{name} + "' is a string.");
  std::string value{member->get_string()};
  members_.erase(name);
  return value;
}

std::optional<std::int64_t> JsonBody::integer(std::string_view name) {
  const auto* member = members_.if_contains(name);
  if (member == nullptr) return std::nullopt;
  if (!member->is_int64()) throw InvalidInput("The member '" + std::string{name} + "' is a whole number.");
  const std::int64_t value = member->get_int64();
  members_.erase(name);
  return value;
}

std::optional<Token> JsonBody::token(std::string_view name) {
  const auto written = text(name);
  if (!written) return std::nullopt;
  const auto token = Token::parse(*written);
  if (!token) {
    throw InvalidInput("The member '" + std::string{name} +
                       "' is a decimal number from 1 to 9223372036854775807, in a string.");
  }
  return token;
}

std::optional<Holder> JsonBody::holder(std::string_view name) {
  const auto written = text(name);
  if (!written) return std::nullopt;
  auto holder = Holder::parse(*written);
  if (!holder) throw InvalidInput("A holder is 1 to 128 bytes of visible ASCII.");
  return holder;
}

void JsonBody::require_taken() const {
  if (!members_.empty()) throw InvalidInput("The body has a member that is not known here.");
}

http::Response json_response(unsigned status, const json::object& body) {
  http::Response response;
  response.status = status;
  response.fields.add("Content-Type", "application/json");
  response.fields.add("Cache-Control", "no-store");
  response.body = json::serialize(body) + "\n";
  return response;
}

}  // namespace fenceguard
