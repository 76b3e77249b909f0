#include "server/control/json_body.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <set>

#include "guard/error.hpp"

namespace fenceguard {
namespace json = boost::json;
namespace {

// A name as a client wrote it, for a sentence.
std::string shown(std::string_view name) {
  constexpr std::size_t shown_max = 64;
  if (name.size() > shown_max) return "whose name has " + std::to_string(name.size()) + " bytes";
  return "'" + std::string{name} + "'";
}

// Throws for a member that comes twice, whichever way its name is written: two readers could take different
// ones. REQUIRES: text is an object.
void require_single_members(std::string_view text) {
  std::set<std::string, std::less<>> names;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] != '"') continue;
    const auto begin = i;
    for (++i; text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    const bool is_name = text[text.find_first_not_of(" \t\r\n", i + 1)] == ':';
    if (!is_name || depth != 1) continue;
    const auto name = json::parse(text.substr(begin, i + 1 - begin));
    const auto [member, is_new] = names.emplace(name.get_string());
    if (!is_new) throw InvalidInput("The member " + shown(*member) + " comes more than once.");
  }
}

}  // namespace

JsonBody::JsonBody(std::string_view body) {
  if (body.empty()) return;
  if (body.size() > bytes_max) throw InvalidInput("The body has more than 64 KiB.");
  json::parse_options options;
  options.max_depth = depth_max;
  json::error_code error;
  auto value = json::parse(body, error, {}, options);
  if (error) throw InvalidInput("The body is not JSON: " + error.message() + ".");
  if (!value.is_object()) throw InvalidInput("The body is not a JSON object.");
  require_single_members(body);
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
  if (members_.empty()) return;
  throw InvalidInput("The member " + shown(members_.begin()->key()) + " is not known here.");
}

http::Response json_response(unsigned status, const json::object& body) {
  http::Response response;
  response.status = status;
  response.fields.add("Content-Type", "application/json");
  response.fields.add("Cache-Control", "no-store");
  response.body = json::serialize(body) + "\n";
  return response;
}

void add_page_end(boost::json::object& body, bool has_more, std::string_view last) {
  body["has_more"] = has_more;
  body["next"] = nullptr;
  if (has_more && !last.empty()) body["next"] = last;
}

}  // namespace fenceguard
