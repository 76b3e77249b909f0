#pragma once

// JsonBody: the JSON object in the body of a call, read member by member. Strict: a member of the wrong type
// or one that the call does not have is an error, and so is one that comes twice, and what is too deep.
// Tokens are decimal strings, because they exceed what JSON readers keep.
//
// Throws InvalidInput with a sentence for a 400. Not thread-safe.

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "guard/resource.hpp"
#include "guard/token.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard {

class JsonBody {
 public:
  static constexpr std::size_t bytes_max = 64 * 1024;
  static constexpr std::size_t depth_max = 16;

  // An empty body is an empty object.
  explicit JsonBody(std::string_view body);

  // Each takes the member out; nothing if it is not there.
  [[nodiscard]] std::optional<std::string> text(std::string_view name);
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name);
  [[nodiscard]] std::optional<Token> token(std::string_view name);
  [[nodiscard]] std::optional<Holder> holder(std::string_view name);

  // REQUIRES: every known member was taken. Throws if one is left.
  void require_taken() const;

 private:
  boost::json::object members_;
};

// An answer with a JSON body. It is not to be cached: it shows a state that changes.
[[nodiscard]] http::Response json_response(unsigned status, const boost::json::object& body);

// What a page ends with: whether there are more, and after which resource they come.
void add_page_end(boost::json::object& body, bool has_more, std::string_view last);

}  // namespace fenceguard
